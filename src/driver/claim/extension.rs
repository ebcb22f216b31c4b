//! Extends a lock that was won.

use std::{sync::Arc, time::Duration};

use super::{ClaimHandle, Level, ask::LockRequest, owned_lock::OwnedLock};
use crate::{
    core::{
        error::{Asked, ExtendError, QuorumError},
        reason::Reason,
        vote::{Outcome, Round, Verb, Votes},
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
            Some(None) => Ok(self.ensure_valid().map(|()| None)?),
            None => {
                let votes = self.context.closed_votes(Verb::Extend);
                Err(self.too_few(votes, Asked::Extend(Duration::ZERO)))
            }
        }
    }

    /// Adds a level, and posts an extension that sets the new depth on the masters. Returns `None`
    /// if the lock is no longer held.
    pub(crate) fn reenter(
        &self,
        owned: Arc<OwnedLock>,
        request: &LockRequest,
    ) -> Result<Option<(Level, RoundHandle)>, Reason> {
        let LockRequest {
            access,
            ttl,
            is_fenced,
            ..
        } = *request;
        let posted = self.step(|claim, step| claim.reenter(step, ttl, access, is_fenced))?;
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

    pub(crate) async fn confirm_extension(&self, round: &RoundHandle) -> Result<(), ExtendError> {
        let mut outcome = round.decided().await;
        if outcome == Outcome::NoMajority {
            // The missing votes decide whether the lock is lost or in doubt. Meanwhile, late
            // answers may confirm the extension.
            self.context.in_time(round.settled()).await;
            outcome = round.read(Round::outcome);
        }
        self.ensure_valid()?;
        let asked = match outcome {
            Outcome::Won => return Ok(()),
            Outcome::TooLate => Asked::ExtendTooLate,
            Outcome::NoMajority | Outcome::Pending => Asked::Extend(self.remaining()),
        };
        Err(self.too_few(round.votes(), asked))
    }

    fn too_few(&self, votes: Votes, asked: Asked) -> ExtendError {
        QuorumError::new(self.name(), votes, asked).into()
    }
}
