//! The rounds that acquire a lock.

use std::{
    mem,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    Claim, LockRequest, State,
    announcement::Locked,
    expiry_of,
    live_round::{IgnoreVotes, LiveRound},
    owned_lock::OwnedLock,
};
use crate::{
    core::{
        kind::{
            command::{Command, Verb},
            identity::{Identity, QueueOptions},
        },
        time::lease::Lease,
        vote::{
            master_set::MasterSet,
            quorum::{Refusal, Vote},
            round::{Outcome, Round},
        },
    },
    driver::{
        context::Context, masters::Masters, select::first_of, time::clock, waiting::signal::Signal,
    },
};

/// The differences between the next round of a claim and the last one.
#[derive(Debug)]
pub(crate) struct NextRound {
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

impl Claim {
    /// Asks all masters for the lock, in a first round. If there is a `first` master, asks only
    /// that one at first: see [`refused_by`](Self::refused_by).
    pub(crate) fn begin(
        context: &Arc<Context>,
        request: &LockRequest,
        identity: Identity,
        owned: Option<Arc<OwnedLock<Self>>>,
        first: Option<usize>,
    ) -> Arc<Self> {
        let masters = &context.masters;
        let began = clock::monotonic();
        let start = clock::now_at(began);
        let lease = Lease::new(start, request.ttl, masters.config().drift);
        let counter = request.counter.clone();
        let candidate = counter.as_ref().map_or(0, |_| masters.timestamps.next());
        let asked = first.map_or(MasterSet::ALL, MasterSet::only);
        let claim = Arc::new(Self {
            context: context.clone(),
            resource: request.resource.clone(),
            ttl: request.ttl,
            counter,
            _owned: owned,
            began,
            state: Mutex::new(State {
                identity,
                lease,
                validity: Duration::ZERO,
                keys_until: expiry_of(request.ttl, began),
                may_hold: MasterSet::NONE,
                unasked: MasterSet::ALL - asked,
                candidate,
                rounds: 1,
                depth: 1,
                newest: open_round(masters, start, lease, false),
                was_extended: false,
                in_doubt: false,
                lost: None,
                stalled: None,
                renewal: None,
                hold: None,
                hold_until: None,
                timer: None,
                next_look: None,
                release: None,
            }),
            has_hold_begun: AtomicBool::new(false),
            changed: Signal::default(),
        });
        claim.post_acquire(claim.lock(), None, asked, first.is_some());
        claim
    }

    /// Waits for the answer of the `first` master. If another holds the lock there, returns for how
    /// long, and asks no other master. Otherwise asks the other masters in the same round.
    ///
    /// Clients that wait for one lock ask the same master first, so all but one of them stop there.
    /// The master reports the next change of the key to those that it refuses.
    pub(crate) async fn refused_by(&self, first: usize) -> Option<Option<Duration>> {
        let round = self.newest_round();
        if let Vote::Refuse(Refusal::Held(report)) = round.voted(first).await {
            if round.is_pending() {
                round.record(clock::now());
            }
            return Some(report.remaining());
        }
        let mut state = self.lock();
        let expiry = expiry_of(self.ttl, clock::monotonic());
        state.keys_until = state.keys_until.max(expiry);
        let others = mem::take(&mut state.unasked);
        self.post_acquire(state, None, others, false);
        None
    }

    /// Asks all masters for the lock again, from the same position in their queues or with another
    /// candidate for the fencing token.
    pub(crate) fn ask_again(&self, next: NextRound) {
        let masters = &self.context.masters;
        let start = clock::now();
        let mut state = self.lock();
        state.rounds = state.rounds.saturating_add(1);
        if let Some(identity) = next.identity {
            state.identity = identity;
        }
        if self.counter.is_some() {
            let candidate = next.candidate;
            state.candidate = candidate.unwrap_or_else(|| masters.timestamps.next());
        }
        state.keep_newest();
        state.lease = Lease::new(start, self.ttl, masters.config().drift);
        state.keys_until = state.keys_until.max(self.keys_until(next.queue));
        state.newest = open_round(masters, start, state.lease, next.queue.is_some());
        self.post_acquire(state, next.queue, MasterSet::ALL, next.watch);
    }

