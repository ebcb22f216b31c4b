//! Attempts that did not end in a lock, and the deadline of a call that makes them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{
    core::{
        error::{AcquireError, Contention},
        time::lease::LeaseTime,
        vote::{MasterSet, obstacle::Obstacle, quorum::Outcome, round::Round},
        wait::reach::Reach,
    },
    driver::{claim::ask::LockRequest, live_round::LiveRound, time::clock},
};

/// An attempt that did not end in a lock.
#[derive(Debug, thiserror::Error)]
#[error("{obstacle}")]
pub(crate) struct Denied {
    pub(super) obstacle: Obstacle,
    /// The round that was not won. `None` if nothing was sent.
    pub(super) round: Option<Arc<LiveRound>>,
    /// The round that makes masters tell the waiter of the next change.
    pub(super) watching: Option<Arc<LiveRound>>,
}

impl Denied {
    /// Returns why `round`, an acquisition, did not end in a lock. The masters say that the lock
    /// will be free in `free_in`.
    pub(super) fn by(round: Arc<LiveRound>, outcome: Outcome, free_in: Option<Duration>) -> Self {
        let elapsed = round.elapsed(clock::now());
        let obstacle = round.read(|round| Obstacle::of(round, outcome, free_in, elapsed));
        Self::new(obstacle, Some(round))
    }

    pub(super) fn new(obstacle: Obstacle, round: Option<Arc<LiveRound>>) -> Self {
        Self {
            obstacle,
            round,
            watching: None,
        }
    }

    /// Tells the observer of this attempt at the lock of `request`.
    pub(super) fn note(&self, request: &LockRequest) {
        use Obstacle::{NoQuorum, Quarantined, TooSlow};
        let context = &request.context;
        match (&self.obstacle, &self.round) {
            (reason @ (NoQuorum | Quarantined(_) | TooSlow(_)), Some(round)) => {
                let votes = || context.masters.votes(round).to_string();
                let name = request.lock_id.name();
                context.observer.lacks_quorum(name, reason, votes);
            }
            (_, Some(_)) => context.observer.found_quorum(),
            (_, None) => {}
        }
    }

    /// Returns whether this attempt reached a majority, if it shows that.
    pub(super) fn is_reached(&self) -> Option<bool> {
        let is_too_slow = matches!(self.obstacle, Obstacle::TooSlow(_));
        (self.round.as_ref()?).read(|round| Reach::of(round, is_too_slow))
    }

    /// Returns the masters that other clients want now, too. A waiter asks one of them first.
    pub(super) fn wanted_by_others(&self) -> MasterSet {
        use Obstacle::{Quarantined, Queued, Split};
        match (&self.obstacle, &self.watching) {
            (_, Some(round)) => round.read(Round::held_by_others),
            (Split | Queued | Quarantined(_), None) => MasterSet::ALL,
            (_, None) => MasterSet::NONE,
        }
    }

    /// Returns whether any master granted the lock.
    pub(super) fn took_some(&self) -> bool {
        let round = self.round.as_ref();
        round.is_some_and(|round| !round.read(Round::granted).is_empty())
    }

    /// Returns the error of a call that ends with this attempt at the lock of `request`.
    pub(super) fn error(&self, request: &LockRequest) -> AcquireError {
        let (context, name) = (&request.context, request.lock_id.name().clone());
        let Some(round) = &self.round else {
            return AcquireError::OwnerBusy { name };
        };
        let votes = context.masters.votes(round);
        let reason = match self.obstacle {
            Obstacle::OwnerBusy => return AcquireError::OwnerBusy { name },
            Obstacle::HeldFor(remaining) => Contention::Held { remaining },
            Obstacle::Queued => Contention::Queued,
            Obstacle::Split => Contention::Split,
            Obstacle::NoQuorum => return AcquireError::NoQuorum { name, votes },
            Obstacle::OtherKind => {
                let asked = request.lock_id.kind();
                return AcquireError::OtherKind { name, asked, votes };
            }
            Obstacle::Quarantined(remaining) => {
                return AcquireError::Quarantined {
                    name,
                    remaining,
                    votes,
                };
            }
            Obstacle::TooSlow(elapsed) => {
                return AcquireError::TooSlow {
                    name,
                    elapsed,
                    ttl: request.ttl.duration(),
                    votes,
                };
            }
        };
        let is_held = matches!(reason, Contention::Held { .. });
        AcquireError::Contended {
            name,
            reason,
            own_guard: is_held && context.renewer.holds(&request.lock_id),
            votes,
        }
    }
}

