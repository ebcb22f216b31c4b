//! Waits for a mutex or a reentrant lock. The waiters of a coordinator make attempts in turn, at
//! times when the lock is likely to be free.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::{
    attempt::{Waiting, attempt},
    deadline::Deadline,
    denied::{Denied, NotAcquired},
};
use crate::{
    core::{
        vote::{master_set::MasterSet, refused::Refused, round::Round},
        wait::{
            chances::{Chance, Chances},
            false_reports::FalseReports,
            policy::{LastAttempt, Wait, WaitPolicy, next_wait},
            run::Cause,
        },
    },
    driver::{
        ask::reachability::may_win,
        claim::{Level, LockRequest},
        masters::Masters,
        shared::Shared,
        time::clock,
        waiting::local_waiters::{Event, LocalWaiter},
    },
};

/// The plan for an attempt.
#[derive(Clone, Copy, Debug)]
struct Plan {
    cause: Cause,
    /// The master to ask before the others. `None` if all masters are asked at once.
    first: Option<usize>,
}

impl Plan {
    /// Returns the plan for the first attempt of a waiter.
    fn initial(waiter: &LocalWaiter<'_>) -> Self {
        Self {
            cause: Cause::Time,
            first: waiter.first_of_all(),
        }
    }

    /// Returns the plan for a waiter that has just got its turn.
    async fn after_turn(waiter: &LocalWaiter<'_>, deadline: Deadline) -> Self {
        let cause = match waiter.gives_way_for(Duration::ZERO) {
            Some(pause) if waiter.is_released() => give_way(waiter, pause, deadline).await,
            Some(_) | None => Cause::Turn,
        };
        // The waiter before this one probably has the lock.
        let first = waiter.agreed(MasterSet::ALL);
        Self { cause, first }
    }

    /// Asks all masters if it is time to do so. The one that is asked first may be wrong: it may
    /// have kept a key that the others have lost.
    fn ask_all_once_in_a_poll(&mut self, ask_all_at: &mut Instant, masters: &Masters) {
        if clock::now() >= *ask_all_at {
            self.first = None;
        }
        if self.first.is_none() {
            *ask_all_at = next_poll(masters);
        }
    }

    fn waiting<'a>(self, waiter: &'a LocalWaiter<'a>) -> Waiting<'a> {
        Waiting {
            waiter,
            first: self.first,
        }
    }
}

/// Makes attempts until one wins the lock. If there is a deadline, the last attempt begins at the
/// deadline.
pub(in crate::driver) async fn contend(
    shared: &Shared,
    request: &LockRequest,
    deadline: Deadline,
) -> Result<Level, NotAcquired> {
    let masters = shared.masters();
    let mut waiter = (shared.context.local_waiters).join(masters, &request.resource);
    let mut plan = Plan::initial(&waiter);
    let (mut streak, mut attempts) = (Streak::default(), 0_u32);
    let (mut chances, mut ask_all_at) = (shared.chances(), next_poll(masters));
    for failures in 0.. {
        // Waits for the turn of this waiter. Before a later attempt, the waiter still has its turn
        // in most cases. It loses its turn if it steps back, or if it is silent for so long that
        // another waiter takes over.
        if waiter.turn(deadline.end).await {
            plan = Plan::after_turn(&waiter, deadline).await;
        }
        let is_last = deadline.is_over();
        let timeout = masters.attempt_timeout();
        let permit_by = deadline.permit_by(timeout);
        waiter.expect(permit_by + timeout);
        if !is_last && !may_win(shared, request, chances).await {
            shared.check_open()?;
            let at = deadline.limit(shared.retry_at(failures));
            waiter.sleep_until(at).await;
            continue;
        }
        waiter.begin_attempt();
        let start = clock::now();
        plan.ask_all_once_in_a_poll(&mut ask_all_at, masters);
        let waiting = (!is_last).then(|| plan.waiting(&waiter));
        let denied = match attempt(shared, request, || permit_by, waiting).await {
            Ok(level) => {
                note_attempt(shared, &waiter, plan.cause, start, Ok(&level));
                return Ok(level);
            }
            Err(NotAcquired::Denied(denied)) => denied,
            Err(other) => return Err(other),
        };
        chances = note_attempt(shared, &waiter, plan.cause, start, Err(&denied));
        deadline.check(&denied, is_last, attempts)?;
        attempts = attempts.saturating_add(1);
        if denied.refused == Refused::OwnerBusy {
            waiter.step_back(); // other owners do not wait for the tasks of this owner
        }
        let wait = wait_after(masters, &denied, &mut streak, plan.cause, start);
        plan = wait_for_chance(&waiter, wait, &denied, start, deadline).await;
    }
    Err(NotAcquired::Closed) // only after 2^32 failures
}

