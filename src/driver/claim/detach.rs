//! Detaches locks from this process, and attaches locks that were detached.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{ClaimHandle, Level};
use crate::{
    clock,
    core::{
        config_error::ConfigError,
        error::AcquireError,
        kind::Access,
        protocol::{Holding, LockId, detached::DetachedLock},
        reason::Reason,
        time::{Renewal, Ttl},
        vote::Outcome,
    },
    driver::{context::Context, round_handle::RoundHandle},
    machine::claim::Claim,
};

impl Level {
    /// Fails if the lock cannot be detached now. A lock of a kind without owners can be detached
    /// from then on.
    pub(crate) fn check_detach(&self) -> Result<(), ConfigError> {
        let can = self
            .claim
            .unless_forked(|claim, step| claim.can_detach(step));
        match can {
            Some(false) => Err(self.undetachable()),
            _ => Ok(()),
        }
    }

    /// Lets a drop leave the lock in place, if the lock can be detached then.
    pub(crate) fn abandon_on_drop(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    fn undetachable(&self) -> ConfigError {
        ConfigError::Undetachable {
            name: self.claim.name().to_string(),
        }
    }

    /// Detaches the lock, after an extension. Its owner cannot acquire it any more: to the masters,
    /// a new attempt of the owner would take the detached lock over.
    pub(crate) fn detach(&self) -> Result<DetachedLock, ConfigError> {
        let (claim, owned) = (&self.claim, self.owned.as_ref());
        // Before the claim ends, so that no task of the owner makes an attempt in between.
        owned.iter().for_each(|owned| owned.set_detached(true));
        let Some(holding) = claim.unless_forked(Claim::detach).flatten() else {
            owned.iter().for_each(|owned| owned.set_detached(false));
            return Err(self.undetachable());
        };
        claim.has_left.store(true, Ordering::Relaxed);
        (claim.context.machine).lock(|machine| machine.drop_claim(claim.id));
        let place = claim.context.config.place;
        Ok(DetachedLock::new(place, &claim.lock_id, holding))
    }
}

impl ClaimHandle {
    /// Asks all masters to extend a lock that was detached. If a majority confirms, returns the
    /// lock. Dropping the handle releases nothing before it has a [`Level`].
    pub(crate) async fn attach(
        context: Arc<Context>,
        lock_id: LockId,
        ttl: Ttl,
        holding: Holding,
    ) -> Result<Self, AcquireError> {
        if let Err(closed) = context.check_open() {
            return Err(AcquireError::mistake(lock_id.name().clone(), closed));
        }
        let id = (context.machine)
            .with(|machine, now| machine.attach(lock_id.clone(), ttl, holding, now));
        let claim = Self::new(&context, &lock_id, id);
        let round = claim.newest_round();
        if round.decided().await == Outcome::NoMajority {
            context.in_time(round.settled()).await; // late answers may still confirm
        }
        let outcome = claim.step(Claim::take_attached);
        if outcome == Outcome::Won {
            context.observer().found_quorum();
            return Ok(claim);
        }
        let (reason, took) = not_attached(&round, outcome);
        let (asked, votes) = (Ok((lock_id, ttl)), Some(round.votes()));
        Err(AcquireError::new(asked, reason, votes, (took, 1), false))
    }

    /// Makes a lock that was attached the only level of its claim, and begins to renew it.
    pub(crate) fn into_level(self, access: Access, renewal: Renewal) -> Level {
        self.hold(renewal, Duration::ZERO);
        Level::new(self, access, None)
    }
}

/// Returns why `round` did not attach a lock, and how long that took.
fn not_attached(round: &RoundHandle, outcome: Outcome) -> (Reason, Duration) {
    let took = round.elapsed(clock::now());
    let reason = round.read(|round| match round.is_taken_away() {
        true => Reason::Gone,
        false => Reason::of(round, outcome, None, took),
    });
    (reason, took)
}
