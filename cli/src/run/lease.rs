//! The end of a lock, for the command that runs under it.

use std::time::{Duration, Instant};

use quorlock::{Guard, LockState};

use crate::{exit::Exit, failure::Failure, wanted::name_of, words::in_words_of_the_file};

/// Returns the failure of a command that has ended by itself, after its lock was lost.
pub(super) fn lost(guard: &Guard) -> Failure {
    let sentence = format!("{} while the command ran", loss(guard));
    Failure::new(Exit::Lost, sentence).with_votes(&guard.votes())
}

/// Returns the failure of a command that was killed by its keeper.
pub(super) fn killed_by_keeper(guard: &Guard) -> Failure {
    let why = match guard.state() {
        LockState::Lost(_) => loss(guard),
        LockState::Held | LockState::InDoubt => {
            format!("{} was not renewed in time", name_of(guard))
        }
    };
    let sentence = format!("{why}; its keeper has killed the command");
    Failure::new(Exit::Lost, sentence).with_votes(&guard.votes())
}

/// Returns the reason why a command must end now. Of several names, a loss has one.
pub(super) fn loss(guard: &Guard) -> String {
    if let Err(lost) = guard.ensure_held() {
        let reason = in_words_of_the_file(&lost.reason.to_string());
        return format!("lost {:?}: {reason}", lost.name);
    }
    let name = name_of(guard);
    match guard.state() {
        LockState::InDoubt => format!("{name} cannot be renewed, and is about to end"),
        _ => format!("{name} is about to end, and is no longer renewed"),
    }
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
