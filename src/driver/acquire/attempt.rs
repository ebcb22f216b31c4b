//! Makes one attempt at a lock, or only finds out whether an attempt may win.

use std::{sync::Arc, time::Duration};

use super::denied::{Deadline, Denied};
use crate::{
    clock,
    core::{
        error::{Asked, ExtendError},
        protocol::{Action, Command, Identity, Ticket, command::MORE_BALLOTS, name::Token},
        reason::Reason,
        vote::{Outcome, Round, Vote},
    },
    driver::claim::{ClaimHandle, Level, ask::LockRequest, owned_lock::OwnedLock},
};

/// Makes one attempt. Returns the lock, or why the attempt was denied. If the request has an owner,
/// waits until the owner's other attempts at this lock are over. If that takes longer than an
/// attempt, or than the `deadline` allows, sends nothing. If there is an `agreed` master, asks it
/// before the other masters. A caller that will try again passes a `watch`. If the attempt asks all
/// masters and does not win the lock, it calls `watch` before its release. If `watch` returns
/// `true`, masters report the next change of the lock.
pub(super) async fn attempt(
    request: &LockRequest,
    deadline: Option<&Deadline>,
    agreed: Option<usize>,
    watch: Option<&(dyn Fn() -> bool + Sync)>,
) -> Result<Level, Denied> {
    let context = &request.context;
    context.check_open()?;
    let Some(owner) = &request.owner else {
        let level = begin_by_token(request, agreed);
        return decide(request, level, agreed, watch).await;
    };
    let (owned, timers) = (owner.lock(&request.lock_id), &context.timers);
    // Also tries to reenter before the wait for the permit. A task that is reentering does not poll
    // its other future, which may have the permit.
    if let Some(reentered) = reenter(request, &owned).await? {
        return Ok(reentered);
    }
    let timeout = attempt_timeout(request);
    let permit_by = deadline.map_or_else(
        || clock::now() + timeout,
        |deadline| deadline.permit_by(timeout, watch.is_none()),
    );
    let Some(_permit) = owned.permit(Some(permit_by), timers).await else {
        context.check_open()?; // the wait ends early if the timers end
        return Err(Reason::OwnerBusy.into());
    };
    if let Some(reentered) = reenter(request, &owned).await? {
        return Ok(reentered);
    }
    owned.check_attempt().map_err(Reason::Config)?;
    let has_queue = request.lock_id.kind().has_queue();
    let ticket = has_queue.then(|| Ticket::new(context.timestamps.next(), owner.id()));
    let identity = owner.identity(ticket);
    let claim = ClaimHandle::begin(request, identity, agreed, None);
    let level = Level::new(claim, request.access, Some(owned.clone()));
    let level = decide(request, level, agreed, watch).await?;
    owned.won(&level.claim);
    Ok(level)
}

/// Begins an attempt at a mutex, with a new token. If there is an `agreed` master, asks only that
/// master at first.
pub(super) fn begin_by_token(request: &LockRequest, agreed: Option<usize>) -> Level {
    let client = request.context.config.client_name.as_ref();
    let client = client.map(|client| (client, clock::wall_micros() / 1_000));
    let identity = Identity::Token(Token::new(clock::random(), client));
    let claim = ClaimHandle::begin(request, identity, agreed, None);
    Level::new(claim, request.access, None)
}

/// Returns the longest time that an attempt takes. An attempt may ask one master, then asks all
/// masters, and may hold further ballots for a fencing token. Finally, it waits for the answers to
/// its release. Its first round may also wait until the masters are dialled.
pub(super) fn attempt_timeout(request: &LockRequest) -> Duration {
    let context = &request.context;
    let ballots = if request.is_fenced { MORE_BALLOTS } else { 0 };
    let rounds = context.response_timeout() * (3 + ballots);
    let undialled = context.machine.lock(|machine| machine.undialled());
    if undialled.is_empty() {
        rounds
    } else {
        rounds + context.config.connect_timeout
    }
}

