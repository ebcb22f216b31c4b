//! The end of a lock, for the command that runs under it.

use std::time::{Duration, Instant};

use quorlock::Guard;

use crate::{failure::Failure, loss};

/// Returns the failure of a command that was killed by its keeper.
pub(super) fn killed_by_keeper(guard: &Guard) -> Failure {
    loss::failure(guard, "; its keeper killed the command if it had not ended")
}

/// Returns the time by which the command of a guard must be dead. It is a little before the end of
/// the validity, because a process that is killed on a busy machine dies a little later.
pub(super) fn deadline(guard: &Guard) -> Instant {
    let early = (guard.validity() / 20).min(MOST_EARLY);
    let valid_until = guard.valid_until();
    valid_until.checked_sub(early).unwrap_or(valid_until)
}

const MOST_EARLY: Duration = Duration::from_millis(250);
/// The time between two looks while a renewal is late.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);