/// The start and the end of a wait, and the attempts that failed meanwhile. The parts of a wait
/// share it, so its error tells of all attempts.
#[derive(Debug)]
pub(in crate::driver) struct Deadline {
    start: LeaseTime,
    pub(in crate::driver) end: Option<LeaseTime>,
    /// The number of attempts that failed.
    failures: AtomicU32,
    /// `true` once the wait was logged, because it took longer than a TTL.
    is_logged: AtomicBool,
}

impl Deadline {
    pub(in crate::driver) fn new(within: Option<Duration>) -> Self {
        let start = clock::now();
        Self {
            start,
            // A limit that is too long for the clock counts as no limit.
            end: within.and_then(|within| start.checked_add(within)),
            failures: AtomicU32::new(0),
            is_logged: AtomicBool::new(false),
        }
    }

    /// Counts the attempt `denied`, which failed. Returns an error if the wait ends with it.
    /// Otherwise, logs the wait once it has taken longer than a TTL.
    pub(in crate::driver) fn note_failure(
        &self,
        request: &LockRequest,
        denied: &Denied,
        is_last: bool,
    ) -> Result<(), AcquireError> {
        if denied.obstacle.is_final() {
            return Err(denied.error(request));
        }
        if is_last {
            return Err(self.expired(request, denied));
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        let waited = self.waited();
        if waited > request.ttl.duration() && !self.is_logged.swap(true, Ordering::Relaxed) {
            let (context, lock_id) = (&request.context, &request.lock_id);
            let own_guard = context.renewer.holds(lock_id);
            let observer = &context.observer;
            observer.waits(lock_id.name(), waited, denied, own_guard);
        }
        Ok(())
    }

    fn waited(&self) -> Duration {
        clock::now().saturating_duration_since(self.start)
    }

    /// Returns `at`, or the end of the wait if the end is earlier.
    pub(in crate::driver) fn cap(&self, at: LeaseTime) -> LeaseTime {
        self.end.map_or(at, |end| end.min(at))
    }

    pub(in crate::driver) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end <= clock::now())
    }

    /// Returns until when to wait for the permit to make an attempt. An attempt takes `attempt` at
    /// most. Before the end of the wait, returns an instant that is not after the end. The last
    /// attempt begins at the end, when another task's attempt may be under way. So for the last
    /// attempt, returns the end plus `attempt`.
    pub(in crate::driver) fn permit_by(&self, attempt: Duration) -> LeaseTime {
        let now = clock::now();
        match self.end {
            None => now + attempt,
            Some(end) if now < end => end.min(now + attempt),
            Some(end) => end.checked_add(attempt).unwrap_or(end),
        }
    }

    /// Returns until when a waiter in the queues waits for the permit to make a round. Returns
    /// `None` if the wait has no limit.
    pub(in crate::driver) fn queued_permit_by(&self, attempt: Duration) -> Option<LeaseTime> {
        let end = self.end?;
        Some(end.checked_add(attempt).unwrap_or(end))
    }

    /// Returns the error for a wait that ends with the denied attempt `last`.
    pub(in crate::driver) fn expired(&self, request: &LockRequest, last: &Denied) -> AcquireError {
        let failures = self.failures.load(Ordering::Relaxed);
        AcquireError::Deadline {
            name: request.lock_id.name().clone(),
            waited: self.waited(),
            attempts: failures.saturating_add(1),
            last: Box::new(last.error(request)),
        }
    }
}
