//! The rounds of a claim: those that ask for the lock, and those that extend the lock or put its
//! keys back.

use std::{mem, time::Duration};

use super::{ClaimState, ClaimStep, Held, Notice, Phase, Terms, has_failed};
use crate::core::{
    error::AcquireError,
    kind::Access,
    protocol::{
        command::{Action, Command, Holding},
        identity::{Identity, QueueOptions},
    },
    time::{
        lease::{Lease, Ttl},
        renewal::{Renewal, RenewalPlan},
        tick::LeaseTick,
    },
    view::lock_state::LostReason,
    vote::{MasterSet, Verb, Vote, quorum::Outcome, round::Round},
};

/// Asking for the lock.
impl ClaimState {
    /// Begins a claim. The newest round of `step` is the first [`acquisition`] of the claim. Asks
    /// all masters for the lock, or at first only those in `asked`. If the kind of lock [is
    /// watched](crate::core::kind::Kind::is_watched), masters that are asked before the others also
    /// report the next change of the key. If `queue` has options, joins the queues. `holding` must
    /// have one level, with the access that the caller wants.
    pub(crate) fn begin(
        step: &ClaimStep<'_>,
        holding: Holding,
        asked: MasterSet,
        queue: Option<QueueOptions>,
    ) -> (Self, Command) {
        let unasked = MasterSet::ALL - asked;
        let mut claim = Self {
            exclusive: u32::from(holding.access == Access::Exclusive),
            holding,
            keys_until: step.expiry(step.terms.ttl),
            may_keep: MasterSet::NONE,
            rounds: 1,
            lease: step.lease(step.terms.ttl),
            validity: Duration::ZERO,
            phase: Phase::Asking { unasked },
        };
        claim.note_queue(step, queue);
        let mut command = claim.ask_first(step, asked, queue);
        command.watch = !unasked.is_empty() && command.lock_id.kind().is_watched();
        (claim, command)
    }

    /// Asks the masters that were not asked at first, in the same round. These masters are asked
    /// for the slot that the agreed master has granted.
    pub(crate) fn ask_others(
        &mut self,
        step: &ClaimStep<'_>,
        queue: Option<QueueOptions>,
    ) -> Option<(MasterSet, Command)> {
        let Phase::Asking { unasked } = &mut self.phase else {
            return None;
        };
        let others = mem::take(unasked);
        self.holding.slot = step.newest.first_slot();
        self.last_until(step.expiry(step.terms.ttl));
        Some((others, self.ask(step, queue)))
    }

    /// Asks again in a new round. `next` has what differs from the last round.
    pub(crate) fn ask_again(
        &mut self,
        step: &mut ClaimStep<'_>,
        next: NextRound,
    ) -> Option<Command> {
        let Phase::Asking { unasked } = &mut self.phase else {
            return None;
        };
        *unasked = MasterSet::ALL - next.asked;
        self.rounds = self.rounds.saturating_add(1);
        if let Some(by) = next.identity {
            self.holding.by = by;
            // Only a new attempt may ask for another slot: commands of the last attempt may arrive
            // late.
            self.holding.slot = None;
        }
        if let (Some(ballot), Some(candidate)) = (&mut self.holding.ballot, next.candidate) {
            ballot.candidate = candidate;
        }
        self.lease = step.lease(step.terms.ttl);
        self.last_until(step.expiry(step.terms.ttl));
        self.open(acquisition(step.terms, step.now, next.queue), step);
        self.note_queue(step, next.queue);
        let mut command = self.ask_first(step, next.asked, next.queue);
        command.watch = next.watch;
        Some(command)
    }

    /// Gives back the grants of a round that was not won, and keeps the position in the queues for
    /// `timeout`.
    pub(crate) fn yield_grants(&self, terms: &Terms, timeout: Duration) -> Command {
        Command::new(&terms.lock_id, Action::Yield(self.holding.clone(), timeout))
    }

    /// Returns the outcome of the newest round, and notes that the caller has seen it. A majority
    /// counts as too late if no validity is left.
    pub(crate) fn take_outcome(&mut self, step: &mut ClaimStep<'_>) -> Outcome {
        let outcome = step.newest.outcome();
        if outcome != Outcome::Won {
            return outcome;
        }
        self.validity = self.lease.remaining(step.now);
        if !self.lease.is_valid(step.now) {
            return Outcome::TooLate;
        }
        self.holding.slot = step.newest.slot();
        if let Phase::Asking { .. } = self.phase {
            self.phase = Phase::Held(Held::default());
        }
        Outcome::Won
    }

