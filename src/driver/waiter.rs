//! A handle of a waiter that the machine keeps, and its waits.

use std::{ops::ControlFlow, sync::Arc, task};

use crate::{
    clock,
    core::{
        protocol::LockId,
        time::LeaseTick,
        vote::{MasterSet, Round},
    },
    driver::{round_handle::RoundHandle, time::Timers},
    machine::{
        Machine, Now,
        waiters::{Heard, Topic, WaiterId, Waiters},
    },
    master::Shared,
};

/// A waiter of this coordinator. It leaves when dropped.
pub(crate) struct Waiter<'a> {
    machine: &'a Shared,
    timers: &'a Timers,
    id: WaiterId,
}

impl<'a> Waiter<'a> {
    /// Joins the queue of this coordinator's waiters for `lock`, a mutex or a reentrant lock. They
    /// contend in turn: one waiter makes attempts, and the others wait for their turn.
    pub(super) fn in_turn(machine: &'a Shared, timers: &'a Timers, lock: &LockId) -> Self {
        Self::new(machine, timers, |machine, now| {
            machine.waiters.join(lock, now.lease)
        })
    }

    pub(super) fn for_topic(machine: &'a Shared, timers: &'a Timers, topic: &Topic) -> Self {
        Self::new(machine, timers, |machine, now| {
            let id = machine.waiters.add_alone(now.lease);
            machine.listen(id, topic);
            id
        })
    }

    fn new(
        machine: &'a Shared,
        timers: &'a Timers,
        add: impl FnOnce(&mut Machine, Now) -> WaiterId,
    ) -> Self {
        Self {
            machine,
            timers,
            id: machine.with(add),
        }
    }

