//! How masters are asked for a lock, and asked again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Claim, LockRequest, State, end_of};
use crate::{
    core::{
        ballot::Ballot,
        command::{Action, Command, NewKey, Verb},
        identity::{Identity, QueueOptions},
        lease::{Lease, Ttl},
        master_set::MasterSet,
        name::Resource,
        round::Round,
    },
    driver::clock,
    driver::engine::Engine,
    driver::live_round::{IgnoreVotes, LiveRound},
    driver::owned_lock::OwnedLock,
};

/// How an attempt asks again.
#[derive(Debug)]
pub(crate) struct NextRound {
    /// In the name of a new attempt, when what gives the last one back may come late.
    pub(crate) identity: Option<Identity>,
    pub(crate) patience: Option<QueueOptions>,
    /// For a fencing token; else one is drawn.
    pub(crate) candidate: Option<u64>,
}

impl Claim {
    /// Asks all masters for the lock.
    pub(crate) fn ask(
        engine: &Arc<Engine>,
        request: &LockRequest,
        identity: Identity,
        owned: Option<Arc<OwnedLock<Claim>>>,
        patience: Option<QueueOptions>,
    ) -> Arc<Self> {
        let (began, start) = (clock::monotonic(), clock::now());
        let lease = Lease::new(start, request.ttl, engine.config().drift);
        let ballot = request.counter.as_ref().map(|counter| Ballot {
            counter: counter.clone(),
            candidate: engine.next_timestamp(),
        });
        let candidate = ballot.as_ref().map_or(0, |ballot| ballot.candidate);
        let question = RoundRequest {
            engine,
            resource: &request.resource,
            identity: &identity,
            ttl: request.ttl,
            ballot: ballot.as_ref(),
        };
        let newest = question.post(patience, start, lease);
        let keys_until = question.keys_until(patience);
        Arc::new(Self {
            engine: engine.clone(),
            resource: request.resource.clone(),
            ttl: request.ttl,
            counter: request.counter.clone(),
            _owned: owned,
            began,
            state: Mutex::new(State {
                identity,
                lease,
                validity: Duration::ZERO,
                keys_until,
                may_hold: MasterSet::NONE,
                candidate,
                rounds: 1,
                depth: 1,
                newest,
                in_doubt: false,
                lost: None,
                renewal: None,
                timer_key: None,
                release: None,
            }),
            changed: Notify::new(),
        })
    }

    /// Asks all masters once more: from the same place in their queues, or with another candidate for the fencing
    /// token.
    pub(crate) fn ask_again(&self, again: NextRound) {
        let start = clock::now();
        let mut state = self.state.lock();
        state.rounds = state.rounds.saturating_add(1);
        if let Some(identity) = again.identity {
            state.identity = identity;
        }
        if self.counter.is_some() {
            state.candidate = again
                .candidate
                .unwrap_or_else(|| self.engine.next_timestamp());
        }
        let patience = again.patience;
        let ballot = self.ballot(&state);
        let question = RoundRequest {
            engine: &self.engine,
            resource: &self.resource,
            identity: &state.identity,
            ttl: self.ttl,
            ballot: ballot.as_ref(),
        };
        let keys_until = question.keys_until(patience);
        let lease = Lease::new(start, self.ttl, self.engine.config().drift);
        let newest = question.post(patience, start, lease);
        state.lease = lease;
        let may_keep = state.newest.read(Round::may_keep);
        state.may_hold |= may_keep;
        state.keys_until = state.keys_until.max(keys_until);
        state.newest = newest;
    }

    /// Gives back what `masters`, a bit each, granted to a round that did not win, and keeps the place in the
    /// queues.
    pub(crate) fn yield_grants(&self, masters: MasterSet, patience: QueueOptions) {
        if masters.is_empty() {
            return;
        }
        let identity = self.state.lock().identity.clone();
        if let Identity::Ticket(by) = identity {
            let timeout = patience.waiter_timeout;
            let action = Action::Yield { by, timeout };
            let command = Command::new(&self.resource, action);
            let ask = self.engine.ask(command, IgnoreVotes);
            self.engine.post_to(masters, &ask);
        }
    }
}

/// The question for a lock.
#[derive(Clone, Copy)]
struct RoundRequest<'a> {
    engine: &'a Engine,
    resource: &'a Resource,
    identity: &'a Identity,
    ttl: Ttl,
    ballot: Option<&'a Ballot>,
}

impl RoundRequest<'_> {
    fn post(self, patience: Option<QueueOptions>, start: Instant, lease: Lease) -> Arc<LiveRound> {
        let mut round = Round::open(
            Verb::Acquire,
            self.engine.size(),
            start,
            Some(lease.until()),
        );
        if patience.is_some() {
            round.queue();
        }
        let acquisition = LiveRound::of_acquisition(round);
        let key = NewKey {
            ttl: self.ttl,
            depth: 1,
            ballot: self.ballot.cloned(),
        };
        let action = match (self.identity.clone(), patience) {
            (Identity::Ticket(by), Some(queue)) => Action::AcquireOrQueue { by, queue, key },
            (by, _) => Action::Acquire { by, key },
        };
        let command = Command::new(self.resource, action);
        let ask = self.engine.ask(command, acquisition.clone());
        self.engine.post(&ask);
        acquisition
    }

    /// When what a question leaves that is posted now is gone by itself, on the monotonic clock.
    fn keys_until(self, patience: Option<QueueOptions>) -> Instant {
        let key = end_of(self.ttl);
        let place =
            |patience: QueueOptions| clock::monotonic().checked_add(patience.waiter_timeout * 2);
        let place = patience.and_then(place);
        place.map_or(key, |place| place.max(key))
    }
}
