//! Attempts that did not end in a lock, and the deadline of a call that makes attempts.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use crate::{
    clock,
    core::{
        error::{AcquireError, Contention},
        time::tick::LeaseTick,
        vote::{MasterSet, evidence::Obstacle, quorum::Outcome, round::Round},
        wait::{pauses::Met, queued::Reach},
    },
    driver::{claim::ask::LockRequest, round_handle::RoundHandle},
};

/// An attempt that did not end in a lock.
#[derive(Debug, thiserror::Error)]
#[error("{obstacle}")]
pub(crate) struct Denied {
    pub(super) obstacle: Obstacle,
    /// The round that was not won. `None` if nothing was sent.
    pub(super) round: Option<RoundHandle>,
    /// The round after which masters tell the waiter about the next change of the lock.
    pub(super) watching: Option<RoundHandle>,
}

impl Denied {
    /// Returns why `round`, an acquisition, did not end in a lock. The masters say that the lock
    /// will be free in `free_in`.
    pub(super) fn by(round: RoundHandle, outcome: Outcome, free_in: Option<Duration>) -> Self {
        let elapsed = round.elapsed(clock::now());
        let obstacle = round.read(|round| Obstacle::of(round, outcome, free_in, elapsed));
        Self::new(obstacle, Some(round))
    }

    pub(super) fn new(obstacle: Obstacle, round: Option<RoundHandle>) -> Self {
        Self {
            obstacle,
            round,
            watching: None,
        }
    }

    /// Notes what this attempt at the lock of `request` has shown, and reports it to the observer.
    pub(super) fn note(&self, request: &LockRequest) {
        use Obstacle::{MissingRight, NoQuorum, Quarantined, TooSlow};
        let context = &request.context;
        if let Some(round) = &self.round {
            round.note_rights(request.rights());
        }
        match (&self.obstacle, &self.round) {
            (reason @ (MissingRight | NoQuorum | Quarantined(_) | TooSlow(_)), Some(round)) => {
                let votes = || round.votes().to_string();
                let name = request.lock_id.name();
                context.observer().lacks_quorum(name, reason, votes);
            }
            (_, Some(_)) => context.observer().found_quorum(),
            (_, None) => {}
        }
    }

    /// Returns whether this attempt reached a majority of masters, or `None` if that is not
    /// certain.
    pub(super) fn is_reached(&self) -> Option<bool> {
        let is_too_slow = matches!(self.obstacle, Obstacle::TooSlow(_));
        (self.round.as_ref()?).read(|round| Reach::of(round, is_too_slow))
    }

    /// Returns the masters on which other clients hold or want the lock. A waiter asks one of these
    /// masters first.
    pub(super) fn wanted_by_others(&self) -> MasterSet {
        use Obstacle::{Quarantined, Queued, Split};
        match (&self.obstacle, &self.watching) {
            (_, Some(round)) => round.read(Round::held_by_others),
            (Split | Queued | Quarantined(_), None) => MasterSet::ALL,
            (_, None) => MasterSet::NONE,
        }
    }

    /// Returns the obstacle of this attempt, and whether at least one master granted the lock.
    pub(super) fn met(&self) -> Met<'_> {
        let round = self.round.as_ref();
        let took_some = round.is_some_and(|round| !round.read(Round::granted).is_empty());
        (&self.obstacle, took_some)
    }

    /// Returns the error of a call that ends with this attempt at the lock of `request`.
    pub(super) fn error(&self, request: &LockRequest) -> AcquireError {
        let (context, name) = (&request.context, request.lock_id.name().clone());
        let Some(round) = &self.round else {
            return match self.obstacle {
                Obstacle::OwnerBusy => AcquireError::OwnerBusy { name },
                _ => AcquireError::Closed, // after a fork
            };
        };
        let votes = round.votes();
        let reason = match self.obstacle {
            Obstacle::OwnerBusy => return AcquireError::OwnerBusy { name },
            Obstacle::HeldFor(remaining) => Contention::Held { remaining },
            Obstacle::Queued => Contention::Queued,
            Obstacle::Split => Contention::Split,
            Obstacle::MissingRight => {
                let key = request.lock_id.key().clone();
                return AcquireError::MissingRight { name, key, votes };
            }
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
            own_guard: is_held && context.holds(&request.lock_id),
            votes,
        }
    }
}

/// The start and the end of a wait, and the attempts that failed meanwhile. The parts of a wait
/// share one deadline, so the error of the wait counts the attempts of all parts.
#[derive(Debug)]
pub(in crate::driver) struct Deadline {
    start: LeaseTick,
    pub(super) end: Option<LeaseTick>,
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
            end: within.map(|within| start + within),
            failures: AtomicU32::new(0),
            is_logged: AtomicBool::new(false),
        }
    }

    /// Counts the attempt `denied`, which failed. Returns an error if the wait ends with this
    /// attempt. Otherwise, if the wait has taken longer than a TTL and was not logged yet, logs the
    /// wait.
    pub(super) fn note_failure(
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
            let own_guard = context.holds(lock_id);
            let observer = context.observer();
            observer.waits(lock_id.name(), waited, denied, own_guard);
        }
        Ok(())
    }

    fn waited(&self) -> Duration {
        clock::now().since(self.start)
    }

    /// Returns `at`, or the end of the wait if the end is earlier.
    pub(in crate::driver) fn cap(&self, at: LeaseTick) -> LeaseTick {
        self.end.map_or(at, |end| end.min(at))
    }

    pub(in crate::driver) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end <= clock::now())
    }

    /// Returns the time until which a caller waits for the permit to make an attempt. An attempt
    /// takes at most the time `attempt`. The last attempt begins at the deadline, and another task
    /// may have the permit then. So for the last attempt, the returned time is the deadline plus
    /// `attempt`. For an earlier attempt, the returned time is never after the deadline.
    pub(super) fn permit_by(&self, attempt: Duration, is_last: bool) -> LeaseTick {
        let end = self.queued_permit_by(attempt).filter(|_| is_last);
        end.unwrap_or_else(|| self.cap(clock::now() + attempt))
    }

    /// Returns the time until which a waiter in the queues waits for the permit to make a round.
    /// Returns `None` if the wait has no limit.
    pub(super) fn queued_permit_by(&self, attempt: Duration) -> Option<LeaseTick> {
        self.end.map(|end| end + attempt)
    }

    /// Returns the error for a wait that ends with the denied attempt `last`.
    pub(super) fn expired(&self, request: &LockRequest, last: &Denied) -> AcquireError {
        let failures = self.failures.load(Ordering::Relaxed);
        AcquireError::Deadline {
            name: request.lock_id.name().clone(),
            waited: self.waited(),
            attempts: failures.saturating_add(1),
            last: Box::new(last.error(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_attempt_waits_for_its_permit_beyond_the_deadline() {
        let deadline = Deadline::new(Some(Duration::ZERO));
        let (end, second) = (deadline.end.unwrap(), Duration::from_secs(1));
        assert_eq!(deadline.permit_by(second, false), end);
        assert_eq!(deadline.permit_by(second, true), end + second);
    }
}
