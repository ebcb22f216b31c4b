//! The rounds in which a claim asks for its lock.

use std::{mem, time::Duration};

use super::{Claim, Held, Phase, step::Step};
use crate::{
    core::{
        kind::{Access, LockKind, Rights},
        protocol::{Action, Holding, Identity, LockId, QueueOptions},
        time::{Lease, Ttl},
        vote::{MasterSet, Outcome, Round, Verb},
    },
    machine::{RoundId, VotesTo, round::Role},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// The masters to ask at first. The others are asked later in the same round.
    pub(crate) first: MasterSet,
    /// The options for the queues of the masters. `None` if the round does not join the queues.
    pub(crate) queue: Option<QueueOptions>,
    /// `true` if the masters that are asked at first are asked to report the next change of the
    /// key.
    pub(crate) watch: bool,
}

impl Claim {
    /// Begins a claim, with a first round. `holding` must have one level, with the access that the
    /// caller wants.
    pub(in crate::machine) fn begin(
        lock_id: LockId,
        ttl: Ttl,
        step: &mut Step<'_>,
        holding: Holding,
        how: Asking,
    ) -> Self {
        let lease = step.lease(ttl);
        let (round, role) = acquisition(lock_id.kind(), lease, step, how);
        let newest = step.rounds.open(round, role);
        let mut claim = Self::new(lock_id, ttl, step, holding, newest);
        claim.phase = Phase::asking(how);
        claim.ask_first(step, how);
        claim
    }

    /// Returns a claim whose first round is `newest`, and asks all masters.
    pub(super) fn new(
        lock_id: LockId,
        ttl: Ttl,
        step: &Step<'_>,
        holding: Holding,
        newest: RoundId,
    ) -> Self {
        Self {
            began: step.now.monotonic,
            exclusive: u32::from(holding.access == Access::Exclusive),
            holding,
            keys_until: step.expiry(ttl),
            may_keep: MasterSet::NONE,
            rounds: 1,
            lease: step.lease(ttl),
            validity: Duration::ZERO,
            phase: Phase::Asking {
                unasked: MasterSet::NONE,
                queue: None,
            },
            newest,
            timer: None,
            refs: 1,
            lock_id,
            ttl,
        }
    }

    /// Asks the masters that were not asked at first, in the same round. These masters are asked
    /// for the slot that the agreed master has granted.
    pub(crate) fn ask_others(&mut self, step: &mut Step<'_>) {
        let Phase::Asking { unasked, queue } = &mut self.phase else {
            return;
        };
        let (others, queue) = (mem::take(unasked), *queue);
        self.holding.slot = step.rounds.of(self.newest).first_slot();
        self.last_until(step.expiry(self.ttl));
        self.ask(step, others, queue, false);
    }

    /// Makes a new attempt in another round. A new attempt is needed if a command that takes back
    /// the last attempt may arrive late. It may get another slot. If the lock is fenced, it offers
    /// `candidate`.
    pub(crate) fn ask_again(
        &mut self,
        step: &mut Step<'_>,
        identity: Identity,
        candidate: Option<u64>,
        how: Asking,
    ) {
        if let Phase::Asking { .. } = self.phase {
            self.holding.by = identity;
            self.holding.slot = None;
            self.next_round(step, candidate, how);
        }
    }

    /// Offers another candidate for the fencing token, in another round. The masters keep the
    /// grants of this attempt.
    pub(crate) fn raise_ballot(&mut self, step: &mut Step<'_>, candidate: u64) {
        if let Phase::Asking { queue, .. } = self.phase {
            let how = Asking {
                first: MasterSet::ALL,
                queue,
                watch: false,
            };
            self.next_round(step, Some(candidate), how);
        }
    }

