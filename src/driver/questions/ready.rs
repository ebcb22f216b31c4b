//! Waits until enough masters can vote.

use std::time::Duration;

use crate::{
    clock,
    core::{
        protocol::{Action, Command},
        vote::{CastVote, Failure, Round, ServerError, Verb, Vote, Votes},
    },
    driver::{acquire::denied::Deadline, context::Context},
    machine::Machine,
};

/// Waits until enough masters can vote, or until too many deny a right. Asks all masters for the
/// last time when `limit` is over. Returns the votes of the last round. A vote is a grant if its
/// master can vote. Returns `None` if the coordinator is closed, or if its tasks have ended.
pub(crate) async fn ready(
    context: &Context,
    is_enough: fn(&Votes) -> bool,
    limit: Duration,
) -> Option<Votes> {
    /// The retry delay may be long, but a program that starts wants to go on.
    const LONGEST_PAUSE: Duration = Duration::from_millis(200);
    let deadline = Deadline::new(Some(limit));
    let mut failures = 0;
    loop {
        context.check_open().ok()?;
        let votes = ask(context, is_enough).await;
        if votes.are_closed() {
            return None;
        }
        if is_enough(&votes) {
            return Some(votes.sufficient());
        }
        if deadline.is_over() || votes.lacks_rights() {
            return Some(votes);
        }
        let pause = context.retry_at(failures).min(clock::now() + LONGEST_PAUSE);
        let pause = deadline.cap(pause);
        context.timers.sleep_until(pause).await;
        failures = failures.saturating_add(1);
    }
}

/// Asks all masters whether they take locks. Waits until the answer is certain, or until all
/// masters have answered or timed out.
async fn ask(context: &Context, is_enough: fn(&Votes) -> bool) -> Votes {
    let lock = context.config.key_template.example();
    let mut question = Command::new(&lock, Action::Probe);
    question.tries = context.machine.lock(|machine| machine.rights.missing());
    let forgives = question.tries.is_none();
    let round = context.ask(question, None);
    loop {
        let cast = round.cast();
        let count = cast.iter().flatten().count();
        let votes = judged(context, cast.clone(), forgives);
        if count == cast.len() || is_enough(&votes) || votes.lacks_rights() {
            return votes;
        }
        let is_more = |round: &Round, _| {
            let is_more = round.votes_cast().count() > count || round.is_settled();
            is_more.then_some(())
        };
        round.until(is_more).await;
    }
}

/// Judges the answers in `cast`. A denial of scripts counts, because each kind of lock needs
/// scripts. If too many masters denied a lock, the question tries the rights of that lock, and each
/// denial counts. Otherwise, a denial counts only if the master has also denied the last lock: the
/// locks of the program may not need the right that the question needs. The kinds of the two
/// denials are compared, and not the texts, because the denial of a script has another text.
fn judged(context: &Context, mut cast: Box<[Option<CastVote>]>, forgives: bool) -> Votes {
    let masters = &context.machine;
    for (cast, health) in cast.iter_mut().zip(masters.masters()) {
        if forgives
            && let Some(answer) = cast
            && let Vote::Fail(Failure::ErrorReply(error)) = answer.vote()
            && let denial = ServerError::of(error)
            && denial.is_denial()
            && !denial.is_about_scripts()
            && health.error.as_deref().map(ServerError::of) != Some(denial)
        {
            let is_first = |machine: &mut Machine| machine.rights.is_first_warning();
            if context.machine.lock(is_first) {
                let key = context.config.key_template.example();
                context
                    .observer()
                    .not_asked(&health.master, key.key(), error);
            }
            *cast = Some(CastVote::new(Vote::Grant, answer.latency()));
        }
    }
    Votes::new(masters.roster.clone(), cast, Verb::Probe)
}
