//! The deadline of a call that makes attempts.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use super::denied::Denied;
use crate::{
    clock,
    core::{error::AcquireError, time::tick::LeaseTick},
    driver::claim::ask::LockRequest,
};

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