    /// If the round joins the queues, notes that masters may have the ticket.
    fn note_queue(&mut self, step: &ClaimStep<'_>, queue: Option<QueueOptions>) {
        if let Some(queue) = queue {
            self.last_until(step.monotonic + queue.waiter_timeout * 2);
        }
    }

    /// Asks the masters in `asked`. If the agreed master is asked before the others, it chooses the
    /// slot, and does not queue the caller.
    fn ask_first(
        &self,
        step: &ClaimStep<'_>,
        asked: MasterSet,
        queue: Option<QueueOptions>,
    ) -> Command {
        self.ask(step, queue.filter(|_| asked == MasterSet::ALL))
    }

    fn ask(&self, step: &ClaimStep<'_>, queue: Option<QueueOptions>) -> Command {
        let Terms { lock_id, ttl, .. } = step.terms;
        Command::new(lock_id, Action::Acquire(self.holding.clone(), *ttl, queue))
    }
}

/// Extending a lock that is held.
impl ClaimState {
    /// Hands the lock out to a guard, after the lock was won or reentered. If the lock is already
    /// being renewed, the renewal ends at the later of the old and the new limit. Returns when to
    /// call [`renew`](Self::renew). `None` if the renewer knows a time already, or if the lock is
    /// not renewed.
    ///
    /// A renewal that finds no majority is not tried again within `least_retry`. With `spread`, the
    /// first renewal comes earlier by a random time.
    pub(crate) fn hold(
        &mut self,
        step: &ClaimStep<'_>,
        renewal: Renewal,
        least_retry: Duration,
        spread: Option<u64>,
    ) -> Option<LeaseTick> {
        let start = step.newest.start();
        // This lease has the TTL of the lock. An extension that the program asked for may have had
        // another TTL.
        let lease = Lease::new(start, step.terms.ttl, step.terms.drift);
        let Phase::Held(held) = &mut self.phase else {
            return None;
        };
        let mut plan = RenewalPlan::new(start, lease, least_retry, renewal)?;
        if let Some(before) = held.plan {
            plan = before.or_longer(plan);
        }
        if held.next_look.is_some() {
            held.plan = Some(plan);
            return None;
        }
        plan = spread.map_or(plan, |random| plan.spread(random));
        held.plan = Some(plan);
        held.next_look = plan.due(self.lease);
        held.next_look
    }

    /// Keeps the lock on the masters for at least `time` from now. Does not shorten a time that an
    /// earlier call has set.
    pub(crate) fn stay(&mut self, step: &ClaimStep<'_>, time: Duration) {
        if let Phase::Held(held) = &mut self.phase
            && !time.is_zero()
        {
            let until = step.monotonic + time.min(Ttl::MOST);
            held.stays_until = held.stays_until.max(Some(until));
        }
    }

    /// Stops the renewal. Without another extension, the lock ends with its present lease.
    pub(crate) fn stop_renewing(&mut self) {
        if let Phase::Held(held) = &mut self.phase {
            (held.plan, held.next_look) = (None, None);
        }
    }

    /// Asks all masters to extend the lock and to set the depth. `None` if the lock is not held.
    pub(crate) fn extend(&mut self, step: &mut ClaimStep<'_>, ttl: Ttl) -> Option<Command> {
        self.held_at(step)?;
        if has_failed(step.newest) {
            self.doubt(step);
        }
        // A majority counts only if it is complete before the old lease ends. Between that end and
        // a later majority, another client may have held the lock.
        let limit = self.lease.until().min(step.lease(ttl).until());
        let quorum = &step.terms.quorum;
        self.open(
            Round::open(Verb::Extend, quorum, step.now, Some(limit)),
            step,
        );
        self.last_until(step.expiry(ttl));
        let lock_id = &step.terms.lock_id;
        Some(Command::new(
            lock_id,
            Action::Extend(self.holding.clone(), ttl),
        ))
    }

    /// Adds a level, and extends the lock. `None` if the lock is not held. Refuses to make a reader
    /// a writer.
    pub(crate) fn reenter(
        &mut self,
        step: &mut ClaimStep<'_>,
        ttl: Ttl,
        access: Access,
    ) -> Result<Option<Command>, AcquireError> {
        if self.held_at(step).is_none() {
            return Ok(None);
        }
        let is_upgrade = (self.holding.access, access) == (Access::Shared, Access::Exclusive);
        if is_upgrade {
            let name = step.terms.lock_id.name().clone();
            return Err(AcquireError::Upgrade { name });
        }
        self.add_level(access);
        Ok(self.extend(step, ttl))
    }

    /// Turns an exclusive level into a shared one. If this was the last exclusive level, extends
    /// the lock to tell the masters. `None` if the masters need not be told.
    pub(crate) fn downgrade(&mut self, step: &mut ClaimStep<'_>) -> Option<Command> {
        self.remove_level(Access::Exclusive);
        self.add_level(Access::Shared);
        match self.holding.access {
            Access::Exclusive => None,
            Access::Shared => self.extend(step, step.terms.ttl),
        }
    }

