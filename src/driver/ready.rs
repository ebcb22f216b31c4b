//! Waits until enough masters can vote.

use super::{
    clock, deadline::Deadline, live_round::LiveRound, masters::Masters, select::first_of,
    shared::Shared,
};
use crate::core::{
    command::{Action, Command, Verb},
    quorum::{Failure, Vote},
    round::Round,
    votes::{CastVote, VoteRow, Votes},
};
use crate::master::Entry;

/// Waits until `needed` masters can vote. Asks for the last time at the deadline. Returns the votes
/// of the last round. A vote is a grant if its master can vote. Returns `None` if the coordinator
/// is closed, or if its runtime has shut down.
pub(super) async fn ready(shared: &Shared, needed: usize, deadline: Deadline) -> Option<Votes> {
    let masters = shared.masters();
    let mut changes = masters.health.watch();
    let retry = masters.config().retry;
    let mut failures = 0;
    loop {
        shared.check_open().ok()?;
        let known = changes.borrow_and_update().clone();
        let votes = ask(masters, needed).await;
        let is_gone = |row: VoteRow<'_>| row.failure() == Some(&Failure::Closed);
        if votes.iter().all(is_gone) {
            return None;
        }
        if votes.granted_count() >= needed || deadline.is_over() {
            return Some(votes);
        }
        let pause = clock::now() + retry.delay(failures, clock::random_u64());
        let changed = async {
            let is_news = |(entry, known): (&Entry, &Entry)| entry.is_news(known);
            let _ = changes
                .wait_for(|entries| entries.iter().zip(&known).any(is_news))
                .await;
        };
        first_of(changed, clock::sleep_until(deadline.limit(pause))).await;
        failures = failures.saturating_add(1);
    }
}

/// Asks all masters for an answer. Waits until `needed` masters can vote, or until all masters have
/// answered or timed out.
async fn ask(masters: &Masters, needed: usize) -> Votes {
    let round = Round::open(Verb::Inspect, masters.count(), clock::now(), None);
    let round = LiveRound::open(round, &masters.metrics);
    let lock = masters.config().key_template.example();
    masters.post(Command::new(&lock, Action::Inspect), round.clone());
    let look = || {
        let is_settled = round.read(Round::is_settled);
        let votes = judged(masters, &round);
        (is_settled || votes.granted_count() >= needed).then_some(votes)
    };
    round.watch(look).await
}

/// Returns the answers in `round`. The answer of a master in quarantine is a failure.
fn judged(masters: &Masters, round: &LiveRound) -> Votes {
    let mut cast = round.votes();
    for (cast, health) in cast.iter_mut().zip(masters.health.read()) {
        let Some(answer) = cast else {
            continue;
        };
        let vote = match (answer.vote(), health.quarantine) {
            (Vote::Grant, Some(remaining)) => Vote::Fail(Failure::Quarantined { remaining }),
            // The user may not use the key of the question, and perhaps the keys of locks.
            (Vote::Fail(Failure::Rejected(error)), None) if error.starts_with("NOPERM") => {
                Vote::Grant
            }
            _ => continue,
        };
        *cast = Some(CastVote::new(vote, answer.latency()));
    }
    Votes::new(masters.addresses().clone(), cast, "can vote")
}
