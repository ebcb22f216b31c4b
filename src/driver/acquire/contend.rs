//! Waits for a mutex or a reentrant lock. The waiters of a coordinator make attempts in turn, at
//! times when the lock is likely to be free.

use std::sync::OnceLock;

use super::{
    attempt::{attempt, attempt_timeout, majority_answers},
    denied::{Deadline, Denied},
};
use crate::{
    clock,
    core::{
        reason::Reason,
        time::LeaseTick,
        vote::{MasterSet, Round, Vote},
        wait::contest::{ContestPolicy, Start},
    },
    driver::{
        claim::{Level, ask::LockRequest},
        round_handle::RoundHandle,
        waiter::Waiter,
    },
    machine::waiters::Heard,
};

/// Makes attempts until one wins the lock. If there is a deadline, the last attempt begins at the
/// deadline.
pub(super) async fn contend(request: &LockRequest, deadline: &Deadline) -> Result<Level, Denied> {
    let config = &request.context.config;
    Contest {
        request,
        deadline,
        waiter: OnceLock::new(),
        policy: ContestPolicy::new(config.retry, config.poll, clock::now()),
    }
    .win()
    .await
}

/// A wait for a lock without queues on the masters.
struct Contest<'a> {
    request: &'a LockRequest,
    deadline: &'a Deadline,
    /// The waiter joins its queue when it is needed first.
    waiter: OnceLock<Waiter<'a>>,
    policy: ContestPolicy,
}

impl<'a> Contest<'a> {
    /// Makes attempts until one wins the lock, or until the deadline. If no one else is known to
    /// want the lock, makes the first attempt without waiting for a turn.
    async fn win(mut self) -> Result<Level, Denied> {
        let (request, context) = (self.request, &self.request.context);
        if !self.deadline.is_over() {
            if !context.is_calm(&request.lock_id) || context.is_aside() {
                self.give_way(None).await;
            } else if let Some(level) = self.attempt(Start::Plain, None, false).await? {
                return Ok(level);
            }
        }
        let mut checks = 0_u32; // since the waiter stepped aside
        loop {
            let start = self.wait_for_turn().await;
            let is_last = self.deadline.is_over();
            let permit_and_attempt = attempt_timeout(request) * 2;
            self.waiter().expect(clock::now() + permit_and_attempt);
            if !is_last && context.is_aside() && !majority_answers(request).await {
                context.check_open()?;
                let end = self.deadline.cap(context.retry_at(checks));
                self.waiter().sleep_until(end).await;
                checks = checks.saturating_add(1);
                continue;
            }
            checks = 0;
            self.waiter().begin_attempt();
            let agreed = self.choose_agreed(start, is_last);
            if let Some(level) = self.attempt(start, agreed, is_last).await? {
                return Ok(level);
            }
        }
    }

