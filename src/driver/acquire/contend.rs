//! Waits for a mutex or a reentrant lock. The waiters of a coordinator make attempts in turn, at
//! times when the lock is likely to be free.

use std::{sync::Arc, time::Instant};

use super::{
    attempt::{attempt, attempt_timeout},
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
    let mut contest = Contest::begin(context, request, deadline);
    contest.give_way(Event::Came).await;
    loop {
        // A waiter that stepped back, or was silent for too long, has lost its turn.
        if let Some(event) = contest.waiter.turn(contest.deadline.end).await {
            contest.give_way(event).await;
        }
        let is_last = contest.deadline.is_over();
        let attempt_timeout = attempt_timeout(context, request);
        let permit_by = contest.deadline.permit_by(attempt_timeout);
        contest.waiter.expect(permit_by + attempt_timeout);
        if !is_last && !may_win(context, request, contest.chances).await {
            contest.wait_aside().await?;
            continue;
        }
        contest.checks = 0;
        contest.waiter.begin_attempt();
        let start = clock::now();
        let denied = match contest.attempt(permit_by, is_last, start).await {
            Err(NotAcquired::Denied(denied)) => denied,
            result => return result,
        };
        let deadline = &contest.deadline;
        deadline.note_failure(context, request, &denied, is_last)?;
        contest.wait(&denied, start).await;
    }
}

/// A wait for a lock without queues on the masters.
struct Contest<'a> {
    context: &'a Arc<Context>,
    request: &'a LockRequest,
    deadline: Deadline,
    waiter: LocalWaiter<'a>,
    contender: Contender,
    /// The master to ask before the others. `None` if all masters are asked at once.
    first: Option<usize>,
    /// The time when all masters are asked again at the latest.
    ask_all_at: Instant,
    chances: Chances,
    /// The number of checks since the waiter is aside.
    checks: u32,
}

impl<'a> Contest<'a> {
    fn begin(context: &'a Arc<Context>, request: &'a LockRequest, deadline: Deadline) -> Self {
        let (waiters, masters) = (&context.local_waiters, &context.masters);
        Self {
            context,
            request,
            deadline,
            waiter: waiters.join(masters, &context.timers, &request.lock_id),
            contender: Contender::new(context.config.retry, context.config.poll),
            first: None,
            ask_all_at: next_poll(context),
            chances: context.chances(),
            checks: 0,
        }
    }

    /// Gives way if the waiter must do so after `event`.
    async fn give_way(&mut self, mut event: Event) {
        loop {
            let (pause, then) = match self.waiter.next(&mut self.contender, event) {
                Next::Ask(first) => {
                    self.first = self.waiter.agreed(first);
                    return;
                }
                Next::GiveWay(pause) => (pause, Event::GaveWay),
                Next::LeaveToPollers(pause) => (pause, Event::LeftToPollers),
            };
            let end = self.deadline.cap(clock::now() + pause);
            self.waiter.sleep_until(end).await;
            event = then;
        }
    }

    /// Waits until the next check whether a majority of masters answer in time.
    async fn wait_aside(&mut self) -> Result<(), NotAcquired> {
        self.context.check_open()?;
        let end = self.deadline.cap(self.context.retry_at(self.checks));
        self.waiter.sleep_until(end).await;
        self.checks = self.checks.saturating_add(1);
        Ok(())
    }

    /// Makes the attempt that begins at `start`.
    async fn attempt(
        &mut self,
        permit_by: Instant,
        is_last: bool,
        start: Instant,
    ) -> Result<Level, NotAcquired> {
        self.ask_all_once_in_a_poll();
        let waiter = (!is_last).then_some(&self.waiter);
        let first = waiter.and(self.first);
        let result = attempt(self.context, self.request, || permit_by, first, waiter).await;
        match &result {
            Ok(level) => self.note_attempt(start, Ok(level)),
            Err(NotAcquired::Denied(denied)) => self.note_attempt(start, Err(denied)),
            Err(_) => {}
        }
        result
    }

    /// Asks all masters if it is time to do so. The one that is asked first may be wrong: it may
    /// have kept a key that the others have lost.
    fn ask_all_once_in_a_poll(&mut self) {
        if clock::now() >= self.ask_all_at {
            self.first = None;
        }
        if self.first.is_none() {
            self.ask_all_at = next_poll(self.context);
        }
    }

    /// Notes the result of the attempt that began at `start`.
    fn note_attempt(&mut self, start: Instant, result: Result<&Level, &Denied>) {
        let attempt = match result {
            Ok(level) => Ok(level.claim.newest_round().read(Round::held_by_others)),
            Err(denied) => Err(&denied.obstacle),
        };
        let contender = &self.contender;
        (self.waiter).rivals(|rivals| contender.note(attempt, rivals, clock::now()));
        if contender.shows_others(attempt) {
            self.waiter.note_others();
        }
        let chance = result.map_or_else(Denied::chance, |_| Chance::Had);
        self.chances = self.context.note_chance(chance, start);
    }

    /// Waits until another attempt may win. The last attempt began at `start`.
    async fn wait(&mut self, denied: &Denied, start: Instant) {
        if denied.obstacle == Obstacle::OwnerBusy {
            self.waiter.step_back(); // other owners do not wait for the tasks of this owner
        }
        let now = clock::now();
        let failed = FailedAttempt {
            obstacle: &denied.obstacle,
            took_some: denied.took_some(),
            is_heard: denied.watched.is_heard(self.waiter.masters),
            expiry: denied.expiry(start),
            took: now.saturating_duration_since(start),
        };
        let wait = self.contender.wait_after(failed, clock::random_u64());
        if !wait.pause.is_zero() {
            let end = self.deadline.cap(now + wait.pause);
            self.waiter.pause_until(end).await;
        }
        let end = self.deadline.cap(now + wait.end);
        let event = self.waiter.event(&denied.watched, end).await;
        let event = event.unwrap_or_else(|| Event::Silence {
            free: denied.free(),
        });
        self.give_way(event).await;
    }
}

/// Returns when all masters are asked again at the latest.
fn next_poll(context: &Context) -> Instant {
    clock::now() + context.config.poll.spread(clock::random_u64())
}
