//! One attempt at a lock, from its first byte to its release.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    clock,
    core::{
        command::{Command, Verb},
        lease::{Lease, Ttl},
        name::{Resource, Token},
        round::{Outcome, Round},
        votes::Votes,
    },
    engine::Engine,
    error::ExtendError,
    live_round::{Healing, LiveRound},
    master::{Ask, Owed},
};

/// What a token may have left on the masters, and how it is taken back.
#[derive(Debug)]
pub(crate) struct Hold {
    engine: Arc<Engine>,
    resource: Resource,
    token: Token,
    ttl: Ttl,
    start: Instant,
    acquisition: Arc<Ask<LiveRound>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    /// What was left of the lease when it was won.
    validity: Duration,
    /// When the last key that we may have written is gone by itself.
    keys_until: Instant,
    extension: Option<Arc<Ask<LiveRound>>>,
    /// The masters on which the key was put back, a bit each.
    healed: u64,
    release: Option<Arc<Ask<LiveRound>>>,
}

/// A hold that is released when it is dropped, wherever its owner's future was: this is what makes
/// every round that does not end in a lock end in a release.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub(crate) struct Held(Arc<Hold>);

impl Held {
    /// Asks all masters for the lock.
    pub(crate) fn ask(engine: &Arc<Engine>, resource: &Resource, ttl: Ttl) -> Self {
        let start = clock::now();
        let command = Command {
            verb: Verb::Acquire,
            resource: resource.clone(),
            token: Token::new(clock::random()),
            ttl,
        };
        let lease = Lease::new(start, ttl, engine.config().drift);
        let (resource, token) = (resource.clone(), command.token);
        let round = Round::open(Verb::Acquire, engine.size(), start, Some(lease.until()));
        let acquisition = engine.ask(command, start, None, LiveRound::new(round));
        engine.post(&acquisition);
        Self(Arc::new(Hold {
            engine: engine.clone(),
            resource,
            token,
            ttl,
            start,
            acquisition,
            state: Mutex::new(State {
                lease,
                validity: Duration::ZERO,
                keys_until: end_of(start, ttl),
                extension: None,
                healed: 0,
                release: None,
            }),
        }))
    }

    /// Waits for the outcome. A lock that was won is still given up when nothing is left of its
    /// validity by the time this task gets to run.
    pub(crate) async fn decided(&self) -> Outcome {
        let outcome = self.0.acquisition.counter.decided().await;
        if outcome != Outcome::Won {
            return outcome;
        }
        let now = clock::now();
        let mut state = self.0.state.lock();
        state.validity = state.lease.remaining(now);
        if state.lease.is_valid(now) {
            Outcome::Won
        } else {
            Outcome::TooLate
        }
    }

    /// See [`Hold::release`].
    pub(crate) fn release(&self) -> Arc<Ask<LiveRound>> {
        self.0.release()
    }

