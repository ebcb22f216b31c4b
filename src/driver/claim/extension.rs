//! Extends a lock that was won.

use std::{sync::Arc, time::Duration};

use super::{ClaimHandle, Level, ask::LockRequest, owned_lock::OwnedLock};
use crate::{
    core::{
        error::{AcquireError, ExtendError},
        view::{LockState, LostReason},
        vote::{Verb, quorum::Outcome, round::Round},
    },
    driver::round_handle::RoundHandle,
};

impl ClaimHandle {
    /// Posts an extension, which takes effect even if no one waits for it. Returns `None` if there
    /// is nothing to wait for.
    pub(crate) fn extend(&self, ttl: Duration) -> Result<Option<RoundHandle>, ExtendError> {
        let ttl = self.context.config.ttl(ttl)?;
        match self.unless_forked(|claim, step| claim.extend(step, ttl)) {
            Some(Some(round)) => Ok(Some(RoundHandle::new(&self.context.machine, round))),
            Some(None) => self.ensure_held().map(|()| None),
            None => Err(ExtendError::NoQuorum {
                name: self.name().clone(),
                remaining: Duration::ZERO,
                votes: self.context.closed_votes(Verb::Extend),
            }),
        }
    }

    /// Adds a level, and posts an extension that sets the new depth on the masters. Returns `None`
    /// if the lock is no longer held.
    pub(crate) fn reenter(
        &self,
        owned: Arc<OwnedLock>,
        request: &LockRequest,
    ) -> Result<Option<(Level, RoundHandle)>, AcquireError> {
        let LockRequest { access, ttl, .. } = *request;
        let posted = self.step(|claim, step| claim.reenter(step, ttl, access))?;
        Ok(posted.map(|round| {
            let round = RoundHandle::new(&self.context.machine, round);
            let claim = Self::new(&self.context, &self.lock_id, self.id);
            let level = Level::new(claim, access, Some(owned));
            (level, round)
        }))
    }

    /// Lets other clients share a level that has excluded them. If no other level excludes them,
    /// posts an extension that tells the masters to share the lock.
    pub(super) fn downgrade(&self) {
        self.unless_forked(|claim, step| claim.downgrade(step));
    }

    /// Waits for the outcome of an extension.
    pub(crate) async fn confirm_extension(&self, round: &RoundHandle) -> Result<(), ExtendError> {
        let name = || self.name().clone();
        let mut outcome = round.decided().await;
        if outcome == Outcome::NoMajority {
            // The missing votes decide whether the lock is lost or in doubt. Meanwhile, late
            // answers may confirm the extension.
            self.context.in_time(round.settled()).await;
            outcome = round.read(Round::outcome);
        }
        match outcome {
            Outcome::Won => self.ensure_held(),
            Outcome::TooLate => Err(ExtendError::TooSlow {
                name: name(),
                votes: round.votes(),
            }),
            Outcome::NoMajority | Outcome::Pending => {
                if round.read(Round::is_disowned) && matches!(self.lock_state(), LockState::Lost(_))
                {
                    return Err(ExtendError::Lost {
                        name: name(),
                        votes: round.votes(),
                    });
                }
                Err(ExtendError::NoQuorum {
                    name: name(),
                    remaining: self.remaining(),
                    votes: round.votes(),
                })
            }
        }
    }

    fn ensure_held(&self) -> Result<(), ExtendError> {
        let name = || self.name().clone();
        match self.lock_state() {
            LockState::Held | LockState::InDoubt => Ok(()),
            LockState::Lost(LostReason::Disowned) => Err(ExtendError::Lost {
                name: name(),
                votes: self.newest_votes(),
            }),
            LockState::Lost(LostReason::Expired | LostReason::RenewalLimit | LostReason::Ended) => {
                let since = self.step(|claim, step| step.now.lease.since(claim.lease.until()));
                Err(ExtendError::Expired {
                    name: name(),
                    since,
                })
            }
        }
    }
}
