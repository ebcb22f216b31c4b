//! The masters that tell a waiter of changes of a lock.

use std::{future, sync::Arc};

use super::events::Heard;
use crate::{
    core::{
        vote::{Vote, master_set::MasterSet, quorum::Quorum},
        wait::contender::Event,
    },
    driver::{live_round::LiveRound, masters::Masters},
};

/// The masters that tell a waiter of the next change of the lock.
#[derive(Clone, Debug, Default)]
pub(crate) enum Watched {
    /// All masters, from this release of a lost attempt on.
    All {
        release: Arc<LiveRound>,
        /// The agreed master among those on which another holds the lock. Its report alone makes
        /// another attempt worthwhile, because releases are sent to all masters at once.
        agreed: Option<usize>,
    },
    #[default]
    None,
    /// The only master that was asked. It has refused.
    One(usize),
}

impl Watched {
    /// Returns whether a majority of every set, or the only master that matters, can tell the
    /// waiter of changes.
    pub(crate) fn is_heard(&self, masters: &Masters) -> bool {
        match self {
            Self::None => false,
            Self::One(_) => true,
            Self::All { .. } => masters.can_watch(),
        }
    }

    /// Waits until `is_done` returns `true`. Calls `is_done` at once, and then again after every
    /// answer that makes [`event`](Self::event) change.
    pub(crate) async fn until(&self, is_done: impl Fn() -> bool) {
        match self {
            Self::None | Self::One(_) => future::pending().await,
            Self::All { release, .. } => release.until(|| is_done().then_some(())).await,
        }
    }

    /// Returns the event that ends the wait, if what was `heard` says that the lock may be free on
    /// a majority of every set, or if the agreed master says so.
    ///
    /// A change may also be a renewal. A holder that renews the lock puts its key back on masters
    /// that have lost the key. Those masters are not asked first. Otherwise a waiter would take
    /// them for a moment at each renewal, and the holder could never put its key back.
    pub(super) fn event(&self, heard: Heard, quorum: &Quorum) -> Option<Event> {
        if heard.is_released {
            return Some(Event::Released);
        }
        match self {
            Self::None => None,
            Self::One(master) => heard.changed.contains(*master).then_some(Event::Changed {
                first: MasterSet::ALL,
                must_ask_first: true,
            }),
            Self::All { release, agreed } => {
                let given_back = release.read(|release| release.masters(Vote::is_freed));
                let free = heard.changed | given_back;
                let news = heard.changed - given_back;
                let is_reported = agreed.is_some_and(|agreed| news.contains(agreed));
                let may_be_free = is_reported || quorum.is_every_majority_in(free);
                may_be_free.then_some(Event::Changed {
                    first: if news.is_empty() { free } else { news },
                    must_ask_first: !given_back.is_empty(),
                })
            }
        }
    }
}
