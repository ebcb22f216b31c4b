//! The masters that tell a waiter of changes of a lock.

use std::sync::Arc;

use super::{live_round::LiveRound, masters::Masters};
use crate::core::{master_set::MasterSet, round::Round};

/// The masters that tell a waiter of the next change of the lock.
#[derive(Clone, Debug, Default)]
pub(crate) enum Watched {
    #[default]
    None,
    /// The only master that was asked. It has refused.
    One(usize),
    /// All masters, from this release of a lost attempt on.
    All(Arc<LiveRound>),
}

impl Watched {
    /// Returns whether a majority of masters, or the only one that matters, can tell the waiter of
    /// changes.
    pub(crate) fn is_heard(&self, masters: &Masters) -> bool {
        match self {
            Self::None => false,
            Self::One(_) => true,
            Self::All(_) => masters.reporting().is_majority_of(masters.count()),
        }
    }

    /// Returns the masters on which the lock may be free, if they make another attempt worthwhile.
    /// The lock may be free on the masters that have `changed`, and on those that have deleted the
    /// key of the lost attempt.
    pub(crate) fn free(&self, changed: MasterSet, masters: usize) -> Option<MasterSet> {
        match self {
            Self::None => None,
            Self::One(master) => changed.contains(*master).then_some(MasterSet::ALL),
            Self::All(release) => {
                let free = changed | release.read(Round::freed);
                free.is_majority_of(masters).then_some(free)
            }
        }
    }
}
