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
    /// The states that the stream has told of.
    told: Box<[Entry]>,
    /// Resolves at the next change. `None` after the last one.
    changed: Option<Pin<Box<dyn Future<Output = Option<Entries>> + Send + Sync>>>,
    news: VecDeque<MasterHealth>,
}

impl HealthEvents {
    /// Returns the changes of the states in `entries`.
    pub(crate) fn new(entries: Entries) -> Self {
        Self {
            told: Box::default(),
            changed: Some(Box::pin(ready(Some(entries)))),
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

    /// Adds the next changes to the news, if there are any.
    fn look(&mut self, cx: &mut Context<'_>) {
        while let Some(change) = &mut self.changed
            && let Poll::Ready(entries) = change.as_mut().poll(cx)
        {
            self.changed = None;
            if let Some(mut entries) = entries {
                let present = entries.borrow_and_update().clone();
                self.compare(present);
                self.changed = Some(Box::pin(changed(entries)));
            }
        }
    }

    fn compare(&mut self, entries: Box<[Entry]>) {
        let now = clock::monotonic();
        for (master, entry) in entries.iter().enumerate() {
            let told = self.told.get(master);
            if told.is_none_or(|told| entry.is_news(told)) {
                self.news.push_back(entry.at(now));
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
        if self.news.is_empty() {
            self.look(cx);
        }
        match self.news.pop_front() {
            None if !self.is_terminated() => Poll::Pending,
            next => Poll::Ready(next),
        }
    }
}

impl FusedStream for HealthEvents {
    fn is_terminated(&self) -> bool {
        self.news.is_empty() && self.changed.is_none()
    }
}

impl fmt::Debug for HealthEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthEvents")
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}