    /// Waits until this waiter has its turn to contend, until `deadline`, or until the timers have
    /// ended. If too much time passes without a poll of this waiter, it loses its turn and must
    /// wait again. Returns whether there was a wait.
    pub(super) async fn wait_for_turn(&self, deadline: Option<LeaseTick>) -> bool {
        let mut has_waited = false;
        let check = |cx: &task::Context<'_>| {
            let now = clock::now();
            let turn = (self.machine).poll(cx, |machine, waker| {
                machine.waiters.ask_for_turn(self.id, now, waker)
            });
            match turn {
                Some(look_again) if deadline.is_none_or(|deadline| now < deadline) => {
                    has_waited = true;
                    ControlFlow::Continue(deadline.map_or(look_again, |end| end.min(look_again)))
                }
                Some(_) | None => ControlFlow::Break(()),
            }
        };
        self.timers.wait(check).await;
        has_waited
    }

    /// If this waiter has its turn, notes that it does not act before `at`.
    pub(super) fn expect(&self, at: LeaseTick) {
        self.visit(|waiters| waiters.expect(self.id, at));
    }

    pub(super) fn step_back(&mut self) {
        let id = &mut self.id;
        let step_back =
            |it: &mut Machine, now: Now| it.waiters.step_back(id, now.lease, &mut it.out);
        self.machine.with(step_back);
    }

    /// Lets changes of `key` wake this waiter, too. A master reports a change only after a command
    /// that watches the key. Returns `false` if this waiter watches the key already.
    pub(super) fn watch(&self, key: &Arc<str>) -> bool {
        let topic = Topic::Key(key.clone());
        self.machine.lock(|machine| machine.listen(self.id, &topic))
    }

    pub(super) fn watches(&self) -> bool {
        self.visit(|waiters| waiters.watches(self.id))
    }

    /// Forgets the news that came before the attempt that begins now, if it is this waiter's turn.
    pub(super) fn begin_attempt(&self) {
        self.visit(|waiters| waiters.begin_attempt(self.id));
    }

    pub(super) fn heard(&self) -> Heard {
        self.visit(|waiters| waiters.heard(self.id))
    }

    /// Sleeps until `at`. The waiter keeps its turn meanwhile.
    pub(super) async fn sleep_until(&self, at: LeaseTick) {
        self.expect(at);
        self.timers.sleep_until(at).await;
    }

    /// Sleeps until `at`, or until a guard of this process releases the lock.
    pub(super) async fn pause_until(&self, at: LeaseTick) {
        let is_released = |heard: Heard, _: Option<&Round>| heard.is_released.then_some(());
        self.wait_until(at, None, is_released).await;
    }

    /// Waits until a majority of masters have called this waiter, or until `end`.
    pub(super) async fn wait_for_call(&self, end: LeaseTick) {
        let none = MasterSet::NONE;
        self.wait_for_change(none, none, end).await;
    }

    /// Waits until there is news and a majority of masters may be free, or until `end`. News is a
    /// call from a master, or a change that a master in `held` has reported. The masters that sent
    /// the news may be free, and so may those in `free`, which granted the last round and whose
    /// grants were given back. A change on a master outside of `held` is no news, because this
    /// waiter may have caused the change.
    pub(super) async fn wait_for_change(&self, held: MasterSet, free: MasterSet, end: LeaseTick) {
        let quorum = self.machine.quorum();
        let is_called = |heard: Heard, _: Option<&Round>| {
            let news = heard.called | heard.changed.and(held);
            let may_be_free = !news.is_empty() && quorum.has_majority_of_every_set(news | free);
            (heard.is_released || may_be_free).then_some(())
        };
        self.wait_until(end, None, is_called).await;
    }

    /// Waits until `look` returns `Some`. Returns `None` if `end` comes first, or if the timers
    /// have ended. Calls `look` at once, and again after news and after each vote in the round
    /// `answers`, with what was heard and with that round. The machine is locked meanwhile. If it
    /// is this waiter's turn, it keeps its turn as long as it is polled.
    pub(super) async fn wait_until<T>(
        &self,
        end: LeaseTick,
        answers: Option<&RoundHandle>,
        look: impl Fn(Heard, Option<&Round>) -> Option<T>,
    ) -> Option<T> {
        let check = |cx: &task::Context<'_>| {
            if let Some(round) = answers {
                round.wake_on_vote(cx);
            }
            let is_over = clock::now() >= end;
            let seen = self.machine.poll(cx, |machine, waker| {
                machine.waiters.keep(self.id, waker);
                let round = answers.map(|round| machine.rounds.of(round.id));
                let seen = look(machine.waiters.heard(self.id), round);
                if seen.is_none() && !is_over {
                    machine.waiters.expect(self.id, end);
                }
                seen
            });
            match seen {
                None if !is_over => ControlFlow::Continue(end),
                seen => ControlFlow::Break(seen),
            }
        };
        self.timers.wait(check).await?
    }

    /// Waits until `check` returns `Break`. Calls `check` at once, after news, and at the instant
    /// that `check` returned. Returns `None` if the timers have ended.
    pub(super) async fn wait<T>(&self, check: impl Fn() -> ControlFlow<T, LeaseTick>) -> Option<T> {
        let poll = |cx: &task::Context<'_>| {
            (self.machine).poll(cx, |machine, waker| machine.waiters.keep(self.id, waker));
            check()
        };
        self.timers.wait(poll).await
    }

    fn visit<T>(&self, visit: impl FnOnce(&mut Waiters) -> T) -> T {
        self.machine.lock(|machine| visit(&mut machine.waiters))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.timers.home.is_parent() {
            (self.machine).with(|machine, now| machine.leave(self.id, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Coordinator, MemoryMaster};

    #[tokio::test(start_paused = true)]
    async fn waiters_leave_nothing_behind_when_they_win_give_up_or_are_dropped() {
        let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
        let [locks, others] = [(); 2].map(|()| Coordinator::new(&masters).unwrap());
        let moment = Duration::from_millis(20);
        for name in 0..100 {
            let lock = locks.fair(format!("{name}"));
            let held = others.fair(format!("{name}"));
            let held = held.acquire().await.unwrap();
            match name % 3 {
                0 => assert!(lock.acquire_within(moment).await.is_err()),
                1 => {
                    let mut waiter = Box::pin(lock.acquire());
                    let waits = tokio::time::timeout(moment, waiter.as_mut()).await;
                    assert!(waits.is_err());
                    assert!(
                        masters
                            .iter()
                            .all(|master| master.with(|server, _| server.subscriptions()) == 1)
                    );
                    drop(held);
                    drop(waiter.await.unwrap());
                }
                _ => {
                    let waits = tokio::time::timeout(moment, lock.acquire()).await;
                    assert!(waits.is_err());
                }
            }
        }
        assert_eq!(locks.context().topics(), 0);
        locks.close().await;
        tokio::time::sleep(moment).await;
        assert!(
            masters
                .iter()
                .all(|master| master.with(|server, _| server.subscriptions()) == 0)
        );
    }
}