    fn next_round(&mut self, step: &mut Step<'_>, candidate: Option<u64>, how: Asking) {
        if self.holding.candidate.is_some() {
            self.holding.candidate = candidate.or(self.holding.candidate);
        }
        self.phase = Phase::asking(how);
        self.rounds = self.rounds.saturating_add(1);
        self.lease = step.lease(self.ttl);
        self.last_until(step.expiry(self.ttl));
        let (round, role) = acquisition(self.lock_id.kind(), self.lease, step, how);
        self.open(round, role, step);
        self.ask_first(step, how);
    }

    /// Gives back the grants of the masters in `to` after a round that was not won, and keeps the
    /// position in the queues for `timeout`.
    pub(crate) fn yield_grants(&self, step: &mut Step<'_>, to: MasterSet, timeout: Duration) {
        let action = Action::Yield(self.holding.clone(), timeout);
        let unheard = VotesTo::default();
        (step.rounds).post(to, self.command(action), unheard, step.now);
    }

    /// Returns the [outcome](Self::outcome) of the newest round, and notes that the caller has seen
    /// it.
    pub(crate) fn take_outcome(&mut self, step: &mut Step<'_>) -> Outcome {
        let outcome = self.outcome(step);
        if outcome != Outcome::Won {
            return outcome;
        }
        let newest = step.rounds.of(self.newest);
        self.holding.slot = newest.slot();
        let rights = self.rights();
        if step.rights.to_try(rights).is_some() {
            step.rights.note(rights, newest);
        }
        if let Phase::Asking { .. } = self.phase {
            self.phase = Phase::Held(Held::default());
        }
        if self.lock_id.kind().spec().has_slots {
            let lack = newest.lack_slot();
            self.align(step, self.newest, lack);
        }
        Outcome::Won
    }

    /// Returns the outcome of the newest round. A majority counts as too late if no validity is left.
    pub(super) fn outcome(&mut self, step: &Step<'_>) -> Outcome {
        let outcome = step.rounds.of(self.newest).outcome();
        if outcome != Outcome::Won {
            return outcome;
        }
        self.validity = self.lease.remaining(step.now.lease);
        match self.lease.is_valid(step.now.lease) {
            true => Outcome::Won,
            false => Outcome::TooLate,
        }
    }

    /// Asks the masters that are asked at first. If the agreed master is asked before the others,
    /// it chooses the slot, and does not queue the caller.
    fn ask_first(&mut self, step: &mut Step<'_>, how: Asking) {
        if let Some(queue) = how.queue {
            // Masters may have the ticket.
            self.last_until(step.now.monotonic + queue.silent_waiter_timeout * 2);
        }
        let queue = how.queue.filter(|_| how.first == MasterSet::ALL);
        self.ask(step, how.first, queue, how.watch);
    }

    /// Asks the masters in `to`. With `watch`, they are also asked to report the next change of the
    /// key. If it is not known that they give the rights that the lock needs, they also try these.
    fn ask(&self, step: &mut Step<'_>, to: MasterSet, queue: Option<QueueOptions>, watch: bool) {
        let action = Action::Acquire(self.holding.clone(), self.ttl, queue);
        let mut command = self.command(action);
        (command.watch, command.tries) = (watch, step.rights.to_try(self.rights()));
        step.post(to, command, self.newest, None);
    }

    fn rights(&self) -> Rights {
        Rights::of(self.lock_id.kind(), self.holding.candidate.is_some())
    }
}

impl Phase {
    fn asking(how: Asking) -> Self {
        Self::Asking {
            unasked: MasterSet::ALL - how.first,
            queue: how.queue,
        }
    }
}

fn acquisition(kind: LockKind, lease: Lease, step: &Step<'_>, how: Asking) -> (Round, Role) {
    let (quorum, limit) = (&step.roster.quorum, Some(lease.until()));
    let mut round = Round::open(Verb::Acquire, quorum, step.now.lease, limit);
    round.queues = how.queue.is_some();
    let role = if kind.spec().has_slots {
        Role::Slots(step.id)
    } else {
        Role::Question
    };
    (round, role)
}