    fn waiter(&self) -> &Waiter<'a> {
        let LockRequest {
            context, lock_id, ..
        } = self.request;
        let join = || Waiter::in_turn(&context.machine, &context.timers, lock_id);
        self.waiter.get_or_init(join)
    }

    /// Makes an attempt. If it is not won, waits until another attempt may win.
    async fn attempt(
        &mut self,
        start: Start,
        agreed: Option<usize>,
        is_last: bool,
    ) -> Result<Option<Level>, Denied> {
        let (request, context) = (self.request, &self.request.context);
        let (at, watch) = (clock::now(), || self.listen());
        let watch = (!is_last).then_some(&watch as _);
        let attempted = attempt(request, Some(self.deadline), agreed, watch).await;
        let now = clock::now();
        let took = now.since(at);
        let denied = match attempted {
            Ok(level) => {
                request.history(|history| {
                    history.run.note(start, Some(now));
                    history.note_won(took, now);
                });
                context.note_reach(true, at);
                return Ok(Some(level));
            }
            Err(denied) if denied.round.is_none() && denied.reason.is_final() => {
                return Err(denied);
            }
            Err(denied) => denied,
        };
        request.history(|history| {
            history.run.note(start, None);
            let is_one_asked = agreed.is_some();
            (self.policy).note_denied(denied.met(), is_one_asked, took, history);
        });
        if let Some(is_reached) = denied.is_reached() {
            context.note_reach(is_reached, at);
        }
        let denied = self.deadline.note_failure(request, denied, is_last)?;
        context.check_open()?; // closing wakes only waiters that are in a queue
        self.wait(&denied).await;
        Ok(None)
    }

    /// Waits for this waiter's turn. After a run of hand-overs within this process, also gives way
    /// to other processes.
    async fn wait_for_turn(&mut self) -> Start {
        let request = self.request;
        let has_waited = self.waiter().wait_for_turn(self.deadline.end).await;
        let (now, are_told) = (clock::now(), self.agreed(MasterSet::ALL).is_some());
        let is_over = || request.history(|history| history.run.is_over(are_told, now));
        let is_run_over = self.waiter().heard().is_released.then(is_over);
        let start = self.policy.begin(has_waited, is_run_over);
        if start == Start::GaveWay {
            let time = |history: &mut _| self.policy.time_after_run(are_told, history);
            let end = now + request.history(time);
            self.waiter().sleep_until(self.deadline.cap(end)).await;
        }
        start
    }

    /// Returns the agreed master if it is asked before the other masters, or `None` if all masters
    /// are asked at once.
    fn choose_agreed(&mut self, start: Start, is_last: bool) -> Option<usize> {
        let (request, now) = (self.request, clock::now());
        let free = request.history(|history| self.policy.asked_first(start, history, now));
        let agreed = self.agreed(free).filter(|_| !is_last);
        if agreed.is_some() {
            self.listen(); // that master reports the next change if it refuses
        } else {
            self.policy.note_all_asked(now);
        }
        agreed
    }

    /// Waits until another attempt may win.
    async fn wait(&mut self, denied: &Denied) {
        if denied.reason == Reason::OwnerBusy
            && let Some(waiter) = self.waiter.get_mut()
        {
            waiter.step_back(); // otherwise, other owners would wait for this owner
        }
        let wanted = denied.wanted_by_others();
        let (now, random) = (clock::now(), clock::random_u64());
        let is_told = self.agreed(wanted).is_some();
        let wait = self.policy.after(denied.met(), is_told, now, random);
        let [pause, end] = [wait.pause, wait.end].map(|time| self.deadline.cap(now + time));
        if !wait.pause.is_zero() {
            self.waiter().pause_until(pause).await;
        }
        let watching = denied.watching.as_ref();
        let news = self.wait_for_news(watching, wanted, end).await;
        self.policy.note_waited(news);
        if news.is_some() {
            self.give_way(Some(now)).await;
        }
    }

    /// Waits until the lock may be free. The lock may be free if a guard of this process has
    /// released it, or if the agreed master, chosen from `wanted`, has reported a change. It may
    /// also be free if a majority of the masters of every list have reported a change, or have
    /// answered in `answers` that the lock is free there. Returns the masters from which the next
    /// attempt chooses the agreed master, or `None` if `end` comes first. If another waiter has
    /// taken over, that waiter gets the events, so this method returns `wanted` at once.
    ///
    /// A release is sent to all masters at once, so the report of the agreed master is enough. The
    /// report of another master is not enough, because it may come from a renewal: the holder puts
    /// its key back on masters that have lost the key. If such a report were enough, a waiter would
    /// take these masters for a moment at each renewal, and the holder could never put its key
    /// back.
    async fn wait_for_news(
        &self,
        answers: Option<&RoundHandle>,
        wanted: MasterSet,
        end: LeaseTick,
    ) -> Option<MasterSet> {
        let (agreed, quorum) = (self.agreed(wanted), self.request.context.machine.quorum());
        let look = |heard: Heard, answers: Option<&Round>| {
            // After a release was decided, more masters may still answer that the lock is free.
            let freed = answers.map_or(MasterSet::NONE, |round| round.masters(Vote::is_freed));
            if quorum.has_majority_of_every_set(heard.changed | freed) {
                let news = heard.changed - freed;
                return Some(if news.is_empty() { freed } else { news });
            }
            let is_reported = agreed.is_some_and(|agreed| heard.changed.contains(agreed));
            (heard.is_released || is_reported || !heard.contends).then_some(wanted)
        };
        self.waiter().wait_until(end, answers, look).await
    }

    /// Lets waiters of other processes go first that have missed more releases. `since` is the time
    /// from which this waiter has waited for a release, or `None` for a new call. If a guard of
    /// this process has released the lock, this waiter is the first to ask, so it does not give way
    /// here.
    async fn give_way(&mut self, since: Option<LeaseTick>) {
        let history = self.request.history(|history| *history);
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
        self.waiter().pause_until(self.deadline.cap(end)).await;
    }

    /// Lets the waiter hear of the changes that masters report, unless waiters only poll. A master
    /// reports a change only after a command that watches the lock. Returns whether there will be
    /// reports.
    fn listen(&self) -> bool {
        let are_told = !self.request.context.config.poll_only;
        if are_told {
            self.waiter().watch(self.request.lock_id.key());
        }
        are_told
    }

    /// Returns the agreed master, chosen from the masters in `among` that report changes.
    fn agreed(&self, among: MasterSet) -> Option<usize> {
        let context = &self.request.context;
        if context.config.poll_only {
            return None;
        }
        let among = context.machine.reporting().and(among);
        context.machine.agreed(self.request.lock_id.key(), among)
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use testkit::polled::polled;
    use tokio::time::timeout;

    use crate::{Coordinator, Fault, MemoryMaster};

    #[tokio::test(start_paused = true)]
    async fn waiters_leave_nothing_behind_when_they_win_give_up_or_are_dropped() {
        let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
        let [locks, others] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
        let moment = Duration::from_millis(20);
        for name in 0..1_000 {
            let lock = locks.mutex(format!("{name}"));
            if name % 2 == 0 {
                drop(lock.acquire().await.unwrap());
                continue;
            }
            let _held = others.mutex(format!("{name}")).try_acquire().await.unwrap();
            lock.acquire_within(moment).await.unwrap_err();
            let _ = timeout(moment, lock.acquire()).await;
        }
        assert_eq!(locks.context().waiters(), 0);
        assert_eq!(locks.context().topics(), 0);
    }

    /// A holder has three of five masters, and two are free.
    #[tokio::test(start_paused = true)]
    async fn masters_that_were_given_back_wake_a_waiter_when_they_are_a_majority() {
        let masters: Vec<_> = (0..5).map(|_| MemoryMaster::new()).collect();
        let locks = Coordinator::new(&masters).unwrap();
        for master in &masters[..3] {
            master.set_hash("r", [("another:1", "1")], None);
        }
        let lock = locks.reentrant("r", &locks.new_owner());
        let mut waiting = pin!(lock.acquire());
        let moment = Duration::from_millis(50);
        assert!(timeout(moment, waiting.as_mut()).await.is_err());
        let sent = masters[0].commands();
        for master in [3, 4] {
            locks.context().report("r", master);
            assert!(timeout(moment, waiting.as_mut()).await.is_err());
        }
        assert_eq!(masters[0].commands(), sent, "two masters are no majority");
        masters[0].delete("r");
        let got = timeout(moment, waiting.as_mut()).await;
        drop(got.expect("three masters are one").unwrap());
    }

    /// Every millisecond, the masters report a change that did not happen.
    #[tokio::test(start_paused = true)]
    async fn false_reports_cost_few_commands_and_hide_no_release_for_long() {
        let masters: Vec<_> = (0..5).map(|_| MemoryMaster::new()).collect();
        let [locks, others] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
        let sent = || masters.iter().map(MemoryMaster::commands).sum::<u64>();
        let millis = Duration::from_millis;
        let mut counts = Vec::new();
        for is_flooded in [false, true] {
            let held = others.mutex("r").acquire().await.unwrap();
            let lock = locks.mutex("r");
            let mut waiting = pin!(lock.acquire());
            assert!(timeout(millis(20), waiting.as_mut()).await.is_err());
            let before = sent();
            let flood = async || loop {
                tokio::time::sleep(millis(1)).await;
                (0..5).for_each(|master| locks.context().report("r", master));
            };
            let moment = timeout(millis(20_000), async {
                if is_flooded {
                    tokio::join!(waiting.as_mut(), flood()).0
                } else {
                    waiting.as_mut().await
                }
            });
            assert!(moment.await.is_err());
            counts.push(sent() - before);
            drop(held);
            let got = timeout(millis(501), waiting).await;
            got.expect("it was not woken")
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        assert!(counts[1] <= 2 * counts[0], "{counts:?}");
    }

    /// A report that is not enough makes the contender act soon. It still waits, and is no silent
    /// waiter.
    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the waiters go on by themselves")]
    async fn false_reports_keep_no_release_and_no_close_from_a_waiter() {
        let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
        let minute = Duration::from_secs(60);
        let builder = Coordinator::builder().masters(&masters);
        let locks = builder.poll_interval(minute..=minute).build().unwrap();
        let others = Coordinator::new(&masters).unwrap();
        let held = others.mutex("r").acquire().await.unwrap();
        let waiters = [(); 3].map(|()| {
            let lock = locks.mutex("r");
            tokio::spawn(async move { lock.acquire().await })
        });
        let moment = Duration::from_millis(100);
        let pause = async |times: u32| {
            for _ in 0..times {
                tokio::time::sleep(moment).await;
                let context = locks.context();
                let agreed = context.machine.agreed("r", context.machine.reporting());
                context.report("r", (agreed.unwrap() + 1) % 3);
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        };
        pause(3).await;
        held.release().await.unwrap();
        let [first, second, last] = waiters;
        drop(timeout(moment, first).await.unwrap().unwrap().unwrap());
        let held = timeout(moment, second).await.unwrap().unwrap().unwrap();
        pause(3).await;
        let closed = timeout(moment, async { tokio::join!(locks.close(), last).1 });
        assert!(closed.await.unwrap().unwrap().is_err());
        drop(held);
    }

    /// A waiter can be dropped at any poll. The other waiters still hear of releases, and nothing
    /// is left after the last waiter.
    #[tokio::test(start_paused = true)]
    #[expect(
        clippy::disallowed_methods,
        reason = "the next waiter goes on by itself"
    )]
    async fn a_waiter_that_is_dropped_at_any_poll_leaves_nothing() {
        let millis = Duration::from_millis;
        let mut watched = 0;
        for polls in 1..32 {
            let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
            let [locks, others] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
            let held = others.mutex("r").acquire().await.unwrap();
            for (n, master) in masters.iter().enumerate() {
                master.inject(Fault::Delay(millis(1 + n as u64)));
            }
            let (first, next) = (locks.mutex("r"), locks.mutex("r"));
            let next = tokio::spawn(async move { next.acquire().await.unwrap() });
            let dropped = timeout(millis(60_000), polled(polls, first.acquire()));
            assert!(
                dropped.await.is_ok_and(|got| got.is_none()),
                "{polls} polls"
            );
            // Leaves time for the requests under way, and for the next waiter to watch the lock.
            tokio::time::sleep(millis(400)).await;
            watched += usize::from(locks.context().topics() == 1);
            held.release().await.unwrap();
            let served = timeout(millis(60), next).await;
            drop(served.expect("the waiter was not woken").unwrap());
            tokio::time::sleep(millis(20)).await;
            for master in &masters {
                assert_eq!(master.keys().len(), 0, "{polls} polls");
            }
            assert_eq!(locks.context().waiters(), 0);
            assert_eq!(locks.context().topics(), 0);
        }
        assert_eq!(watched, 31);
    }
}