    /// Renews the lock if that is due, even if the last extension is under way: it may wait for a
    /// master that answers late, while another master has missed it. Returns when to call this
    /// method again, or `None` if no further call is needed. After a reentry, calls may be needed
    /// again. `random` must be uniform over all of `u64`.
    pub(crate) fn renew(
        &mut self,
        step: &mut ClaimStep<'_>,
        random: u64,
    ) -> (Option<LeaseTick>, Option<Command>) {
        let lease = self.lease;
        let Some(held) = self.held_at(step) else {
            return (None, None);
        };
        let plan = held.plan.filter(|plan| !plan.is_over(step.now));
        let Some((plan, due)) = plan.and_then(|plan| Some((plan, plan.due(lease)?))) else {
            held.next_look = None;
            return (None, None);
        };
        let is_due = due <= step.now;
        let next_look = if is_due {
            plan.look_again(step.now, random)
        } else {
            due
        };
        held.next_look = Some(next_look);
        if !is_due {
            return (Some(next_look), None);
        }
        held.plan = Some(plan.after_renewal());
        (Some(next_look), self.extend(step, step.terms.ttl))
    }

    /// Carries out the consequence of a vote on an extension that asked for `ttl` at `start`. If
    /// masters have lost the key, returns these masters and the command that puts the key back.
    pub(crate) fn apply(
        &mut self,
        step: &mut ClaimStep<'_>,
        effect: Effect,
        start: LeaseTick,
        ttl: Ttl,
    ) -> Option<(MasterSet, Command)> {
        match effect {
            Effect::Disowned => {
                self.disowned(step, start);
                None
            }
            Effect::Failed => {
                self.failed(step, start);
                None
            }
            Effect::Heal(gone) => self.heal(step, gone, ttl),
            Effect::Renewed(gone) => {
                self.confirmed(step, start, ttl);
                self.heal(step, gone, ttl)
            }
        }
    }

    /// Notes that a majority of at least one set has denied an extension that began at `start`. If
    /// a majority has confirmed a later extension, says nothing about the present.
    fn disowned(&mut self, step: &mut ClaimStep<'_>, start: LeaseTick) {
        let is_newest = start >= step.newest.start();
        if let Some(held) = self.held_at(step)
            && (is_newest || held.is_after_confirmed(start))
        {
            self.lose(step, LostReason::Disowned);
        }
    }

    /// Notes that an extension that began at `start` has found no majority in time. The newest
    /// round needs no note, because it shows that itself. But if each extension fails only after
    /// the next one has begun, the newest round never shows a failure.
    fn failed(&mut self, step: &mut ClaimStep<'_>, start: LeaseTick) {
        if let Phase::Held(held) = &self.phase
            && self.lease.is_valid(step.now)
            && held.is_after_confirmed(start)
            && !has_failed(step.newest)
        {
            self.doubt(step);
        }
    }

    /// Notes that an extension before the newest round has failed.
    fn doubt(&mut self, step: &mut ClaimStep<'_>) {
        if let Phase::Held(held) = &mut self.phase
            && !mem::replace(&mut held.in_doubt, true)
        {
            let remaining = self.lease.remaining(step.now);
            step.notice = Some(Notice::InDoubt { remaining });
        }
    }

    /// Notes that a majority has confirmed an extension that asked for `ttl` at `start`.
    pub(crate) fn confirmed(&mut self, step: &mut ClaimStep<'_>, start: LeaseTick, ttl: Ttl) {
        let Some(held) = self.held_at(step) else {
            return;
        };
        held.confirmed = held.confirmed.max(Some(start));
        let was_in_doubt = mem::take(&mut held.in_doubt);
        let lease = Lease::new(start, ttl, step.terms.drift);
        let is_longer = lease > self.lease;
        if is_longer {
            self.lease = lease;
            self.validity = lease.remaining(step.now);
        }
        if is_longer || was_in_doubt {
            step.notice = Some(Notice::Renewed {
                validity: self.lease.remaining(step.now),
                was_in_doubt,
            });
        }
    }

    /// Puts the key back on the masters in `gone`. They lost the key, or lack the slot that was
    /// won. `None` if there is no such master, or if the lock is not held.
    pub(crate) fn heal(
        &mut self,
        step: &mut ClaimStep<'_>,
        gone: MasterSet,
        ttl: Ttl,
    ) -> Option<(MasterSet, Command)> {
        if gone.is_empty() || self.held_at(step).is_none() {
            return None;
        }
        self.last_until(step.expiry(ttl));
        self.may_keep |= gone;
        let lock_id = &step.terms.lock_id;
        let command = Command::new(lock_id, Action::Heal(self.holding.clone(), ttl));
        Some((gone, command))
    }
}