/// Returns when all masters are asked again at the latest.
fn next_poll(masters: &Masters) -> Instant {
    let poll = masters.config().poll;
    clock::now() + poll.delay(u32::MAX, clock::random_u64())
}

/// Lets the waiters of other processes go first.
async fn give_way(waiter: &LocalWaiter<'_>, pause: Duration, deadline: Deadline) -> Cause {
    let end = deadline.limit(clock::now() + pause);
    waiter.sleep_until(end).await;
    Cause::GaveWay
}

/// Notes the result of an attempt that began at `start`. Returns the new chances.
fn note_attempt(
    shared: &Shared,
    waiter: &LocalWaiter<'_>,
    cause: Cause,
    start: Instant,
    result: Result<&Level, &Denied>,
) -> Chances {
    waiter.note_attempt(cause, result.is_ok(), rival(cause, result));
    let chance = result.map_or_else(Denied::chance, |_| Chance::Had);
    shared.note_chance(chance, start)
}

/// Returns whether an attempt met another client that asked for the lock at the same moment. `None`
/// if the attempt does not tell.
fn rival(cause: Cause, result: Result<&Level, &Denied>) -> Option<bool> {
    match result.map_err(|denied| &denied.refused) {
        Err(Refused::Split) => Some(true),
        Err(Refused::HeldUntil(_)) if cause == Cause::Changed => Some(true),
        Ok(level) if matches!(cause, Cause::Changed | Cause::Time) => {
            Some(!level.newest_round().read(Round::held).is_empty())
        }
        _ => None,
    }
}

/// The attempts in a row that failed for the same reason, and the false reports in a row.
#[derive(Debug, Default)]
struct Streak {
    /// The reason, and whether masters granted the lock for a moment.
    reason: Option<(mem::Discriminant<Refused>, bool)>,
    count: u32,
    false_reports: FalseReports,
}

impl Streak {
    /// Notes a failed attempt. Returns the number of attempts before it in the row.
    fn note(&mut self, refused: &Refused, took_some: bool) -> u32 {
        let reason = Some((mem::discriminant(refused), took_some));
        self.count = if self.reason == reason {
            self.count.saturating_add(1)
        } else {
            0
        };
        self.reason = reason;
        self.count
    }
}

/// Returns the wait after an attempt that began at `start`.
fn wait_after(
    masters: &Masters,
    denied: &Denied,
    streak: &mut Streak,
    cause: Cause,
    start: Instant,
) -> Wait {
    let config = masters.config();
    let policy = WaitPolicy {
        retry: config.retry,
        poll: config.poll,
    };
    let took_some = denied.took_some();
    if let Some(expiry) = denied.expiry(start) {
        streak.false_reports.note(expiry, cause == Cause::Changed);
    }
    let last = LastAttempt {
        refused: &denied.refused,
        took_some,
        is_heard: denied.watched.is_heard(masters),
        failures: streak.note(&denied.refused, took_some),
        false_reports: streak.false_reports.count(),
    };
    next_wait(last, policy, clock::random_u64())
}

/// Waits until another attempt may win, and plans it. The last attempt began at `start`.
///
/// The clients that wait for the lock notice a release at about the same time. If all of them asked
/// all masters, each would get some masters, and none a majority. So if there are several such
/// clients, they ask one master first, and only the client that gets this master asks the others.
async fn wait_for_chance(
    waiter: &LocalWaiter<'_>,
    wait: Wait,
    denied: &Denied,
    start: Instant,
    deadline: Deadline,
) -> Plan {
    let now = clock::now();
    let took = now.saturating_duration_since(start);
    if !wait.pause.is_zero() {
        waiter.pause_until(deadline.limit(now + wait.pause)).await;
    }
    let event = waiter
        .event(&denied.watched, deadline.limit(now + wait.end))
        .await;
    let (cause, first) = match event {
        Some(Event::Released) => match waiter.gives_way_for(took) {
            Some(pause) => {
                let cause = give_way(waiter, pause, deadline).await;
                (cause, waiter.agreed(MasterSet::ALL))
            }
            // The commands of this waiter come right after the release, so it gets all masters.
            None => (Cause::Released, None),
        },
        Some(Event::Changed(free)) if free.ask_first => (Cause::Changed, waiter.agreed(free.first)),
        Some(Event::Changed(free)) => (Cause::Changed, waiter.first(free.first)),
        None if wait.is_contested => (Cause::Time, waiter.first(denied.free())),
        None => (Cause::Time, None),
    };
    Plan { cause, first }
}
