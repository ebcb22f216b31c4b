//! A stream of the changes of the masters' states.

use std::{
    collections::VecDeque,
    fmt,
    future::ready,
    pin::Pin,
    task::{Context, Poll},
};

use futures::stream::{FusedStream, Stream, StreamExt};
use tokio::sync::watch;

use crate::{core::view::health::MasterHealth, driver::time::clock, master::Entry};

type Entries = watch::Receiver<Box<[Entry]>>;

/// A stream of the changes of the masters' states, from
/// [`Coordinator::health_events`](crate::Coordinator::health_events).
///
/// The stream begins with the present state of every master. Then it yields the new state of a
/// master each time that the master is connected, goes down, is quarantined, votes again, takes no
/// locks or takes them again. If events come faster than they are taken from the stream, it leaves
/// out states in between.
///
/// The stream ends after the last clone of the coordinator, the last lock and the last guard are
/// dropped.
#[must_use = "a stream does nothing unless it is polled"]
pub struct HealthEvents {
    boards: Vec<Board>,
    news: VecDeque<MasterHealth>,
}

/// The states of the masters of one group.
struct Board {
    /// The states that the stream has told of.
    told: Box<[Entry]>,
    /// Resolves at the next change. `None` after the last one.
    changed: Option<Pin<Box<dyn Future<Output = Option<Entries>> + Send + Sync>>>,
}

impl HealthEvents {
    /// Returns the changes of the states in all `boards`.
    pub(crate) fn new(boards: impl IntoIterator<Item = Entries>) -> Self {
        let board = |entries| Board {
            told: Box::default(),
            changed: Some(Box::pin(ready(Some(entries)))),
        };
        Self {
            boards: boards.into_iter().map(board).collect(),
            news: VecDeque::new(),
        }
    }

    /// Returns the next change, or `None` after the last one. Does the same as `StreamExt::next` of
    /// the `futures` crate.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Option<MasterHealth> {
        StreamExt::next(self).await
    }
}

impl Board {
    /// Adds the next changes to `news`, if there are any.
    fn poll(&mut self, cx: &mut Context<'_>, news: &mut VecDeque<MasterHealth>) {
        while let Some(change) = &mut self.changed
            && let Poll::Ready(entries) = change.as_mut().poll(cx)
        {
            self.changed = None;
            if let Some(mut entries) = entries {
                let present = entries.borrow_and_update().clone();
                self.compare(present, news);
                self.changed = Some(Box::pin(changed(entries)));
            }
        }
    }

    fn compare(&mut self, entries: Box<[Entry]>, news: &mut VecDeque<MasterHealth>) {
        let now = clock::monotonic();
        for (master, entry) in entries.iter().enumerate() {
            let told = self.told.get(master);
            if told.is_none_or(|told| entry.is_news(told)) {
                news.push_back(entry.at(now));
            }
        }
        self.told = entries;
    }
}

/// Waits for the next change. Returns `None` if there can be none.
async fn changed(mut entries: Entries) -> Option<Entries> {
    entries.changed().await.ok()?;
    Some(entries)
}

impl Stream for HealthEvents {
    type Item = MasterHealth;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<MasterHealth>> {
        let Self { boards, news } = &mut *self;
        if news.is_empty() {
            boards.iter_mut().for_each(|board| board.poll(cx, news));
        }
        match news.pop_front() {
            None if !self.is_terminated() => Poll::Pending,
            next => Poll::Ready(next),
        }
    }
}

impl FusedStream for HealthEvents {
    fn is_terminated(&self) -> bool {
        self.news.is_empty() && self.boards.iter().all(|board| board.changed.is_none())
    }
}

impl fmt::Debug for HealthEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<_> = self.boards.iter().map(|board| &board.told).collect();
        f.debug_struct("HealthEvents")
            .field("told", &told)
            .finish_non_exhaustive()
    }
}
