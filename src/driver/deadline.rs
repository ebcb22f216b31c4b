//! For how long a lock is waited for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{driver::clock, error::AcquireError};

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
            // A time that no clock can hold is without end.
            end: within.and_then(|within| start.checked_add(within)),
        }
    }

    pub(super) fn not_later(self, at: Instant) -> Instant {
        self.end.map_or(at, |end| end.min(at))
    }

    pub(super) fn is_over(self) -> bool {
        self.end.is_some_and(|end| end <= clock::now())
    }

    /// Returns until when to wait for the turn to make an attempt that takes `attempt`. An attempt
    /// that is under way when the time is over does not add to how long the last one is waited for.
    pub(super) fn turn_by(self, attempt: Duration) -> Instant {
        let now = clock::now();
        match self.end {
            None => now + attempt,
            Some(end) if now < end => end.min(now + attempt),
            Some(end) => end.checked_add(attempt).unwrap_or(end),
        }
    }

    /// Returns until when to wait for the turn in a queue that is kept meanwhile.
    pub(super) fn last_turn(self, attempt: Duration) -> Option<Instant> {
        let end = self.end?;
        Some(end.checked_add(attempt).unwrap_or(end))
    }

    /// Returns the error for a wait that ended while another task of the owner made an attempt.
    pub(super) fn over(self, name: &Arc<str>, failures: u32) -> AcquireError {
        self.gave_up(
            name,
            AcquireError::OwnerBusy { name: name.clone() },
            failures,
        )
    }

    fn gave_up(self, name: &Arc<str>, last: AcquireError, failures: u32) -> AcquireError {
        AcquireError::Deadline {
            name: name.clone(),
            waited: clock::now().saturating_duration_since(self.start),
            attempts: failures.saturating_add(1),
            last: Box::new(last),
        }
    }

    /// Returns an error unless the wait goes on after `error`, which came after so many failures.
    /// LocalWaiters fixes neither a wrong setting nor a wrong kind.
    pub(super) fn check(
        self,
        name: &Arc<str>,
        error: AcquireError,
        is_last: bool,
        failures: u32,
    ) -> Result<(), AcquireError> {
        match error {
            AcquireError::Closed | AcquireError::Config(_) | AcquireError::OtherKind { .. } => {
                Err(error)
            }
            last if is_last => Err(self.gave_up(name, last, failures)),
            _ => Ok(()),
        }
    }
}
