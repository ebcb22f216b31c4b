//! Extends a lock that is held, and puts its key back on masters that lack the key, or the slot
//! that was won.

use std::{mem, sync::Arc, time::Duration};

use super::{Claim, Phase, has_failed, step::Step};
use crate::{
    core::{
        kind::Access,
        protocol::Action,
        reason::Reason,
        time::{Lease, LeaseTick, Renewal, Ttl, lease::RenewalPlan},
        view::LostReason,
        vote::{MasterSet, Outcome, Round, Verb, Vote},
    },
    machine::{
        ClaimId, RoundId,
        out::{Hold, What},
        round::Role,
    },
};

impl Claim {
    /// Hands the lock out to a guard, after the lock was won or reentered. If the lock is already
    /// being renewed, the renewal ends at the later of the old and the new limit. Takes `hold` if
    /// this is the first guard.
    ///
    /// A renewal that finds no majority is not tried again within the least response timeout. That
    /// of a slow master may be long, compared with the lease.
    pub(crate) fn hold(&mut self, step: &Step<'_>, renewal: Renewal, hold: &mut Option<Arc<Hold>>) {
        let start = step.rounds.of(self.newest).start();
        // This lease has the TTL of the lock. An extension that the program asked for may have had
        // another TTL.
        let lease = Lease::new(start, self.ttl, step.config.drift);
        let least_retry = step.config.response_timeout.least();
        let Phase::Held(held) = &mut self.phase else {
            return;
        };
        if !mem::replace(&mut held.has_guard, true) {
            held.hold = hold.take();
        }
        let Some(mut plan) = RenewalPlan::new(start, lease, least_retry, renewal) else {
            return;
        };
        if let Some(before) = held.plan {
            plan = before.or_longer(plan);
        }
        if held.next_look.is_none() {
            held.next_look = plan.due(self.lease);
        }
        held.plan = Some(plan);
    }

    /// Keeps the lock on the masters for at least `time` from now. Does not shorten a time that an
    /// earlier call has set.
    pub(crate) fn stay(&mut self, step: &Step<'_>, time: Duration) {
        if let Phase::Held(held) = &mut self.phase
            && !time.is_zero()
        {
            let until = step.now.monotonic + time.min(Ttl::MOST);
            held.stays_until = held.stays_until.max(Some(until));
        }
    }

    /// Stops the renewal. Without another extension, the lock ends with its present lease.
    pub(crate) fn stop_renewing(&mut self) {
        if let Phase::Held(held) = &mut self.phase {
            (held.plan, held.next_look) = (None, None);
        }
    }

    /// Asks all masters to extend the lock and to set the depth. Returns the round, with a
    /// reference for the caller. `None` if the lock is not held.
    pub(crate) fn extend(&mut self, step: &mut Step<'_>, ttl: Ttl) -> Option<RoundId> {
        self.post_extension(step, ttl, false)?;
        Some(step.rounds.share(self.newest))
    }

    fn post_extension(&mut self, step: &mut Step<'_>, ttl: Ttl, is_renewal: bool) -> Option<()> {
        self.held_at(step)?;
        if has_failed(step.rounds.of(self.newest)) {
            self.doubt(step, self.newest);
        }
        // A majority counts only if it is complete before the old lease ends. Between that end and
        // a later majority, another client may have held the lock.
        let limit = self.lease.until().min(step.lease(ttl).until());
        let quorum = &step.roster.quorum;
        let round = Round::open(Verb::Extend, quorum, step.now.lease, Some(limit));
        let role = Role::Extension {
            claim: step.id,
            ttl,
            is_renewal,
        };
        self.open(round, role, step);
        self.last_until(step.expiry(ttl));
        let command = self.command(Action::Extend(self.holding.clone(), ttl));
        step.post(MasterSet::ALL, command, self.newest, None);
        Some(())
    }

