//! The time to wait for a lock.

use std::time::{Duration, Instant};

use super::{
    clock,
    denied::{Denied, NotAcquired},
};

/// The start and the end of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    start: Instant,
    pub(super) end: Option<Instant>,
}

impl Deadline {
    pub(super) fn new(within: Option<Duration>) -> Self {
        let start = clock::now();
        Self {
            start,
            // A limit beyond what the clock can hold counts as no limit.
            end: within.and_then(|within| start.checked_add(within)),
        }
    }

    /// Returns `at`, or the end if that is earlier.
    pub(super) fn limit(self, at: Instant) -> Instant {
        self.end.map_or(at, |end| end.min(at))
    }

    pub(super) fn is_over(self) -> bool {
        self.end.is_some_and(|end| end <= clock::now())
    }

    /// Returns until when to wait for the permit to make an attempt, which takes `attempt` at most.
    /// Before the end, that is the end at the latest. For the last attempt, which begins at the
    /// end, it is one `attempt` after the end: another task's attempt may be under way then.
    pub(super) fn permit_by(self, attempt: Duration) -> Instant {
        let now = clock::now();
        match self.end {
            None => now + attempt,
            Some(end) if now < end => end.min(now + attempt),
            Some(end) => end.checked_add(attempt).unwrap_or(end),
        }
    }

    /// Returns until when a waiter in the queues waits for the permit to make a round. `None`
    /// without a limit.
    pub(super) fn queued_permit_by(self, attempt: Duration) -> Option<Instant> {
        let end = self.end?;
        Some(end.checked_add(attempt).unwrap_or(end))
    }

    /// Returns the error for a wait that ends with `last`, which came after this many failures.
    pub(super) fn expired(self, last: Denied, failures: u32) -> NotAcquired {
        NotAcquired::Deadline {
            waited: clock::now().saturating_duration_since(self.start),
            attempts: failures.saturating_add(1),
            last,
        }
    }

    /// Returns an error unless the wait goes on after `denied`, which came after this many
    /// failures.
    pub(super) fn check(
        self,
        denied: &Denied,
        is_last: bool,
        failures: u32,
    ) -> Result<(), NotAcquired> {
        if denied.refused.is_final() {
            Err(denied.clone().into())
        } else if is_last {
            Err(self.expired(denied.clone(), failures))
        } else {
            Ok(())
        }
    }
}
