//! Waits for a mutex or a reentrant lock. The waiters of a coordinator make attempts in turn, at
//! times when the lock is likely to be free.

use std::{sync::OnceLock, time::Duration};

use super::{
    attempt::{Attempted, attempt, attempt_timeout, majority_answers},
    deadline::Deadline,
    denied::Denied,
};
use crate::{
    core::{
        error::AcquireError,
        time::lease::LeaseTime,
        vote::{MasterSet, obstacle::Obstacle},
        wait::pauses::Pauses,
    },
    driver::{
        claim::{ask::LockRequest, level::Level},
        context::Context,
        time::clock,
        waiting::local_waiters::LocalWaiter,
    },
};

/// Makes attempts until one wins the lock. If there is a deadline, the last attempt begins at the
/// deadline. If no one is known to want the lock, the caller tries to get it before it begins to
/// wait.
pub(super) async fn contend(
    request: &LockRequest,
    deadline: &Deadline,
) -> Result<Level, AcquireError> {
    let context = &request.context;
    let waiters = &context.local_waiters;
    let waiter = OnceLock::new();
    let join = || waiters.join(&context.masters, &context.timers, &request.lock_id);
    let mut first = None;
    if waiters.is_calm(&request.lock_id) && !deadline.is_over() && !context.is_aside() {
        let at = clock::now();
        let permit_by = || deadline.permit_by(attempt_timeout(request));
        let listen = || waiter.get_or_init(join).listen();
        let watch = || waiters.are_told().then(listen).is_some();
        match attempt(request, permit_by, None, Some(watch)).await? {
            Attempted::Won(level) => {
                note_win(request, Start::Plain, at);
                return Ok(level);
            }
            Attempted::Denied(denied) => first = Some((denied, at)),
        }
    }
    let waiter = waiter.into_inner().unwrap_or_else(join);
    let mut contest = Contest::begin(request, deadline, waiter);
    if let Some((denied, at)) = first {
        contest.on_denied(&denied, None, at, false).await?;
    }
    contest.win().await
}

/// Notes an attempt that began at `at` and won the lock.
fn note_win(request: &LockRequest, start: Start, at: LeaseTime) {
    let context = &request.context;
    context.local_waiters.history(&request.lock_id, |history| {
        match start {
            Start::Plain | Start::NextInLine => history.run.end(),
            Start::HandedOver => history.run.note_hand_over(clock::now()),
            Start::GaveWay => history.run.note_way(true),
        }
        history.note(false);
    });
    context.note_reach(true, at);
}

/// A wait for a lock without queues on the masters.
///
/// The clients that wait for a lock notice a release at about the same time. If all of them asked
/// all masters, each would get some masters, and none a majority. So they ask the agreed
/// master before the others, and only the client that gets it asks the others.
struct Contest<'a> {
    context: &'a Context,
    request: &'a LockRequest,
    deadline: &'a Deadline,
    waiter: LocalWaiter<'a>,
    pauses: Pauses,
    /// The masters that are likely to be free.
    free: MasterSet,
    /// The time when all masters are asked again at the latest.
    ask_all_at: LeaseTime,
    /// `true` if news led to the last attempt, at once.
    has_news: bool,
    /// `true` after an attempt that got the agreed master and not the others, until the next one
    /// that follows news at once. Other clients ask all masters at once then, and a waiter that
    /// asks in two steps loses to them.
    was_outrun: bool,
    /// The time that the last attempt took.
    took: Duration,
    /// The number of checks since the waiter is aside.
    checks: u32,
}

/// The way in which an attempt begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// After a pause in which other processes could take the lock.
    GaveWay,
    /// Right after the release by a guard of this process.
    HandedOver,
    /// Right after another waiter of this process, which probably has the lock now.
    NextInLine,
    /// In no such case.
    Plain,
}

impl<'a> Contest<'a> {
    fn begin(request: &'a LockRequest, deadline: &'a Deadline, waiter: LocalWaiter<'a>) -> Self {
        let context = &*request.context;
        Self {
            context,
            request,
            deadline,
            waiter,
            pauses: Pauses::new(context.config.retry, context.config.poll),
            free: MasterSet::ALL,
            ask_all_at: next_poll(context),
            has_news: false,
            was_outrun: false,
            took: Duration::ZERO,
            checks: 0,
        }
    }

    /// Makes attempts until one wins the lock, or until the deadline.
    async fn win(mut self) -> Result<Level, AcquireError> {
        let (context, request) = (self.context, self.request);
        loop {
            let start = self.wait_for_turn().await;
            let is_last = self.deadline.is_over();
            let attempt_timeout = attempt_timeout(request);
            let permit_by = self.deadline.permit_by(attempt_timeout);
            self.waiter.expect(permit_by + attempt_timeout);
            let is_aside = !is_last && context.is_aside();
            if is_aside && !majority_answers(request).await {
                self.wait_aside().await?;
                continue;
            }
            self.checks = 0;
            self.waiter.begin_attempt();
            let (agreed, at) = (self.choose_agreed(start, is_last), clock::now());
            let listen = || self.waiter.listen();
            let watch = || context.local_waiters.are_told().then(listen).is_some();
            let watch = (!is_last).then_some(watch);
            match attempt(request, || permit_by, agreed, watch).await? {
                Attempted::Won(level) => {
                    note_win(request, start, at);
                    return Ok(level);
                }
                Attempted::Denied(denied) => {
                    self.waiter.history(|history| match start {
                        Start::HandedOver => history.run.end(),
                        Start::GaveWay => history.run.note_way(false),
                        // A guard of this process may have the lock.
                        Start::Plain | Start::NextInLine => {}
                    });
                    self.on_denied(&denied, agreed, at, is_last).await?;
                }
            }
        }
    }

