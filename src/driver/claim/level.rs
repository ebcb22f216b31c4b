//! One level of a claim, for one guard. A level ends with a release. If the lock must stay for a
//! while after its guards are gone, the last level ends with an extension instead.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::{ClaimHandle, owned_lock::OwnedLock};
use crate::{
    core::{
        error::ReleaseError,
        kind::Access,
        vote::{Verb, quorum::Outcome, round::Round},
    },
    driver::round_handle::RoundHandle,
};

/// One level of a claim, for one guard. Dropping this value removes the level. A future that is
/// dropped before it completes also drops its `Level`. So every round that leads to no guard is
/// followed by a release.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub(crate) struct Level {
    pub(crate) claim: ClaimHandle,
    /// Keeps alive the entry through which other tasks of the owner find the claim.
    _owned: Option<Arc<OwnedLock>>,
    /// The round of the command that removes the level. `None` after a fork.
    release: OnceLock<Option<RoundHandle>>,
    /// `true` if other clients may share the lock with this level.
    is_shared: AtomicBool,
}

impl Level {
    /// Creates the first level of a claim, or a level that [`ClaimHandle::reenter`] has counted.
    pub(crate) fn new(claim: ClaimHandle, access: Access, owned: Option<Arc<OwnedLock>>) -> Self {
        Self {
            claim,
            _owned: owned,
            release: OnceLock::new(),
            is_shared: AtomicBool::new(access == Access::Shared),
        }
    }

    /// Removes the level, unless it was removed before. Returns the round of the command that
    /// removes the level, or `None` after a fork. With `watch`, the release of the last level also
    /// watches the key.
    pub(crate) fn end(&self, watch: bool) -> Option<&RoundHandle> {
        let leave = || self.claim.leave(self.access(), watch);
        self.release.get_or_init(leave).as_ref()
    }

    /// Returns whether this level shares the lock with others or excludes them.
    pub(crate) fn access(&self) -> Access {
        if self.is_shared.load(Ordering::Relaxed) {
            Access::Shared
        } else {
            Access::Exclusive
        }
    }

    /// Lets other clients share the lock with this level, unless the level is shared already.
    pub(crate) fn downgrade(&self) {
        if !self.is_shared.swap(true, Ordering::Relaxed) {
            self.claim.downgrade();
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl ClaimHandle {
    /// Removes one level. See [`leave`](crate::machine::claim::Claim::leave).
    ///
    /// After a fork, does nothing: the lock belongs to the parent.
    fn leave(&self, access: Access, watch: bool) -> Option<RoundHandle> {
        let context = &self.context;
        if context.is_forked() {
            return None;
        }
        let are_told = !context.config.waiters_poll;
        let round = context.machine.with(|machine, now| {
            let (round, frees) =
                machine.step(self.id, now, |claim, step| claim.leave(step, access, watch));
            if frees && are_told {
                machine.note_release(&self.lock_id, now);
            }
            round
        });
        Some(RoundHandle::new(&context.machine, round))
    }

    /// Waits until a majority has confirmed `release`, which removes a level.
    pub(crate) async fn confirm_release(
        &self,
        release: Option<&RoundHandle>,
    ) -> Result<(), ReleaseError> {
        let name = self.name().clone();
        let Some(release) = release else {
            let votes = self.context.closed_votes(Verb::Release);
            return Err(ReleaseError::NoQuorum { name, votes });
        };
        if release.decided().await == Outcome::Won {
            return Ok(());
        }
        self.context.in_time(release.settled()).await; // so that the error shows every vote
        let votes = release.votes();
        Err(if release.read(Round::verb) == Verb::Extend {
            ReleaseError::NotLeft { name, votes }
        } else {
            ReleaseError::NoQuorum { name, votes }
        })
    }
}
