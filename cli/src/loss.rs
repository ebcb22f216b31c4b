//! Why a lock is lost, on one line: that is all that cron mails.

use std::time::{Duration, Instant, SystemTime};

use quorlock::{
    Guard, LockState, LostReason,
    votes::{Vote, Votes},
};

use crate::{
    exit::Exit,
    failure::Failure,
    lists::Tallies,
    times::brief,
    wanted::name_of,
    words::{ADVICE, in_words_of_the_file},
};

/// Returns the failure of a lock that is lost, or that is about to end. `then` says what happens
/// to the command.
pub(crate) fn failure(guard: &Guard, then: &str) -> Failure {
    Failure::new(Exit::Lost, sentence(guard, then)).with_votes(&guard.votes())
}

/// Says why a lock is lost, or is about to end. Of several names, a loss has one.
pub(crate) fn sentence(guard: &Guard, then: &str) -> String {
    let name = name_of(guard);
    match (guard.ensure_valid(), guard.state()) {
        (Err(lost), _) => {
            let reason = in_words_of_the_file(&lost.reason.to_string());
            let stalled = lost.stalled.map(|time| STALLED.replace("{}", &brief(time)));
            let stalled = stalled.unwrap_or_default();
            let since = match lost.reason {
                LostReason::Expired => not_renewed(guard),
                _ => String::new(),
            };
            let votes = blame(&lost.votes);
            format!(
                "lost {:?}: {reason}{stalled}{then}{since}{votes}",
                lost.name
            )
        }
        (Ok(()), LockState::InDoubt) => {
            let (since, votes) = (not_renewed(guard), blame(&guard.votes()));
            format!("{name} cannot be renewed, and is about to end{then}{since}{votes}")
        }
        _ => {
            let since = not_renewed(guard);
            format!("{name} is about to end, and was not renewed in time{then}{since}")
        }
    }
}

const STALLED: &str = ", because quorlock did not run for at least {}: it or its machine was stopped \
    or too busy, or its clock was set forward";

/// Says since when no majority has renewed the lock.
pub(crate) fn not_renewed(guard: &Guard) -> String {
    let valid_since = guard.valid_until().checked_sub(guard.validity());
    let age = valid_since.map_or(Duration::ZERO, |since| Instant::now() - since);
    let since = SystemTime::now().checked_sub(age);
    let since = since.unwrap_or(SystemTime::UNIX_EPOCH);
    let since = humantime::format_rfc3339_seconds(since);
    format!("; not renewed since {since}")
}

/// Says which masters did not grant what was asked, and what to do. Empty if a majority did.
pub(crate) fn blame(votes: &Votes) -> String {
    let granted = Tallies::of_votes(votes, |row| row.vote == Some(&Vote::Grant));
    if granted.has_quorum() {
        return String::new();
    }
    format!("; {}; {ADVICE}", in_words_of_the_file(&votes.to_string()))
}
