//! Waits for a mutex or a reentrant lock. The waiters of a coordinator make attempts in turn, at
//! times when the lock is likely to be free.

use std::sync::OnceLock;

use super::{
    attempt::{Attempted, attempt, attempt_timeout, majority_answers},
    deadline::Deadline,
    denied::Denied,
    local_waiter::LocalWaiter,
};
use crate::{
    clock,
    core::{
        error::AcquireError,
        time::tick::LeaseTick,
        vote::{MasterSet, obstacle::Obstacle},
        wait::contest::{ContestPolicy, Start},
    },
    driver::claim::{ask::LockRequest, level::Level},
};

/// Makes attempts until one wins the lock. If there is a deadline, the last attempt begins at the
/// deadline. If no one else is known to want the lock, makes the first attempt without waiting for
/// a turn.
pub(super) async fn contend(
    request: &LockRequest,
    deadline: &Deadline,
) -> Result<Level, AcquireError> {
    let (context, lock_id) = (&request.context, &request.lock_id);
    let waiter = OnceLock::new();
    let join = || LocalWaiter::join(context, lock_id);
    let mut first = None;
    if context.is_calm(lock_id) && !deadline.is_over() && !context.is_aside() {
        let at = clock::now();
        let watch = || waiter.get_or_init(join).listen();
        match attempt(request, Some(deadline), None, Some(&watch)).await? {
            Attempted::Won(level) => {
                note_win(request, Start::Plain, at);
                return Ok(level);
            }
            Attempted::Denied(denied) => first = Some((denied, at)),
        }
    }
    let waiter = waiter.into_inner().unwrap_or_else(join);
    let mut contest = Contest {
        request,
        deadline,
        waiter,
        policy: ContestPolicy::new(context.config.retry, context.config.poll, clock::now()),
    };
    if let Some((denied, at)) = first {
        contest.on_denied(&denied, None, at, false).await?;
    } else if !deadline.is_over() {
        contest.give_way(None).await;
    }
    contest.win().await
}

/// Notes an attempt that began at `at` and won the lock.
fn note_win(request: &LockRequest, start: Start, at: LeaseTick) {
    let context = &request.context;
    let now = clock::now();
    context.histories.visit(&request.lock_id, |history| {
        history.run.note(start, Some(now));
        history.note_won(now.since(at), now);
    });
    context.note_reach(true, at);
}

/// A wait for a lock without queues on the masters.
struct Contest<'a> {
    request: &'a LockRequest,
    deadline: &'a Deadline,
    waiter: LocalWaiter<'a>,
    policy: ContestPolicy,
}

