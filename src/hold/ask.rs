//! How masters are asked for a lock, and asked again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Hold, State, Wanted, end_of};
use crate::{
    clock,
    core::{
        bid::Bid,
        claim::{Claim, Patience},
        command::{Command, Verb, Wakes},
        lease::{Lease, Ttl},
        name::Resource,
        round::Round,
    },
    engine::Engine,
    live_round::{LiveRound, Unheard},
    owner::Tenure,
};

/// How an attempt asks again.
#[derive(Debug)]
pub(crate) struct Again {
    /// In the name of a new attempt, when what gives the last one back may come late.
    pub(crate) claim: Option<Claim>,
    pub(crate) patience: Option<Patience>,
    /// For a fencing token; else one is drawn.
    pub(crate) candidate: Option<u64>,
}

impl Hold {
    /// Asks all masters for the lock.
    pub(crate) fn ask(
        engine: &Arc<Engine>,
        wanted: &Wanted,
        claim: Claim,
        tenure: Option<Arc<Tenure>>,
        patience: Option<Patience>,
    ) -> Arc<Self> {
        let (began, start) = (clock::monotonic(), clock::now());
        let lease = Lease::new(start, wanted.ttl, engine.config().drift);
        let bid = wanted.counter.as_ref().map(|counter| Bid {
            counter: counter.clone(),
            candidate: engine.draw(),
        });
        let candidate = bid.as_ref().map_or(0, |bid| bid.candidate);
        let question = Question {
            engine,
            resource: &wanted.resource,
            claim: &claim,
            ttl: wanted.ttl,
            bid: bid.as_ref(),
        };
        let newest = question.post(patience, start, lease);
        let keys_until = question.keys_until(patience);
        Arc::new(Self {
            engine: engine.clone(),
            resource: wanted.resource.clone(),
            ttl: wanted.ttl,
            counter: wanted.counter.clone(),
            _tenure: tenure,
            began,
            state: Mutex::new(State {
                claim,
                lease,
                validity: Duration::ZERO,
                keys_until,
                may_hold: 0,
                candidate,
                rounds: 1,
                depth: 1,
                newest,
                in_doubt: false,
                lost: None,
                renewal: None,
                place: None,
                release: None,
            }),
            changed: Notify::new(),
        })
    }

    /// Asks all masters once more: from the same place in their queues, or with another candidate for the fencing
    /// token.
    pub(crate) fn ask_again(&self, again: Again) {
        let start = clock::now();
        let mut state = self.state.lock();
        state.rounds = state.rounds.saturating_add(1);
        if let Some(claim) = again.claim {
            state.claim = claim;
        }
        if self.counter.is_some() {
            state.candidate = again.candidate.unwrap_or_else(|| self.engine.draw());
        }
        let patience = again.patience;
        let bid = self.bid(&state);
        let question = Question {
            engine: &self.engine,
            resource: &self.resource,
            claim: &state.claim,
            ttl: self.ttl,
            bid: bid.as_ref(),
        };
        let keys_until = question.keys_until(patience);
        let lease = Lease::new(start, self.ttl, self.engine.config().drift);
        let newest = question.post(patience, start, lease);
        state.lease = lease;
        state.may_hold |= state.newest.read(Round::may_keep);
        state.keys_until = state.keys_until.max(keys_until);
        state.newest = newest;
    }

    /// Gives back what `masters`, a bit each, granted to a round that did not win, and keeps the place in the
    /// queues.
    pub(crate) fn yield_back(&self, masters: u64, patience: Patience) {
        if masters != 0 {
            let command = Command {
                patience: Some(patience),
                ..self.command(&self.state.lock(), Verb::Yield, self.ttl)
            };
            let ask = self.engine.ask(command, Unheard);
            self.engine.post_to(masters, &ask);
        }
    }
}

/// The question for a lock.
#[derive(Clone, Copy)]
struct Question<'a> {
    engine: &'a Engine,
    resource: &'a Resource,
    claim: &'a Claim,
    ttl: Ttl,
    bid: Option<&'a Bid>,
}

impl Question<'_> {
    fn post(self, patience: Option<Patience>, start: Instant, lease: Lease) -> Arc<LiveRound> {
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
        let command = Command {
            verb: Verb::Acquire,
            resource: self.resource.clone(),
            claim: self.claim.clone(),
            ttl: self.ttl,
            depth: 1,
            wakes: Wakes::Nobody,
            patience,
            bid: self.bid.cloned(),
        };
        let ask = self.engine.ask(command, acquisition.clone());
        self.engine.post(&ask);
        acquisition
    }

    /// When what a question leaves that is posted now is gone by itself, on the monotonic clock.
    fn keys_until(self, patience: Option<Patience>) -> Instant {
        let key = end_of(self.ttl);
        let place = |patience: Patience| clock::monotonic().checked_add(patience.patience * 2);
        let place = patience.and_then(place);
        place.map_or(key, |place| place.max(key))
    }
}
