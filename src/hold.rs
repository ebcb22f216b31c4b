//! One attempt at a lock, from its first byte to its release.

mod keep;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    clock,
    core::{
        command::{Command, Verb},
        lease::{Lease, Ttl},
        name::{Resource, Token},
        renewal::Renewal,
        round::{Outcome, Round},
        standing::LostReason,
        votes::Votes,
    },
    engine::Engine,
    live_round::{Delivery, Healing, LiveRound},
    watchdog::Place,
};

/// What a token may have left on the masters, how it is kept, and how it is taken back.
#[derive(Debug)]
pub(crate) struct Hold {
    engine: Arc<Engine>,
    resource: Resource,
    token: Token,
    ttl: Ttl,
    start: Instant,
    state: Mutex<State>,
    /// The lock may be lost: whoever waits for that looks again.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    /// What was left of the lease when it was won.
    validity: Duration,
    /// When the last key that we may have written is gone by itself.
    keys_until: Instant,
    /// Masters that may hold the key, a bit each; those of the newest round come on top.
    may_hold: u64,
    /// The acquisition, or the last extension.
    newest: Arc<LiveRound>,
    /// An extension before the newest round failed, and none has succeeded since.
    in_doubt: bool,
    /// Never unset: who was told that it is lost must not hear otherwise later.
    lost: Option<LostReason>,
    renewal: Option<Renewal>,
    place: Option<Place>,
    release: Option<Arc<LiveRound>>,
}

impl Hold {
    /// Asks all masters for the lock.
    pub(crate) fn ask(engine: &Arc<Engine>, resource: &Resource, ttl: Ttl) -> Arc<Self> {
        let start = clock::now();
        let token = Token::new(clock::random());
        let lease = Lease::new(start, ttl, engine.config().drift);
        let round = Round::open(Verb::Acquire, engine.size(), start, Some(lease.until()));
        let acquisition = LiveRound::of_acquisition(round);
        let command = Command {
            verb: Verb::Acquire,
            resource: resource.clone(),
            token,
            ttl,
            wakes: false,
        };
        engine.post(&engine.ask(command, start, acquisition.clone()));
        Arc::new(Self {
            engine: engine.clone(),
            resource: resource.clone(),
            token,
            ttl,
            start,
            state: Mutex::new(State {
                lease,
                validity: Duration::ZERO,
                keys_until: end_of(start, ttl),
                may_hold: 0,
                newest: acquisition,
                in_doubt: false,
                lost: None,
                renewal: None,
                place: None,
                release: None,
            }),
            changed: Notify::new(),
        })
    }

    /// Waits for the outcome of the acquisition. A lock that was won is still given up when nothing is
    /// left of its validity by the time this task gets to run.
    pub(crate) async fn decided(&self) -> Outcome {
        let acquisition = self.newest_round();
        let outcome = acquisition.decided().await;
        if outcome != Outcome::Won {
            return outcome;
        }
        let now = clock::now();
        let mut state = self.state.lock();
        state.validity = state.lease.remaining(now);
        if state.lease.is_valid(now) {
            Outcome::Won
        } else {
            Outcome::TooLate
        }
    }

    /// Takes the token back from all masters, once: behind whatever was sent for it, and owed to those
    /// that may hold it and cannot be reached now.
    pub(crate) fn release(&self) -> Arc<LiveRound> {
        let mut state = self.state.lock();
        if let Some(release) = &state.release {
            return release.clone();
        }
        let start = clock::now();
        let round = Round::open(Verb::Release, self.engine.size(), start, None);
        let release = LiveRound::of_release(round);
        state.release = Some(release.clone());
        // Not of an attempt that failed: whoever made it would wake himself.
        let is_worth_telling = state.newest.was_won();
        let delivery = Delivery {
            release: release.clone(),
            keys_until: state.keys_until,
            may_hold: state.may_hold,
            newest: state.newest.clone(),
            _undelivered: self.engine.undelivered(),
        };
        let tellers = if is_worth_telling {
            self.engine.tellers(self.token.spread())
        } else {
            0
        };
        let command = Command {
            wakes: tellers != 0,
            ..self.command(Verb::Release, self.ttl)
        };
        let engine = &self.engine;
        engine.post(&engine.ask_with_tellers(command, tellers, start, delivery));
        if is_worth_telling {
            self.engine.waiting().released(&self.resource);
        }
        if let Some(place) = state.place.take() {
            self.engine.watchdog().forget(place);
        }
        release
    }

    /// Puts the key back on `masters`, a bit each, which lost it. Only ever called when a majority has
    /// just confirmed that the lock is ours, and does nothing after a release.
    pub(crate) fn heal(&self, masters: u64, ttl: Ttl, extension: &Arc<LiveRound>) {
        let mut state = self.state.lock();
        if state.release.is_some() || state.lost.is_some() {
            return;
        }
        let start = clock::now();
        state.keys_until = state.keys_until.max(end_of(start, ttl));
        state.may_hold |= masters;
        let healing = Healing {
            extension: extension.clone(),
        };
        let command = self.command(Verb::Acquire, ttl);
        let ask = self.engine.ask(command, start, healing);
        self.engine.post_to(masters, &ask);
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.resource.name()
    }

    /// How long the acquisition has been under way, and what it asked for.
    pub(crate) fn elapsed(&self) -> (Duration, Duration) {
        let elapsed = clock::now().saturating_duration_since(self.start);
        (elapsed, self.ttl.duration())
    }

    pub(crate) fn validity(&self) -> Duration {
        self.state.lock().validity
    }

    /// When the lease ends, on the clock that users have.
    pub(crate) fn valid_until(&self) -> Instant {
        clock::to_monotonic(self.state.lock().lease.until())
    }

    /// The acquisition, or the last extension.
    pub(crate) fn newest_round(&self) -> Arc<LiveRound> {
        self.state.lock().newest.clone()
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        self.engine.votes(round)
    }

    fn command(&self, verb: Verb, ttl: Ttl) -> Command {
        Command {
            verb,
            resource: self.resource.clone(),
            token: self.token,
            ttl,
            wakes: false,
        }
    }
}

fn end_of(start: Instant, ttl: Ttl) -> Instant {
    start.checked_add(ttl.duration()).unwrap_or(start)
}

/// A hold that is released when it is dropped, wherever its owner's future was: this is what makes
/// every round that does not end in a lock end in a release.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub(crate) struct Held(Arc<Hold>);

impl Held {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self(hold)
    }
}

impl std::ops::Deref for Held {
    type Target = Arc<Hold>;

    fn deref(&self) -> &Arc<Hold> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}
