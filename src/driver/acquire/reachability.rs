//! Checks whether a majority of masters answer in time, without asking for a lock.

use crate::{
    core::{
        protocol::command::{Action, Command},
        vote::{Vote, round::Round, verb::Verb},
        wait::chances::Chances,
    },
    driver::{claim::ask::LockRequest, context::Context, live_round::LiveRound, time::clock},
};

/// Returns whether another attempt may win. If the waiter is aside, asks the masters whether they
/// answer in time.
pub(in crate::driver) async fn may_win(
    context: &Context,
    request: &LockRequest,
    chances: Chances,
) -> bool {
    !chances.is_aside(context.waiter_timeout()) || majority_answers(context, request).await
}

/// Returns whether a majority of every set answers an inspection in time. An answer is in time
/// while a lock that was asked for together with the inspection would still be valid. An error
/// counts as an answer. The next attempt shows whether the error matters.
pub(in crate::driver) async fn majority_answers(context: &Context, request: &LockRequest) -> bool {
    let answers = is_answered(context, request).await;
    if !answers {
        let name = request.lock_id.name();
        context.note_no_masters(name);
    }
    answers
}

async fn is_answered(context: &Context, request: &LockRequest) -> bool {
    let masters = &context.masters;
    if !masters.has_quorum() {
        return false;
    }
    let start = clock::now();
    let limit = start + context.config.drift.usable(request.ttl);
    let round = Round::open(Verb::Inspect, masters.quorum(), start, Some(limit));
    let inspection = LiveRound::open(round, &context.observer);
    let command = Command::new(&request.lock_id, Action::Inspect);
    masters.post(command, inspection.clone());
    inspection.settled().await;
    inspection.read(|round| round.every_set_has_in_time(Vote::is_reply))
}
