//! Waits for a mutex or a reentrant lock. The waiters of a coordinator make attempts in turn, at
//! times when the lock is likely to be free.

use std::{sync::Arc, time::Instant};

use super::{
    attempt::{Waiting, attempt},
    deadline::Deadline,
    denied::{Denied, NotAcquired},
};
use crate::{
    core::{
        vote::{obstacle::Obstacle, round::Round},
        wait::{
            chances::{Chance, Chances},
            contender::{Contender, Event, FailedAttempt, Next},
        },
    },
    driver::{
        claim::{level::Level, request::LockRequest},
        context::Context,
        query::reachability::may_win,
        time::clock,
        waiting::local_waiters::LocalWaiter,
    },
};

/// Makes attempts until one wins the lock. If there is a deadline, the last attempt begins at the
/// deadline.
pub(in crate::driver) async fn contend(
    context: &Arc<Context>,
    request: &LockRequest,
    deadline: Deadline,
) -> Result<Level, NotAcquired> {
    let masters = &context.masters;
    let mut waiter = (context.local_waiters).join(masters, &context.timers, &request.lock_id);
    let mut contender = Contender::new(context.config.retry, context.config.poll);
    let mut first = give_way(&waiter, &mut contender, Event::Came, deadline).await;
    let (mut chances, mut attempts, mut ask_all_at) =
        (context.chances(), 0_u32, next_poll(context));
    let mut hopeless = 0_u32;
    loop {
        // A waiter that stepped back, or was silent for too long, has lost its turn.
        if let Some(event) = waiter.turn(deadline.end).await {
            first = give_way(&waiter, &mut contender, event, deadline).await;
        }
        let is_last = deadline.is_over();
        let permit_by = deadline.permit_by(context.attempt_timeout());
        waiter.expect(permit_by + context.attempt_timeout());
        if !is_last && !may_win(context, request, chances).await {
            context.check_open()?;
            let retry_at = context.retry_at(hopeless);
            waiter.sleep_until(deadline.cap(retry_at)).await;
            hopeless = hopeless.saturating_add(1);
            continue;
        }
        waiter.begin_attempt();
        let start = clock::now();
        ask_all_once_in_a_poll(&mut first, &mut ask_all_at, context);
        let waiting = (!is_last).then_some(Waiting {
            waiter: &waiter,
            first,
        });
        let denied = match attempt(context, request, || permit_by, waiting).await {
            Ok(level) => {
                note_attempt(context, &waiter, &contender, start, Ok(&level));
                return Ok(level);
            }
            Err(NotAcquired::Denied(denied)) => denied,
            Err(other) => return Err(other),
        };
        chances = note_attempt(context, &waiter, &contender, start, Err(&denied));
        deadline.check(&denied, is_last, attempts)?;
        attempts = attempts.saturating_add(1);
        first = wait(&mut waiter, &mut contender, &denied, start, deadline).await;
    }
}

/// Gives way if the waiter must do so after `event`. Returns the master to ask first.
async fn give_way(
    waiter: &LocalWaiter<'_>,
    contender: &mut Contender,
    mut event: Event,
    deadline: Deadline,
) -> Option<usize> {
    loop {
        let (pause, then) = match waiter.next(contender, event) {
            Next::Ask(first) => return waiter.agreed(first),
            Next::GiveWay(pause) => (pause, Event::GaveWay),
            Next::LeaveToPollers(pause) => (pause, Event::LeftToPollers),
        };
        let end = deadline.cap(clock::now() + pause);
        waiter.sleep_until(end).await;
        event = then;
    }
}

/// Asks all masters if it is time to do so. The one that is asked first may be wrong: it may have
/// kept a key that the others have lost.
fn ask_all_once_in_a_poll(first: &mut Option<usize>, ask_all_at: &mut Instant, context: &Context) {
    if clock::now() >= *ask_all_at {
        *first = None;
    }
    if first.is_none() {
        *ask_all_at = next_poll(context);
    }
}

/// Returns when all masters are asked again at the latest.
fn next_poll(context: &Context) -> Instant {
    clock::now() + context.config.poll.delay(u32::MAX, clock::random_u64())
}

/// Notes the result of an attempt that began at `start`. Returns the new chances.
fn note_attempt(
    context: &Context,
    waiter: &LocalWaiter<'_>,
    contender: &Contender,
    start: Instant,
    result: Result<&Level, &Denied>,
) -> Chances {
    let attempt = match result {
        Ok(level) => Ok(level.claim.newest_round().read(Round::held_by_others)),
        Err(denied) => Err(&denied.obstacle),
    };
    waiter.rivals(|rivals| contender.note(attempt, rivals, clock::now()));
    if contender.shows_others(attempt) {
        waiter.note_others();
    }
    let chance = result.map_or_else(Denied::chance, |_| Chance::Had);
    context.note_chance(chance, start)
}

/// Waits until another attempt may win. The last attempt began at `start`. Returns the master to
/// ask first.
async fn wait(
    waiter: &mut LocalWaiter<'_>,
    contender: &mut Contender,
    denied: &Denied,
    start: Instant,
    deadline: Deadline,
) -> Option<usize> {
    if denied.obstacle == Obstacle::OwnerBusy {
        waiter.step_back(); // other owners do not wait for the tasks of this owner
    }
    let now = clock::now();
    let failed = FailedAttempt {
        obstacle: &denied.obstacle,
        took_some: denied.took_some(),
        is_heard: denied.watched.is_heard(waiter.masters),
        expiry: denied.expiry(start),
        took: now.saturating_duration_since(start),
    };
    let wait = contender.wait_after(failed, clock::random_u64());
    if !wait.pause.is_zero() {
        waiter.pause_until(deadline.cap(now + wait.pause)).await;
    }
    let end = deadline.cap(now + wait.end);
    let event = waiter.event(&denied.watched, end).await;
    let event = event.unwrap_or_else(|| Event::Silence {
        free: denied.free(),
    });
    give_way(waiter, contender, event, deadline).await
}