/// Waits for the outcome of the attempt. Takes the attempt back if it was not won. If the lock has
/// no slots, and an `agreed` master refuses the lock, asks no other master.
async fn decide(
    request: &LockRequest,
    level: Level,
    agreed: Option<usize>,
    watch: Option<&(dyn Fn() -> bool + Sync)>,
) -> Result<Level, Denied> {
    let asks_anyway = level.claim.kind().spec().has_slots; // other masters may have a free slot
    if let Some(agreed) = agreed
        && let Some(reason) = level.claim.ask_agreed(agreed, asks_anyway).await
    {
        let round = level.claim.newest_round();
        let mut denied = Denied::new(reason, Some(round.clone()));
        denied.watching = Some(round);
        return Err(denied);
    }
    match level.claim.conclude(watch.is_some(), |_| true).await {
        Outcome::Won => Ok(level),
        outcome => {
            let is_watched = watch.is_some_and(|watch| watch());
            Err(take_back(request, &level, outcome, is_watched).await)
        }
    }
}

/// Releases what a round that was not won may have left on the masters. Returns why the round was
/// not won.
///
/// The answers to the release say for how long other clients hold the lock. The answers to a `SET`
/// that acquires a mutex do not say this. If `is_watched`, every master reports the next change.
pub(super) async fn take_back(
    request: &LockRequest,
    level: &Level,
    outcome: Outcome,
    is_watched: bool,
) -> Denied {
    let context = &request.context;
    let acquisition = (!context.is_forked()).then(|| level.claim.newest_round());
    let Some((acquisition, release)) = acquisition.zip(level.end(is_watched)) else {
        return Reason::Closed.into(); // after a fork
    };
    if outcome == Outcome::NoMajority {
        // One refusal and one failure may be enough to lose the round. Only the other votes tell
        // whether the reason is another holder or a lack of masters.
        let is_clear = |round: &Round, undialled| {
            let missing = round.unanswered() - undialled;
            let is_clear = round.is_disputed() || round.lacks_masters() || missing.is_empty();
            is_clear.then_some(())
        };
        acquisition.until(is_clear).await;
    }
    if outcome == Outcome::NoMajority && acquisition.read(Round::is_disputed) {
        context.in_time(release.decided()).await;
    } else {
        context.in_time(release.settled()).await; // so that an error shows every vote
    }
    let mut denied = if release.read(Round::is_other_kind) {
        // The answer to a `SET` says that the key exists, but not which kind of lock it belongs to.
        Denied::new(Reason::OtherKind, Some(release.clone()))
    } else {
        Denied::by(acquisition, outcome, release.read(Round::free_in))
    };
    if is_watched && matches!(denied.reason, Reason::Held { .. }) {
        denied.watching = Some(release.clone());
    }
    denied.note(request);
    denied
}

/// Adds a level to the claim of the owner. Returns `None` if the owner does not hold the lock, or
/// loses the lock meanwhile.
pub(super) async fn reenter(
    request: &LockRequest,
    owned: &Arc<OwnedLock>,
) -> Result<Option<Level>, Denied> {
    let Some(claim) = owned.claim(&request.context) else {
        return Ok(None);
    };
    let Some((level, round)) = claim.reenter(owned.clone(), request)? else {
        return Ok(None);
    };
    let refused = match claim.confirm_extension(&round).await {
        Ok(()) => return Ok(Some(level)),
        Err(ExtendError::NoQuorum(error)) => match error.asked {
            Asked::ExtendTooLate => {
                let elapsed = round.elapsed(clock::now());
                Reason::TooSlow { elapsed }
            }
            _ => Reason::NoQuorum,
        },
        // The lock was lost, and the owner's other guards report the loss. The caller goes on as if
        // the owner had never held the lock.
        Err(_) => return Ok(None),
    };
    Err(Denied::new(refused, Some(round)))
}

/// Returns whether a majority of every set of masters answers an inspection in time. An answer is
/// in time if a lock that was requested together with the inspection would still be valid when the
/// answer comes. An error counts as an answer. The next attempt shows whether the error matters.
pub(super) async fn majority_answers(request: &LockRequest) -> bool {
    let (context, masters) = (&request.context, &request.context.machine);
    let mut answers = masters.has_quorum();
    if answers {
        let usable = context.config.drift.usable(request.ttl);
        let inspection = context.ask(
            Command::new(&request.lock_id, Action::Inspect),
            Some(usable),
        );
        inspection.settled().await;
        answers = inspection.read(|round| round.every_set_has_in_time(Vote::is_reply));
    }
    if !answers {
        context.note_no_masters(request.lock_id.name());
    }
    answers
}
