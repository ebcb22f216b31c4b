//! The rounds that acquire a lock.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use super::{ClaimHandle, owned_lock::LockOwner};
use crate::{
    clock,
    core::{
        kind::Access,
        protocol::{Holding, Identity, LockId, QueueOptions, command::MORE_BALLOTS},
        reason::Reason,
        time::{Renewal, Ttl, lease::CLOCK_WINDOW},
        vote::{MasterSet, Outcome, Refusal, Round, Vote},
        wait::history::History,
    },
    driver::{context::Context, round_handle::RoundHandle},
    machine::claim::{Claim, ask::Asking},
};

/// A request for a lock, with all that is needed to hold the lock after it was won.
#[derive(Clone)]
pub(crate) struct LockRequest {
    pub(crate) context: Arc<Context>,
    pub(crate) lock_id: LockId,
    pub(crate) access: Access,
    pub(crate) ttl: Ttl,
    /// `None` for a mutex.
    pub(crate) owner: Option<Arc<LockOwner>>,
    pub(crate) is_fenced: bool,
    pub(crate) renewal: Renewal,
    /// The time for which other clients are kept from the lock, even if its guard is dropped
    /// earlier.
    pub(crate) min_hold: Duration,
}

impl LockRequest {
    pub(crate) fn history<T>(&self, visit: impl FnOnce(&mut History) -> T) -> T {
        self.context.history(&self.lock_id, visit)
    }
}

impl ClaimHandle {
    /// Asks all masters for the lock, in a first round. If there is an `agreed` master, asks only
    /// that one at first: see [`ask_agreed`](Self::ask_agreed). If the kind of lock
    /// [is watched](crate::core::kind::LockKind::is_watched), that master also reports the next change
    /// of the key. If there are options for the `queue`, also joins the queues of the masters.
    pub(crate) fn begin(
        request: &LockRequest,
        identity: Identity,
        agreed: Option<usize>,
        queue: Option<QueueOptions>,
    ) -> Self {
        let (context, lock_id) = (&request.context, &request.lock_id);
        let holding = Holding {
            by: identity,
            depth: 1,
            access: request.access,
            slot: None,
            candidate: request.is_fenced.then(|| context.timestamps.next()),
        };
        let how = Asking {
            first: agreed.map_or(MasterSet::ALL, MasterSet::only),
            queue,
            watch: agreed.is_some() && lock_id.kind().is_watched(),
        };
        let id = (context.machine)
            .with(|machine, now| machine.begin(lock_id.clone(), request.ttl, holding, how, now));
        Self::new(context, lock_id, id)
    }

    /// Waits for the answer of the `agreed` master, unless it takes longer than a majority does. If
    /// that master puts other clients first, and `asks_anyway` is not set, returns the reason and
    /// asks no other master. Otherwise, asks the other masters in the same round. If the lock has
    /// slots, asks for the slot that the agreed master has granted, or for any slot if it has
    /// granted none.
    ///
    /// All clients that wait for a lock ask the same agreed master first, and all but one of them
    /// then ask no other master. The agreed master reports the next change of the key to the
    /// clients that it refuses.
    pub(crate) async fn ask_agreed(&self, agreed: usize, asks_anyway: bool) -> Option<Reason> {
        let round = self.newest_round();
        let reason = match self.context.in_time(round.voted(agreed)).await {
            Some(Vote::Refuse(Refusal::Held { remaining, .. })) => Some(Reason::Held { remaining }),
            Some(Vote::Refuse(Refusal::Queued { .. })) => Some(Reason::Queued),
            Some(Vote::Fail(_) | Vote::Grant | Vote::Refuse(_)) | None => None,
        };
        let reason = reason.filter(|_| !asks_anyway);
        if reason.is_none() {
            self.step(Claim::ask_others);
        } else if round.is_pending() {
            round.record();
        }
        reason
    }

    pub(crate) fn ask_again(&self, identity: Identity, how: Asking) {
        // The release raises the counters only to the last candidate. The command of an earlier
        // candidate may arrive after the release, so no earlier candidate may be larger than the
        // last one.
        let next = |last: u64| self.context.timestamps.next().max(last.saturating_add(1));
        let candidate = self.fencing_token().map(next);
        self.step(|claim, step| claim.ask_again(step, identity, candidate, how));
    }

    /// Posts a round with another candidate for the fencing token if the round can win. Returns
    /// whether a round was posted. Masters that granted the last round keep the grant meanwhile.
    ///
    /// The round can win if a majority of masters are free, and some of them have seen a larger
    /// candidate. It can also win if a majority of masters say that the time in the last candidate
    /// is wrong.
    fn raise_ballot(&self) -> bool {
        if self.fencing_token().is_none() {
            return false;
        }
        let context = &self.context;
        let round = self.newest_round();
        let timestamps = &context.timestamps;
        let candidate = if let Some(least) = round.read(Round::next_candidate) {
            self.candidate_from(least)
        } else if let Some(clock) = round.read(Round::skewed_to) {
            timestamps.correct(clock, context.observer());
            timestamps.next()
        } else {
            return false;
        };
        self.step(|claim, step| claim.raise_ballot(step, candidate));
        true
    }