impl Contest<'_> {
    /// Makes attempts until one wins the lock, or until the deadline.
    async fn win(mut self) -> Result<Level, AcquireError> {
        let (request, context) = (self.request, &self.request.context);
        let mut checks = 0_u32; // since the waiter stepped aside
        loop {
            let start = self.wait_for_turn().await;
            let is_last = self.deadline.is_over();
            let attempt_timeout = attempt_timeout(request);
            let permit_by = self.deadline.permit_by(attempt_timeout, is_last);
            self.waiter.expect(permit_by + attempt_timeout);
            let is_aside = !is_last && context.is_aside();
            if is_aside && !majority_answers(request).await {
                context.check_open()?;
                let end = self.deadline.cap(context.retry_at(checks));
                self.waiter.sleep_until(end).await;
                checks = checks.saturating_add(1);
                continue;
            }
            checks = 0;
            self.waiter.begin_attempt();
            let (agreed, at) = (self.choose_agreed(start, is_last), clock::now());
            let watch = || self.waiter.listen();
            let watch = (!is_last).then_some(&watch as _);
            match attempt(request, Some(self.deadline), agreed, watch).await? {
                Attempted::Won(level) => {
                    note_win(request, start, at);
                    return Ok(level);
                }
                Attempted::Denied(denied) => {
                    (self.waiter).history(|history| history.run.note(start, None));
                    self.on_denied(&denied, agreed, at, is_last).await?;
                }
            }
        }
    }

    /// Waits for this waiter's turn. After a run of hand-overs within this process, also gives way
    /// to other processes.
    async fn wait_for_turn(&mut self) -> Start {
        let has_waited = self.waiter.wait_for_turn(self.deadline.end).await;
        let (waiter, now) = (&self.waiter, clock::now());
        let are_told = waiter.agreed(MasterSet::ALL).is_some();
        let is_over = || waiter.history(|history| history.run.is_over(are_told, now));
        let is_run_over = waiter.is_released().then(is_over);
        let start = self.policy.begin(has_waited, is_run_over);
        if start == Start::GaveWay {
            let end = now + waiter.history(|history| self.policy.time_after_run(are_told, history));
            waiter.sleep_until(self.deadline.cap(end)).await;
        }
        start
    }

    /// Returns the agreed master if it is asked before the other masters, or `None` if all masters
    /// are asked at once.
    fn choose_agreed(&mut self, start: Start, is_last: bool) -> Option<usize> {
        let (waiter, now) = (&self.waiter, clock::now());
        let free = waiter.history(|history| self.policy.asked_first(start, history, now));
        let agreed = waiter.agreed(free).filter(|_| !is_last);
        if agreed.is_some() {
            waiter.listen(); // that master reports the next change if it refuses
        } else {
            self.policy.note_all_asked(now);
        }
        agreed
    }

    /// Notes an attempt that began at `at` and was not won. Waits until another attempt may win.
    async fn on_denied(
        &mut self,
        denied: &Denied,
        agreed: Option<usize>,
        at: LeaseTick,
        is_last: bool,
    ) -> Result<(), AcquireError> {
        let (request, context) = (self.request, &self.request.context);
        let took = clock::now().since(at);
        let met = denied.met();
        (self.waiter).history(|history| {
            self.policy
                .note_denied(met, agreed.is_some(), took, history);
        });
        if let Some(is_reached) = denied.is_reached() {
            context.note_reach(is_reached, at);
        }
        self.deadline.note_failure(request, denied, is_last)?;
        context.check_open()?; // closing wakes only waiters that are in a queue
        self.wait(denied).await;
        Ok(())
    }

    /// Waits until another attempt may win.
    async fn wait(&mut self, denied: &Denied) {
        if denied.obstacle == Obstacle::OwnerBusy {
            self.waiter.step_back(); // otherwise, other owners would wait for this owner
        }
        let wanted = denied.wanted_by_others();
        let (now, random) = (clock::now(), clock::random_u64());
        let is_told = self.waiter.agreed(wanted).is_some();
        let wait = self.policy.after(denied.met(), is_told, now, random);
        let [pause, end] = [wait.pause, wait.end].map(|time| self.deadline.cap(now + time));
        if !wait.pause.is_zero() {
            self.waiter.pause_until(pause).await;
        }
        let watching = denied.watching.as_ref();
        let news = self.waiter.wait_for_news(watching, wanted, end).await;
        self.policy.note_waited(news);
        if news.is_some() {
            self.give_way(Some(now)).await;
        }
    }

    /// Lets waiters of other processes go first that have missed more releases. `since` is the time
    /// from which this waiter has waited for a release, or `None` for a new call. If a guard of
    /// this process has released the lock, this waiter is the first to ask, so it does not give way
    /// here.
    async fn give_way(&mut self, since: Option<LeaseTick>) {
        let history = self.waiter.history(|history| *history);
        let gives_way = match since {
            Some(_) => history.waiter_gives_way(),
            None => history.call_gives_way(),
        };
        if !gives_way {
            return;
        }
        if !history.are_rivals_likely() {
            // Who takes the lock now is a rival.
            self.policy.note_waited(Some(MasterSet::ALL));
        }
        let now = clock::now();
        let waited = since.map(|since| now.since(since));
        let end = now + history.time(waited, clock::random_u64());
        self.waiter.pause_until(self.deadline.cap(end)).await;
    }
}
