//! The rounds in which a claim asks for its lock.

use std::{mem, time::Duration};

use super::{Claim, Held, Phase, Terms, step::Step};
use crate::{
    core::{
        kind::{Access, rights::Rights},
        protocol::{
            command::{Action, Holding},
            identity::{Identity, QueueOptions},
        },
        time::lease::Lease,
        vote::{MasterSet, Verb, quorum::Outcome, round::Round},
    },
    machine::round::Role,
};

impl Claim {
    /// Begins a claim. Asks all masters for the lock, or at first only those in `asked`. If the kind
    /// of lock [is watched](crate::core::kind::Kind::is_watched), masters that are asked before the
    /// others also report the next change of the key. If `queue` has options, joins the queues.
    /// `holding` must have one level, with the access that the caller wants.
    pub(in crate::machine) fn begin(
        terms: Terms,
        step: &mut Step<'_>,
        holding: Holding,
        asked: MasterSet,
        queue: Option<QueueOptions>,
        tries: Option<Rights>,
    ) -> Self {
        let lease = terms.lease(step, terms.ttl);
        let (round, role) = acquisition(&terms, lease, step, queue);
        let mut claim = Self {
            began: step.now.monotonic,
            exclusive: u32::from(holding.access == Access::Exclusive),
            holding,
            keys_until: step.expiry(terms.ttl),
            may_keep: MasterSet::NONE,
            rounds: 1,
            lease,
            validity: Duration::ZERO,
            phase: Phase::Asking {
                unasked: MasterSet::ALL - asked,
            },
            newest: step.rounds.open(round, role),
            timer: None,
            refs: 1,
            terms,
        };
        claim.note_queue(step, queue);
        let watch = asked != MasterSet::ALL && claim.terms.lock_id.kind().is_watched();
        claim.ask_first(step, asked, queue, (watch, tries));
        claim
    }

    /// Asks the masters that were not asked at first, in the same round. These masters are asked
    /// for the slot that the agreed master has granted.
    pub(crate) fn ask_others(
        &mut self,
        step: &mut Step<'_>,
        queue: Option<QueueOptions>,
        tries: Option<Rights>,
    ) {
        let Phase::Asking { unasked } = &mut self.phase else {
            return;
        };
        let others = mem::take(unasked);
        self.holding.slot = step.rounds.of(self.newest).first_slot();
        self.last_until(step.expiry(self.terms.ttl));
        self.ask(step, others, queue, (false, tries));
    }

    /// Asks again in a new round. `next` has what differs from the last round.
    pub(crate) fn ask_again(&mut self, step: &mut Step<'_>, next: NextRound) {
        let Phase::Asking { unasked } = &mut self.phase else {
            return;
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
        self.lease = self.terms.lease(step, self.terms.ttl);
        self.last_until(step.expiry(self.terms.ttl));
        let (round, role) = acquisition(&self.terms, self.lease, step, next.queue);
        self.open(round, role, step);
        self.note_queue(step, next.queue);
        self.ask_first(step, next.asked, next.queue, (next.watch, next.tries));
    }

    /// Gives back the grants of the masters in `to` after a round that was not won, and keeps the
    /// position in the queues for `timeout`.
    pub(crate) fn yield_grants(&self, step: &mut Step<'_>, to: MasterSet, timeout: Duration) {
        let action = Action::Yield(self.holding.clone(), timeout);
        step.post_unheard(to, self.command(action));
    }

    /// Returns the outcome of the newest round, and notes that the caller has seen it. A majority
    /// counts as too late if no validity is left.
    pub(crate) fn take_outcome(&mut self, step: &mut Step<'_>) -> Outcome {
        let newest = step.rounds.of(self.newest);
        let outcome = newest.outcome();
        if outcome != Outcome::Won {
            return outcome;
        }
        self.validity = self.lease.remaining(step.now.lease);
        if !self.lease.is_valid(step.now.lease) {
            return Outcome::TooLate;
        }
        self.holding.slot = newest.slot();
        if let Phase::Asking { .. } = self.phase {
            self.phase = Phase::Held(Held::default());
        }
        if self.terms.lock_id.kind().spec().has_slots {
            let lack = newest.lack_slot();
            self.align(step, self.newest, lack);
        }
        Outcome::Won
    }

    /// If the round joins the queues, notes that masters may have the ticket.
    fn note_queue(&mut self, step: &Step<'_>, queue: Option<QueueOptions>) {
        if let Some(queue) = queue {
            self.last_until(step.now.monotonic + queue.waiter_timeout * 2);
        }
    }

    /// Asks the masters in `asked`. If the agreed master is asked before the others, it chooses the
    /// slot, and does not queue the caller.
    fn ask_first(
        &self,
        step: &mut Step<'_>,
        asked: MasterSet,
        queue: Option<QueueOptions>,
        also: (bool, Option<Rights>),
    ) {
        let queue = queue.filter(|_| asked == MasterSet::ALL);
        self.ask(step, asked, queue, also);
    }

    /// Asks the masters in `to`. They may also be asked to watch the key, and to try rights.
    fn ask(
        &self,
        step: &mut Step<'_>,
        to: MasterSet,
        queue: Option<QueueOptions>,
        (watch, tries): (bool, Option<Rights>),
    ) {
        let action = Action::Acquire(self.holding.clone(), self.terms.ttl, queue);
        let mut command = self.command(action);
        (command.watch, command.tries) = (watch, tries);
        step.post(to, command, self.newest, None);
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
    /// The rights that the masters are also asked to try.
    pub(crate) tries: Option<Rights>,
    /// `true` if the masters are asked to report the next change of the key.
    pub(crate) watch: bool,
}

/// Returns a round that begins now and asks for a `lease`, and its role. If `queue` has options, the
/// round joins the queues.
fn acquisition(
    terms: &Terms,
    lease: Lease,
    step: &Step<'_>,
    queue: Option<QueueOptions>,
) -> (Round, Role) {
    let (verb, limit) = (Verb::Acquire, Some(lease.until()));
    let mut round = Round::open(verb, &terms.quorum, step.now.lease, limit);
    if queue.is_some() {
        round.mark_queued();
    }
    let role = if terms.lock_id.kind().spec().has_slots {
        Role::Slots(step.id)
    } else {
        Role::Question
    };
    (round, role)
}
