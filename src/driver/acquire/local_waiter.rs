//! The waiters of this coordinator for mutexes and reentrant locks. They contend in turn: for each
//! lock, one waiter makes attempts, and the others wait for their turn.

use std::{ops::ControlFlow, task};

use crate::{
    clock,
    core::{
        protocol::name::LockId,
        time::tick::LeaseTick,
        vote::{MasterSet, Vote, round::Round},
        wait::history::History,
    },
    driver::{context::Context, round_handle::RoundHandle, waiter::Waiter},
    machine::waiters::Heard,
};

/// A waiter for a lock without queues on the masters. It leaves its queue when dropped.
#[derive(Debug)]
pub(super) struct LocalWaiter<'a> {
    context: &'a Context,
    waiter: Waiter<'a>,
    lock_id: &'a LockId,
}

impl<'a> LocalWaiter<'a> {
    /// Joins the queue of the waiters for `lock_id`.
    pub(super) fn join(context: &'a Context, lock_id: &'a LockId) -> Self {
        let id = (context.machine).with(|machine, now| machine.waiters.join(lock_id, now.lease));
        Self {
            context,
            waiter: Waiter::new(&context.machine, &context.timers, id),
            lock_id,
        }
    }

    /// Waits until this waiter has its turn to contend, until `deadline`, or until the timers have
    /// ended. If too much time passes without a poll of this waiter, it loses its turn and must
    /// wait again. Returns whether there was a wait.
    pub(super) async fn wait_for_turn(&self, deadline: Option<LeaseTick>) -> bool {
        let (context, id) = (self.context, self.waiter.id);
        let mut has_waited = false;
        let check = |cx: &task::Context<'_>| {
            let now = clock::now();
            let turn = (context.machine).poll(cx, |machine, waker| {
                machine.waiters.ask_for_turn(id, now, waker)
            });
            match turn {
                Some(look_again) if deadline.is_none_or(|deadline| now < deadline) => {
                    has_waited = true;
                    ControlFlow::Continue(deadline.map_or(look_again, |end| end.min(look_again)))
                }
                Some(_) | None => ControlFlow::Break(()),
            }
        };
        context.timers.wait(check).await;
        has_waited
    }

    /// If this waiter has its turn, notes that it does not act before `at`.
    pub(super) fn expect(&self, at: LeaseTick) {
        let waiter = &self.waiter;
        waiter.visit(|waiters| waiters.expect(waiter.id, at));
    }

    /// Sleeps until `at`. The waiter keeps its turn meanwhile.
    pub(super) async fn sleep_until(&self, at: LeaseTick) {
        self.expect(at);
        self.context.timers.sleep_until(at).await;
    }

    /// Sleeps until `at`, or until a guard of this process releases the lock.
    pub(super) async fn pause_until(&self, at: LeaseTick) {
        self.waiter
            .wait_until(at, None, |heard| heard.is_released)
            .await;
    }

    /// Moves this waiter to the end of its queue.
    pub(super) fn step_back(&mut self) {
        let id = &mut self.waiter.id;
        (self.context.machine).with(|machine, now| machine.step_back(id, now));
    }

    pub(super) fn begin_attempt(&self) {
        self.waiter.begin_attempt();
    }

    /// Starts to get the changes that masters report, unless waiters only poll. A master reports a
    /// change only after a command that watches the lock. Returns whether there will be reports.
    pub(super) fn listen(&self) -> bool {
        let are_told = !self.context.config.waiters_poll;
        if are_told {
            self.waiter.watch(self.lock_id.key());
        }
        are_told
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
    pub(super) async fn wait_for_news(
        &self,
        answers: Option<&RoundHandle>,
        wanted: MasterSet,
        end: LeaseTick,
    ) -> Option<MasterSet> {
        let context = self.context;
        let contends = || {
            let waiter = &self.waiter;
            waiter.visit(|waiters| waiters.contends(waiter.id))
        };
        let agreed = self.agreed(wanted);
        let freed_in = |round: &Round| round.masters(Vote::is_freed);
        let freed = || answers.map_or(MasterSet::NONE, |round| round.read(freed_in));
        let is_majority = |set| context.machine.quorum().has_majority_of_every_set(set);
        let may_be_free = |heard: Heard| {
            heard.is_released
                || !contends()
                || agreed.is_some_and(|agreed| heard.changed.contains(agreed))
                || is_majority(heard.changed | freed())
        };
        // After a release was decided, more masters may still answer that the lock is free.
        self.waiter.wait_until(end, answers, may_be_free).await;
        let (heard, freed) = (self.heard(), freed());
        if is_majority(heard.changed | freed) {
            let news = heard.changed - freed;
            return Some(if news.is_empty() { freed } else { news });
        }
        may_be_free(heard).then_some(wanted)
    }

    /// Returns whether a guard of this process has released the lock since the newest attempt of
    /// this queue began.
    pub(super) fn is_released(&self) -> bool {
        self.heard().is_released
    }

    fn heard(&self) -> Heard {
        let waiter = &self.waiter;
        waiter.visit(|waiters| waiters.heard(waiter.id))
    }

    /// Reads or changes the history of the lock.
    pub(super) fn history<T>(&self, visit: impl FnOnce(&mut History) -> T) -> T {
        (self.context.histories).visit(self.lock_id, visit)
    }

    /// Returns the agreed master, chosen from the masters in `among` that report changes.
    pub(super) fn agreed(&self, among: MasterSet) -> Option<usize> {
        if self.context.config.waiters_poll {
            return None;
        }
        let machine = &self.context.machine;
        machine.agreed(self.lock_id.key(), machine.reporting().and(among))
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
        let (locks, others) = (
            Coordinator::new(&masters).unwrap(),
            Coordinator::new(&masters).unwrap(),
        );
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
        let lock = locks.reentrant("r", &locks.owner());
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
        let (locks, others) = (
            Coordinator::new(&masters).unwrap(),
            Coordinator::new(&masters).unwrap(),
        );
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
        let locks = builder.poll_interval(minute, minute).build().unwrap();
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
            let (locks, others) = (
                Coordinator::new(&masters).unwrap(),
                Coordinator::new(&masters).unwrap(),
            );
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