/// The differences between the next round of a claim and the last one.
#[derive(Debug)]
pub(crate) struct NextRound {
    /// The masters to ask at first. The others are asked later in the same round.
    pub(crate) asked: MasterSet,
    /// The identity of a new attempt. A new attempt is needed if a command that takes back the last
    /// attempt may arrive late. `None` keeps the identity.
    pub(crate) identity: Option<Identity>,
    /// The options for the queues of the masters. `None` if the round does not join the queues.
    pub(crate) queue: Option<QueueOptions>,
    /// The number to offer for a fencing token. `None` keeps the last one.
    pub(crate) candidate: Option<u64>,
    /// `true` if the masters are asked to report the next change of the key.
    pub(crate) watch: bool,
}

/// A consequence of a vote on an extension. The driver carries it out with
/// [`apply`](ClaimState::apply) after it has unlocked the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A majority of at least one set says that the caller does not hold the lock.
    Disowned,
    /// This vote has decided that there is no majority in time.
    Failed,
    /// A majority had confirmed the extension before this vote. The masters in this set lost the
    /// key.
    Heal(MasterSet),
    /// This vote completes the majority that confirms the extension. The masters in this set lost
    /// the key.
    Renewed(MasterSet),
}

impl Effect {
    /// Returns the consequence of the vote of `master`, if it has one. The vote has just been
    /// counted in `round`. `before` is the outcome that the round had before the vote.
    pub(crate) fn of_vote(round: &Round, before: Outcome, master: usize) -> Option<Self> {
        let gone = round.masters(Vote::is_gone);
        match round.outcome() {
            Outcome::Won if before != Outcome::Won => Some(Self::Renewed(gone)),
            Outcome::Won if gone.contains(master) => Some(Self::Heal(MasterSet::only(master))),
            Outcome::NoMajority if round.is_disowned() => Some(Self::Disowned),
            Outcome::NoMajority | Outcome::TooLate if before == Outcome::Pending => {
                Some(Self::Failed)
            }
            Outcome::Won | Outcome::NoMajority | Outcome::Pending | Outcome::TooLate => None,
        }
    }
}

/// Returns a round that begins at `now` and asks for a lock. If `queue` has options, the round
/// joins the queues.
pub(crate) fn acquisition(terms: &Terms, now: LeaseTick, queue: Option<QueueOptions>) -> Round {
    let limit = Lease::new(now, terms.ttl, terms.drift).until();
    let mut round = Round::open(Verb::Acquire, &terms.quorum, now, Some(limit));
    if queue.is_some() {
        round.mark_queued();
    }
    round
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::vote::{Failure, Refusal, quorum::Quorum};

    /// Counts one vote for each letter, and returns the effects. `g` is granted, `n` is no key, `h`
    /// is held by another, and `f` is failed.
    fn effects(letters: &str) -> Vec<Option<Effect>> {
        let start = LeaseTick::some();
        let mut round = Round::open(Verb::Extend, &Quorum::of(letters.len()), start, None);
        let votes = letters.chars().enumerate();
        let effect = |(master, letter)| {
            let before = round.outcome();
            let vote = match letter {
                'g' => Vote::Grant,
                'n' => Vote::Refuse(Refusal::Gone),
                'h' => Vote::Refuse(Refusal::held(None)),
                _ => Vote::Fail(Failure::timed_out(Duration::ZERO)),
            };
            round.count_vote(master, vote, start);
            Effect::of_vote(&round, before, master)
        };
        votes.map(effect).collect()
    }

    #[test]
    fn effect_table() {
        let (disowned, failed) = (Some(Effect::Disowned), Some(Effect::Failed));
        let only = MasterSet::only;
        let heal = |gone| Some(Effect::Heal(gone));
        let renewed = |gone| Some(Effect::Renewed(gone));
        for (letters, expected) in [
            ("gg", vec![None, renewed(MasterSet::NONE)]),
            ("ngg", vec![None, None, renewed(only(0))]),
            ("ggn", vec![None, renewed(MasterSet::NONE), heal(only(2))]),
            ("ggh", vec![None, renewed(MasterSet::NONE), None]),
            ("nhg", vec![None, disowned, disowned]),
            ("nfg", vec![None, failed, None]),
            ("ffg", vec![None, failed, None]),
            ("fhn", vec![None, failed, disowned]),
        ] {
            assert_eq!(effects(letters), expected, "{letters}");
        }
    }
}