    /// Adds a level, and extends the lock. `None` if the lock is not held. Refuses to make a reader
    /// a writer, and a lock without a token if it `must_be_fenced`. The level has a reference to
    /// the claim, and the round comes with a reference for the caller.
    pub(crate) fn reenter(
        &mut self,
        step: &mut Step<'_>,
        ttl: Ttl,
        access: Access,
        must_be_fenced: bool,
    ) -> Result<Option<RoundId>, Reason> {
        if self.held_at(step).is_none() {
            return Ok(None);
        }
        let is_upgrade = (self.holding.access, access) == (Access::Shared, Access::Exclusive);
        if is_upgrade {
            return Err(Reason::Upgrade);
        }
        if must_be_fenced && self.holding.candidate.is_none() {
            return Err(Reason::NotFenced);
        }
        self.refs += 1;
        self.add_level(access);
        Ok(self.extend(step, ttl))
    }

    /// Turns an exclusive level into a shared one. If this was the last exclusive level, extends
    /// the lock to tell the masters.
    pub(crate) fn downgrade(&mut self, step: &mut Step<'_>) {
        self.remove_level(Access::Exclusive);
        self.add_level(Access::Shared);
        if self.holding.access == Access::Shared {
            self.post_extension(step, self.ttl, false);
        }
    }

    /// Renews the lock if that is due, even if the last extension is under way: it may wait for a
    /// master that answers late, while another master has missed it. Returns the round if it was
    /// posted. `random` must be uniform over all of `u64`.
    pub(in crate::machine) fn renew(
        &mut self,
        step: &mut Step<'_>,
        random: u64,
    ) -> Option<RoundId> {
        let (lease, now) = (self.lease, step.now.lease);
        let held = self.held_at(step)?;
        let plan = held.plan.filter(|plan| !plan.is_over(now));
        let Some((plan, due)) = plan.and_then(|plan| Some((plan, plan.due(lease)?))) else {
            held.next_look = None;
            return None;
        };
        if due > now {
            held.next_look = Some(due);
            return None;
        }
        held.next_look = Some(plan.look_again(now, random));
        self.post_extension(step, self.ttl, true)?;
        step.renewals.begun();
        Some(self.newest)
    }

    /// Carries out what follows from the vote of `master` on the extension `round`. The vote has
    /// just been counted, and `before` is the outcome before it.
    pub(in crate::machine) fn note_vote(
        &mut self,
        step: &mut Step<'_>,
        round: RoundId,
        master: usize,
        before: Outcome,
    ) {
        let live = step.rounds.live(round);
        let Role::Extension { ttl, .. } = live.role else {
            return;
        };
        // The masters that lost the key.
        let (start, gone) = (live.round.start(), live.round.masters(Vote::is_gone));
        match live.round.outcome() {
            Outcome::Won if before != Outcome::Won => {
                self.confirmed(step, start, ttl);
                self.heal(step, round, gone, Heal::new(step, ttl));
            }
            Outcome::Won if gone.contains(master) => {
                self.heal(step, round, MasterSet::only(master), Heal::new(step, ttl));
            }
            Outcome::NoMajority if live.round.is_taken_away() => self.taken_away(step, start),
            Outcome::NoMajority | Outcome::TooLate if before == Outcome::Pending => {
                self.failed(step, start, round);
            }
            Outcome::NoMajority | Outcome::Pending | Outcome::TooLate | Outcome::Won => {}
        }
    }

    /// Notes that a majority of at least one set has denied an extension that began at `start`. If
    /// a majority has confirmed a later extension, says nothing about the present.
    fn taken_away(&mut self, step: &mut Step<'_>, start: LeaseTick) {
        let is_newest = start >= step.rounds.of(self.newest).start();
        if let Some(held) = self.held_at(step)
            && (is_newest || held.is_after_confirmed(start))
        {
            self.lose(step, LostReason::TakenAway);
        }
    }