    /// Notes an attempt that began at `at` and was not won. Waits until another one may win.
    async fn on_denied(
        &mut self,
        denied: &Denied,
        agreed: Option<usize>,
        at: LeaseTime,
        is_last: bool,
    ) -> Result<(), AcquireError> {
        self.took = clock::now().saturating_duration_since(at);
        let took_some = denied.took_some();
        let is_split = denied.obstacle == Obstacle::Split;
        let is_taken = is_split || matches!(denied.obstacle, Obstacle::HeldFor(_));
        // A lock that others have had for long does not tell that they ask for it now.
        if is_split || is_taken && (took_some || self.has_news) {
            self.waiter.history(|history| history.note(true));
        }
        self.was_outrun = match agreed {
            Some(_) if is_taken && took_some => true,
            _ => self.was_outrun && !self.has_news,
        };
        if let Some(is_reached) = denied.is_reached() {
            self.context.note_reach(is_reached, at);
        }
        self.deadline.note_failure(self.request, denied, is_last)?;
        self.context.check_open()?; // closing wakes only waiters that have joined
        self.wait(denied).await;
        Ok(())
    }

    /// Waits for this waiter's turn, and gives way to other processes after a run.
    async fn wait_for_turn(&mut self) -> Start {
        let mut start = Start::Plain;
        if self.waiter.wait_for_turn(self.deadline.end).await {
            start = Start::NextInLine;
            // What this waiter knew is older than the attempts of the waiter before it.
            (self.free, self.has_news) = (MasterSet::ALL, false);
        }
        if !self.waiter.is_released() {
            return start;
        }
        let (now, are_told) = (clock::now(), self.waiter.agreed(MasterSet::ALL).is_some());
        if !(self.waiter).history(|history| history.run.is_over(are_told, now)) {
            return Start::HandedOver;
        }
        let end = now + self.time_to_give_way(are_told);
        self.waiter.sleep_until(self.deadline.cap(end)).await;
        self.free = MasterSet::ALL;
        Start::GaveWay
    }

    /// Returns the agreed master if it is asked before the others, or `None` if all are asked at
    /// once.
    ///
    /// All are asked from time to time, because the agreed master may have kept a key that the
    /// others have lost.
    fn choose_agreed(&mut self, start: Start, is_last: bool) -> Option<usize> {
        let is_one_asked = !is_last
            && clock::now() < self.ask_all_at
            && match start {
                Start::NextInLine => true,
                Start::HandedOver => false, // these commands come first, so they get all masters
                Start::Plain | Start::GaveWay => {
                    let asks_all = self.was_outrun && self.has_news;
                    !asks_all && self.waiter.history(|history| history.are_rivals_likely())
                }
            };
        let agreed = is_one_asked
            .then(|| self.waiter.agreed(self.free))
            .flatten();
        match agreed {
            Some(_) => self.waiter.listen(), // that master reports the next change if it refuses
            None => self.ask_all_at = next_poll(self.context),
        }
        agreed
    }

    /// Returns for how long this waiter gives way. The rivals need it to notice that the lock is
    /// free, and to ask for it.
    fn time_to_give_way(&self, are_told: bool) -> Duration {
        const LEAST: Duration = Duration::from_millis(5);
        const MOST: Duration = Duration::from_millis(100);
        match are_told {
            true => (self.took * 2).clamp(LEAST, MOST),
            false => self.context.config.retry.most().min(MOST * 2) + self.took,
        }
    }

    /// Waits until the next check whether a majority of masters answer in time.
    async fn wait_aside(&mut self) -> Result<(), AcquireError> {
        self.context.check_open()?;
        let end = self.deadline.cap(self.context.retry_at(self.checks));
        self.waiter.sleep_until(end).await;
        self.checks = self.checks.saturating_add(1);
        Ok(())
    }

    /// Waits until another attempt may win.
    async fn wait(&mut self, denied: &Denied) {
        if denied.obstacle == Obstacle::OwnerBusy {
            self.waiter.step_back(); // other owners do not wait for the tasks of this owner
        }
        let wanted = denied.wanted_by_others();
        let (now, random) = (clock::now(), clock::random_u64());
        let took_some = denied.took_some();
        let is_told = self.waiter.agreed(wanted).is_some();
        let wait = (self.pauses).after(&denied.obstacle, took_some, is_told, random);
        let pause = wait.pause.max(self.pauses.rest(now)).min(wait.end);
        if !pause.is_zero() {
            let end = self.deadline.cap(now + pause);
            self.waiter.pause_until(end).await;
        }
        let end = self.deadline.cap(now + wait.end);
        let watching = denied.watching.as_ref();
        let news = self.waiter.wait_for_news(watching, wanted, end).await;
        self.has_news = news.is_some() && pause.is_zero();
        self.free = news.unwrap_or(MasterSet::NONE);
    }
}

/// Returns when all masters are asked again at the latest.
fn next_poll(context: &Context) -> LeaseTime {
    clock::now() + context.config.poll.most()
}