    pub(crate) async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        let hold = &self.0;
        let ttl = hold.engine.config().ttl(ttl)?;
        let start = clock::now();
        let lease = Lease::new(start, ttl, hold.engine.config().drift);
        let extension = {
            let mut state = hold.state.lock();
            if !state.lease.is_valid(start) {
                return Err(ExtendError::Expired {
                    name: hold.resource.name().clone(),
                    since: start.saturating_duration_since(state.lease.until()),
                });
            }
            // A majority counts only while the old validity lasts: after it, the lock may have been
            // somebody else's in between.
            let limit = state.lease.until().min(lease.until());
            let round = Round::open(Verb::Extend, hold.engine.size(), start, Some(limit));
            let counter = LiveRound::new(round).healing(Arc::downgrade(hold));
            let command = hold.command(Verb::Extend, ttl);
            let extension = hold.engine.ask(command, start, None, counter);
            state.keys_until = state.keys_until.max(end_of(start, ttl));
            state.extension = Some(extension.clone());
            // Under the lock, so that a release is behind it on every wire.
            hold.engine.post(&extension);
            extension
        };
        match extension.counter.decided().await {
            Outcome::Won => {
                let now = clock::now();
                let mut state = hold.state.lock();
                if lease > state.lease {
                    state.lease = lease;
                    state.validity = lease.remaining(now);
                }
                if state.lease.is_valid(now) {
                    return Ok(());
                }
                Err(ExtendError::Expired {
                    name: hold.resource.name().clone(),
                    since: now.saturating_duration_since(state.lease.until()),
                })
            }
            Outcome::Lost | Outcome::Pending => {
                Err(self.extension_failed(&extension.counter).await)
            }
            Outcome::TooLate => Err(ExtendError::TooSlow {
                name: hold.resource.name().clone(),
                votes: hold.engine.votes(&extension.counter),
            }),
        }
    }

    async fn extension_failed(&self, extension: &LiveRound) -> ExtendError {
        let hold = &self.0;
        // Whether it is lost or only unconfirmed may hang on masters that have not spoken yet.
        extension.settled().await;
        let name = hold.resource.name().clone();
        let votes = hold.engine.votes(extension);
        if votes.masters() - votes.refused() < votes.needed() {
            ExtendError::Lost { name, votes }
        } else {
            ExtendError::NoQuorum {
                name,
                remaining: self.remaining(),
                votes,
            }
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.0.resource.name()
    }

    /// How long the acquisition has been under way, and what it asked for.
    pub(crate) fn elapsed(&self) -> (Duration, Duration) {
        let elapsed = clock::now().saturating_duration_since(self.0.start);
        (elapsed, self.0.ttl.duration())
    }

    pub(crate) fn validity(&self) -> Duration {
        self.0.state.lock().validity
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.0.state.lock().lease.until()
    }

    pub(crate) fn remaining(&self) -> Duration {
        let now = clock::now();
        self.0.state.lock().lease.remaining(now)
    }

    /// The newest round: of the acquisition, or of the last extension.
    pub(crate) fn newest_round(&self) -> Arc<Ask<LiveRound>> {
        let state = self.0.state.lock();
        state
            .extension
            .as_ref()
            .unwrap_or(&self.0.acquisition)
            .clone()
    }

    pub(crate) fn acquisition(&self) -> &LiveRound {
        &self.0.acquisition.counter
    }

    pub(crate) fn votes(&self) -> Votes {
        self.votes_of(&self.newest_round().counter)
    }

    pub(crate) fn votes_of(&self, round: &LiveRound) -> Votes {
        self.0.engine.votes(round)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Hold {
    /// Takes the token back from all masters, once: behind whatever was sent for it, and owed to those
    /// that may hold it and cannot be reached now.
    fn release(&self) -> Arc<Ask<LiveRound>> {
        let mut state = self.state.lock();
        if let Some(release) = &state.release {
            return release.clone();
        }
        let start = clock::now();
        let owed = Owed {
            until: state.keys_until,
            masters: self.acquisition.counter.read(Round::may_hold) | state.healed,
        };
        let round = Round::open(Verb::Release, self.engine.size(), start, None);
        let counter = LiveRound::new(round).owing(self.engine.owe());
        let command = self.command(Verb::Release, self.ttl);
        let release = self.engine.ask(command, start, Some(owed), counter);
        state.release = Some(release.clone());
        self.engine.post(&release);
        release
    }

    /// Puts the key back on `masters`, a bit each, which lost it. Only ever called when a majority has just confirmed
    /// that the lock is ours, and never after a release.
    pub(crate) fn heal(&self, masters: u64) {
        let mut state = self.state.lock();
        let Some(extension) = state.extension.clone().filter(|_| state.release.is_none()) else {
            return;
        };
        let start = clock::now();
        let ttl = extension.command.ttl;
        state.keys_until = state.keys_until.max(end_of(start, ttl));
        let healing = self.engine.ask(
            self.command(Verb::Acquire, ttl),
            start,
            None,
            Healing { extension },
        );
        state.healed |= masters;
        for master in 0..self.engine.size() {
            if masters >> master & 1 == 1 {
                self.engine.post_to(master, healing.clone());
            }
        }
    }

    fn command(&self, verb: Verb, ttl: Ttl) -> Command {
        Command {
            verb,
            resource: self.resource.clone(),
            token: self.token,
            ttl,
        }
    }
}

fn end_of(start: Instant, ttl: Ttl) -> Instant {
    start.checked_add(ttl.duration()).unwrap_or(start)
}