    /// Returns the next candidate of a client that lost a round. All losers must offer `least` or
    /// more. If all of them offered the same candidate, each master would accept it from only one
    /// of them. So each loser offers its own time. A rival's fast clock may have raised the
    /// counters, and so `least`, above that time. In that case, each loser of a lock with slots
    /// adds a part of its time to `least`. A loser with a later time usually still offers a larger
    /// candidate.
    fn candidate_from(&self, least: u64) -> u64 {
        const APART: u64 = 4_096; // with a larger value, the counters would outrun the clocks
        let now = self.context.timestamps.next();
        let latest = now.saturating_add(CLOCK_WINDOW.as_micros() as u64);
        let is_ahead = least > now && least.saturating_add(APART) < latest;
        if is_ahead && self.kind().spec().has_slots {
            least + now % APART
        } else {
            now.max(least)
        }
    }

    /// Gives back the grants of the masters in `to` after a round that was not won. Keeps the
    /// position in the queues of these masters.
    pub(crate) fn yield_grants(&self, to: MasterSet, timeout: Duration) {
        if !to.is_empty() {
            self.step(|claim, step| claim.yield_grants(step, to, timeout));
        }
    }

    /// Waits for the outcome of the newest round. Makes further ballots for a fencing token while
    /// another ballot can win and `may_raise` returns `true` for the newest round. `will_retry`
    /// says whether the caller asks again if no ballot wins.
    pub(crate) async fn conclude(
        &self,
        will_retry: bool,
        may_raise: impl Fn(&Round) -> bool,
    ) -> Outcome {
        for _ in 0..MORE_BALLOTS {
            let outcome = self.conclude_round(will_retry).await;
            let may_raise = || self.newest_round().read(&may_raise);
            if outcome != Outcome::NoMajority || !may_raise() || !self.raise_ballot() {
                return outcome;
            }
        }
        self.conclude_round(will_retry).await
    }

    /// Waits for the outcome of the newest round. If the round has no majority, also waits for
    /// missing votes that may show that another ballot can win. A majority counts as too late if no
    /// validity is left when the waiting task runs again.
    async fn conclude_round(&self, will_retry: bool) -> Outcome {
        let mut outcome = self.outcome(false).await;
        if outcome == Outcome::Pending {
            self.give_up_disputed(&self.newest_round(), will_retry)
                .await;
            outcome = self.outcome(true).await;
        }
        match outcome {
            Outcome::NoMajority => {
                let round = self.newest_round();
                if round.read(Round::may_raise_ballot) {
                    // Waits for at most a response timeout, because the round may hold grants.
                    // Undialled masters may vote later.
                    self.context.in_time(round.settled()).await;
                }
            }
            Outcome::Won => self.context.observer().found_quorum(),
            Outcome::Pending | Outcome::TooLate => {}
        }
        outcome
    }

    /// Waits until the newest round is decided, and [takes](Claim::take_outcome) its outcome.
    /// Unless `waits_for_dials` is set, returns [`Outcome::Pending`] if that could take until a
    /// master is dialled.
    async fn outcome(&self, waits_for_dials: bool) -> Outcome {
        poll_fn(|cx| {
            self.context
                .machine
                .poll(cx, |turn, waker| match turn.poll_decided(self.id, waker) {
                    Poll::Pending if !waits_for_dials && !turn.undialled().is_empty() => {
                        Poll::Ready(Outcome::Pending)
                    }
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(_) => {
                        let now = turn.now();
                        Poll::Ready(turn.step(self.id, now, Claim::take_outcome))
                    }
                })
        })
        .await
    }

    /// Waits until `round` is decided. If the round is [disputed](Round::is_disputed) and only the
    /// votes of undialled masters are missing, waits for one more response timeout, and then gives
    /// the round up. The wait is shorter if the caller will try again and the other masters
    /// answered fast.
    ///
    /// An undialled master may take as long as the connect timeout to vote. If each of several
    /// clients waited for that vote with the grants of a minority, none would win.
    async fn give_up_disputed(&self, round: &RoundHandle, will_retry: bool) {
        const LEAST: Duration = Duration::from_millis(5);
        let is_over = |round: &Round, undialled| {
            let is_stuck = round.is_disputed() && (round.unanswered() - undialled).is_empty();
            (is_stuck || round.outcome() != Outcome::Pending).then_some(())
        };
        round.until(is_over).await;
        if round.is_pending() {
            let now = clock::now();
            let mut patience = self.context.response_timeout();
            if will_retry {
                patience = patience.min(LEAST.max(round.elapsed(now) * 2));
            }
            let decided = self.context.timers.until(now + patience, round.decided());
            decided.await;
            round.give_up();
        }
    }
}
