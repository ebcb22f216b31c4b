//! The rounds that ask for a lock.

use std::{mem, time::Duration};

use super::{ClaimState, ClaimStep, Held, Phase, Terms, Traces, levels::Levels};
use crate::core::{
    kind::Access,
    protocol::{
        command::{Action, Ballot, Command},
        identity::{Identity, QueueOptions},
    },
    time::lease::{Lease, LeaseTime},
    vote::{master_set::MasterSet, quorum::Outcome, round::Round, verb::Verb},
};

/// The differences between the next round of a claim and the last one.
#[derive(Debug)]
pub(crate) struct NextRound {
    /// The masters to ask at first. The others are asked in the same round.
    pub(crate) asked: MasterSet,
    /// The identity of a new attempt. A new attempt is needed if a command that takes back the last
    /// attempt may arrive late. `None` keeps the identity.
    pub(crate) identity: Option<Identity>,
    /// The options for the queues of the masters. `None` if the round does not join the queues.
    pub(crate) queue: Option<QueueOptions>,
    /// The number to offer for a fencing token, or `None` for a new timestamp.
    pub(crate) candidate: Option<u64>,
    /// `true` if the masters are asked to report the next change of the key.
    pub(crate) watch: bool,
}

impl ClaimState {
    /// Begins a claim with the [`acquisition`] that the step sees. Asks all masters for the lock,
    /// or at first only those in `asked`. These also report the next change of the key. With
    /// options for the `queue`, joins the queues.
    pub(crate) fn begin(
        step: &ClaimStep<'_>,
        by: Identity,
        access: Access,
        ballot: Option<Ballot>,
        asked: MasterSet,
        queue: Option<QueueOptions>,
    ) -> (Self, Command) {
        let unasked = MasterSet::ALL - asked;
        let mut claim = Self {
            traces: Traces {
                by,
                ballot,
                slot: None,
                until: step.expiry(step.terms.ttl),
                may_keep: MasterSet::NONE,
            },
            rounds: 1,
            levels: Levels::one(access),
            lease: step.lease(step.terms.ttl),
            validity: Duration::ZERO,
            phase: Phase::Asking { unasked },
        };
        claim.note_queue(step, queue);
        let mut command = claim.ask_first(step, asked, queue);
        command.watch = !unasked.is_empty() && command.lock_id.kind().is_watched();
        (claim, command)
    }

    /// Asks the masters that were not asked at first, in the same round. They are asked for the
    /// slot that the agreed master has granted.
    pub(crate) fn ask_others(
        &mut self,
        step: &ClaimStep<'_>,
        queue: Option<QueueOptions>,
    ) -> Option<(MasterSet, Command)> {
        let Phase::Asking { unasked } = &mut self.phase else {
            return None;
        };
        let others = mem::take(unasked);
        self.traces.slot = step.newest.first_slot();
        self.traces.last_until(step.expiry(step.terms.ttl));
        Some((others, self.ask(step, queue)))
    }

    /// Asks again, from the same position in the queues of the masters or with another candidate.
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
            self.traces.by = by;
            // Only now: an attempt asks for one slot in its life, because its commands may be late.
            self.traces.slot = None;
        }
        if let (Some(ballot), Some(candidate)) = (&mut self.traces.ballot, next.candidate) {
            ballot.candidate = candidate;
        }
        self.lease = step.lease(step.terms.ttl);
        self.traces.last_until(step.expiry(step.terms.ttl));
        self.open(acquisition(step.terms, step.now, next.queue), step);
        self.note_queue(step, next.queue);
        let mut command = self.ask_first(step, next.asked, next.queue);
        command.watch = next.watch;
        Some(command)
    }

    /// Gives back the grants of a round that was not won, and keeps the position in the queues for
    /// `timeout`.
    pub(crate) fn yield_grants(&self, terms: &Terms, timeout: Duration) -> Command {
        Command::new(&terms.lock_id, Action::Yield(self.holding(), timeout))
    }

    /// Returns the outcome of the newest round, now that the caller sees it. A majority counts as
    /// too late if no validity is left.
    pub(crate) fn take_outcome(&mut self, step: &mut ClaimStep<'_>) -> Outcome {
        let outcome = step.newest.outcome();
        if outcome != Outcome::Won {
            return outcome;
        }
        self.validity = self.lease.remaining(step.now);
        if !self.lease.is_valid(step.now) {
            return Outcome::TooLate;
        }
        self.traces.slot = step.newest.slot();
        if let Phase::Asking { .. } = self.phase {
            self.phase = Phase::Held(Held::default());
        }
        Outcome::Won
    }

    /// Notes that masters may have the ticket, if the round joins the queues.
    fn note_queue(&mut self, step: &ClaimStep<'_>, queue: Option<QueueOptions>) {
        if let Some(queue) = queue {
            let position = step.monotonic.checked_add(queue.waiter_timeout * 2);
            self.traces.last_until(position.unwrap_or(step.monotonic));
        }
    }

    /// Asks the masters in `asked`. The agreed master, asked before the others, chooses the slot.
    /// It does not queue the caller.
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
        Command::new(lock_id, Action::Acquire(self.holding(), *ttl, queue))
    }
}

/// Returns a round that asks for a lock from `now` on, and may join the queues.
pub(crate) fn acquisition(terms: &Terms, now: LeaseTime, queue: Option<QueueOptions>) -> Round {
    let limit = Lease::new(now, terms.ttl, terms.drift).until();
    let mut round = Round::open(Verb::Acquire, &terms.quorum, now, Some(limit));
    if queue.is_some() {
        round.mark_queued();
    }
    round
}