    /// Posts an acquisition. With `watch`, the masters also report the next change of the key.
    fn post_acquire(
        &self,
        state: Locked<'_>,
        queue: Option<QueueOptions>,
        to: MasterSet,
        watch: bool,
    ) {
        let attempt = self.attempt(&state);
        let mut command = Command::acquire(&self.resource, attempt, self.ttl, queue);
        command.watch = watch;
        let round = state.newest.clone();
        state.post(to, command, round);
    }

    /// Returns the instant at which everything that a round leaves on the masters has expired, if
    /// the round is posted now. The instant is on the monotonic clock.
    fn keys_until(&self, queue: Option<QueueOptions>) -> Instant {
        let now = clock::monotonic();
        let key = expiry_of(self.ttl, now);
        let position = |queue: QueueOptions| now.checked_add(queue.waiter_timeout * 2);
        queue
            .and_then(position)
            .map_or(key, |position| position.max(key))
    }

    /// Gives back the grants of some masters after a round that was not won. Keeps the position in
    /// the queues of these masters.
    pub(crate) fn yield_grants(&self, to: MasterSet, timeout: Duration) {
        if to.is_empty() {
            return;
        }
        let attempt = self.attempt(&self.lock());
        let command = Command::yield_grant(&self.resource, attempt, timeout);
        self.context.masters.post_to(to, command, IgnoreVotes);
    }

    /// Waits for the outcome of the newest round. `will_retry` says whether the caller asks again
    /// if it does not win. A majority counts as too late if no validity is left when this task
    /// runs.
    pub(super) async fn decided(&self, will_retry: bool) -> Outcome {
        let acquisition = self.newest_round();
        if !self.context.masters.undialled().is_empty() {
            self.give_up_contested(&acquisition, will_retry).await;
        }
        let outcome = acquisition.decided().await;
        if outcome != Outcome::Won {
            return outcome;
        }
        let now = clock::now();
        let mut state = self.lock();
        if mutant!(LeaseStartsLate) {
            state.lease = Lease::new(now, self.ttl, self.context.masters.config().drift);
        }
        state.validity = state.lease.remaining(now);
        if state.lease.is_valid(now) || mutant!(NoValidityCheck) {
            Outcome::Won
        } else {
            Outcome::TooLate
        }
    }

    /// Waits until `round` is decided. Gives the round up if it is contested, and only masters that
    /// were never connected are missing a node timeout after the others have answered. If the
    /// caller will try again, the wait is shorter where masters answer sooner.
    ///
    /// Such a master may vote as late as the connect timeout. If each of several clients waited for
    /// that vote with the grants of a minority, none would win.
    async fn give_up_contested(&self, round: &LiveRound, will_retry: bool) {
        const LEAST: Duration = Duration::from_millis(5);
        let masters = &self.context.masters;
        let is_stuck = |round: &Round| {
            round.is_contested() && (round.unanswered() - masters.undialled()).is_empty()
        };
        let look = || (!round.is_pending() || round.read(is_stuck)).then_some(());
        round.watch(look).await;
        if round.is_pending() {
            let now = clock::now();
            let mut patience = masters.node_timeout();
            if will_retry {
                patience = patience.min(LEAST.max(round.elapsed(now) * 2));
            }
            let decided = async {
                round.decided().await;
            };
            first_of(masters.timers.sleep_until(now + patience), decided).await;
            round.give_up();
        }
    }
}

fn open_round(masters: &Masters, start: Instant, lease: Lease, is_queued: bool) -> Arc<LiveRound> {
    let mut round = Round::open(Verb::Acquire, masters.count(), start, Some(lease.until()));
    if is_queued {
        round.queue();
    }
    LiveRound::open(round, &masters.metrics)
}
