//! Detaches a lock from its process, and attaches it in another one.

use std::mem;

use super::{Claim, Held, Phase, step::Step};
use crate::{
    core::{
        protocol::{Action, Holding, LockId},
        time::Ttl,
        vote::{MasterSet, Outcome, Round, Verb},
    },
    machine::{out::What, round::Role},
};

pub(crate) const DETACHED: &str = "detached";

impl Claim {
    /// Returns whether the lock has one guard, and would not stay for a time without a holder.
    pub(crate) fn can_detach(&self, step: &Step<'_>) -> bool {
        self.holding.depth == 1 && self.time_to_stay(step).is_none()
    }

    /// Ends the claim without a command, so the lock stays on the masters until its TTL has passed.
    /// Late votes heal nothing any more. Returns what the masters hold. `None` if the lock [cannot
    /// be detached](Self::can_detach).
    pub(crate) fn detach(&mut self, step: &mut Step<'_>) -> Option<Holding> {
        if !self.can_detach(step) {
            return None;
        }
        if let Phase::Held(held) = mem::replace(&mut self.phase, Phase::Released)
            && held.has_guard
        {
            self.tell(step, held.hold, What::HoldEnded(DETACHED));
        }
        Some(self.holding.clone())
    }

    /// Begins a claim on a lock that was detached, with an extension. An extension never creates a
    /// key, so the lock is held only if it was held all along. The claim may not release anything
    /// before its first round is won.
    pub(in crate::machine) fn attach(
        lock_id: LockId,
        ttl: Ttl,
        step: &mut Step<'_>,
        holding: Holding,
    ) -> Self {
        let lease = step.lease(ttl);
        let quorum = &step.roster.quorum;
        let round = Round::open(Verb::Extend, quorum, step.now.lease, Some(lease.until()));
        let newest = step.rounds.open(round, Role::Question);
        let mut claim = Self::new(lock_id, ttl, step, holding, newest);
        // Another process may have extended the lock up to the longest TTL, if there is one.
        let longest = Some(step.config.max_ttl()).filter(|longest| *longest < Ttl::MOST);
        let longest = longest.unwrap_or_default().max(ttl.duration());
        claim.keys_until = step.now.monotonic + longest;
        claim.may_keep = MasterSet::ALL;
        let extend = claim.command(Action::Extend(claim.holding.clone(), ttl));
        step.post(MasterSet::ALL, extend, claim.newest, None);
        claim
    }

    /// Returns the [outcome](Self::outcome) of the round that attaches the lock, and notes that the
    /// caller has seen it.
    pub(crate) fn take_attached(&mut self, step: &mut Step<'_>) -> Outcome {
        let outcome = self.outcome(step);
        if outcome == Outcome::Won {
            self.phase = Phase::Held(Held::default());
        }
        outcome
    }
}