    /// Notes that the extension `round`, which began at `start`, has found no majority in time. The
    /// newest round needs no note, because it shows that itself. But if each extension fails only
    /// after the next one has begun, the newest round never shows a failure.
    fn failed(&mut self, step: &mut Step<'_>, start: LeaseTick, round: RoundId) {
        if let Phase::Held(held) = &self.phase
            && self.lease.is_valid(step.now.lease)
            && held.is_after_confirmed(start)
            && !has_failed(step.rounds.of(self.newest))
        {
            self.doubt(step, round);
        }
    }

    /// Notes that an extension before the newest round has failed: `round`.
    fn doubt(&mut self, step: &mut Step<'_>, round: RoundId) {
        if let Phase::Held(held) = &mut self.phase
            && !mem::replace(&mut held.in_doubt, true)
        {
            let (remaining, votes) = (self.lease.remaining(step.now.lease), step.votes(round));
            self.tell(step, self.shown_hold(), What::InDoubt { remaining, votes });
        }
    }

    /// Notes that a majority has confirmed an extension that asked for `ttl` at `start`.
    fn confirmed(&mut self, step: &mut Step<'_>, start: LeaseTick, ttl: Ttl) {
        let Some(held) = self.held_at(step) else {
            return;
        };
        held.confirmed = held.confirmed.max(Some(start));
        let was_in_doubt = mem::take(&mut held.in_doubt);
        let lease = Lease::new(start, ttl, step.config.drift);
        let is_longer = lease > self.lease;
        if is_longer {
            self.lease = lease;
            self.validity = lease.remaining(step.now.lease);
        }
        if is_longer || was_in_doubt {
            let validity = self.lease.remaining(step.now.lease);
            let what = What::Renewed {
                validity,
                was_in_doubt,
            };
            self.tell(step, self.shown_hold(), what);
        }
    }

    /// Asks the masters in `lack` for the slot that `round` has won on the other masters. Masters
    /// that know the same holders choose the same slot for the next client.
    pub(in crate::machine) fn align(
        &mut self,
        step: &mut Step<'_>,
        round: RoundId,
        lack: MasterSet,
    ) {
        let heal = Heal::new(step, self.ttl);
        self.heal(step, round, lack, heal);
    }

    /// Puts the key back on the masters in `lack`. They lost the key, or lack the slot that was
    /// won. Does nothing if there is no such master, or if the lock is not held.
    pub(super) fn heal(
        &mut self,
        step: &mut Step<'_>,
        round: RoundId,
        lack: MasterSet,
        heal: Heal,
    ) {
        if lack.is_empty() || self.held_at(step).is_none() {
            return;
        }
        self.last_until(step.expiry(heal.ttl));
        self.may_keep = self.may_keep | lack;
        let action = Action::Heal(self.holding.clone(), heal.ttl);
        step.post(lack, self.command(action), round, Some(heal));
    }

    /// Handles a vote of `master` on a heal that is no grant. Asks a master that has refused again.
    pub(in crate::machine) fn heal_refused(
        &mut self,
        step: &mut Step<'_>,
        heal: Heal,
        round: RoundId,
        master: usize,
        may_be_done: bool,
    ) {
        if may_be_done && heal.tries > 0 {
            let tries = heal.tries - 1;
            self.heal(step, round, MasterSet::only(master), Heal { tries, ..heal });
        } else if matches!(self.phase, Phase::Held(_)) {
            let votes = step.votes(round);
            self.tell(step, self.shown_hold(), What::NotPutBack(votes));
        }
    }
}

/// A request to put the key back. Its votes are noted in the round of an extension or an
/// acquisition, which then shows the masters that have the key.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) struct Heal {
    pub(in crate::machine) claim: ClaimId,
    ttl: Ttl,
    /// How many more times a master is asked if it refuses.
    tries: u32,
}

impl Heal {
    /// A master that refuses may grant the lock a moment later. A waiter that the extension has
    /// woken may have the key, or a holder that has won another slot may have this slot. Both soon
    /// give back what they have.
    const TRIES: u32 = 5;

    pub(super) fn new(step: &Step<'_>, ttl: Ttl) -> Self {
        Self {
            claim: step.id,
            ttl,
            tries: Self::TRIES,
        }
    }
}
