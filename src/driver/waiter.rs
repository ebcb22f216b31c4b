//! A handle of a waiter that the machine keeps.

use std::{ops::ControlFlow, sync::Arc, task::Context};

use crate::{
    clock,
    core::{protocol::identity::Ticket, time::tick::LeaseTick, vote::MasterSet},
    driver::{round_handle::RoundHandle, time::Timers},
    machine::waiters::{Heard, Topic, WaiterId, Waiters},
    master::Shared,
};

/// A waiter of this coordinator. It leaves when dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    machine: &'a Shared,
    timers: &'a Timers,
    pub(super) id: WaiterId,
}

impl<'a> Waiter<'a> {
    /// Returns a waiter for a lock with queues, which listens for calls of `ticket`. A master calls
    /// the waiter at the head of its queue: it publishes the ticket of that waiter. The waiter hears
    /// every call that a later request causes, unless the master refuses the subscription or the
    /// connection breaks. After a missed call, the waiter asks again at its next poll.
    pub(crate) fn called(machine: &'a Shared, timers: &'a Timers, ticket: &Ticket) -> Self {
        Self::for_topic(machine, timers, &Topic::Turn(ticket.clone()))
    }

    /// Returns a waiter that is woken by news about `topic`.
    pub(super) fn for_topic(machine: &'a Shared, timers: &'a Timers, topic: &Topic) -> Self {
        let id = machine.with(|machine, now| {
            let id = machine.waiters.add_alone(now.lease);
            machine.listen(id, topic);
            id
        });
        Self::new(machine, timers, id)
    }

    /// Takes over the waiter `id`.
    pub(super) fn new(machine: &'a Shared, timers: &'a Timers, id: WaiterId) -> Self {
        Self {
            machine,
            timers,
            id,
        }
    }

    /// Lets changes of `key` wake this waiter, too. A master reports a change only after a command
    /// that watches the key. Returns `false` if this waiter watches the key already.
    pub(crate) fn watch(&self, key: &Arc<str>) -> bool {
        let topic = Topic::Key(key.clone());
        self.machine.lock(|machine| machine.listen(self.id, &topic))
    }

    /// Returns whether changes of a key wake this waiter.
    pub(crate) fn watches(&self) -> bool {
        self.visit(|waiters| waiters.watches(self.id))
    }

    /// Forgets the news that came before the attempt that begins now, if it is this waiter's turn.
    pub(crate) fn begin_attempt(&self) {
        self.visit(|waiters| waiters.begin_attempt(self.id));
    }

    /// Waits until a majority of masters have called this waiter, or until `end`.
    pub(crate) async fn wait_for_call(&self, end: LeaseTick) {
        let none = MasterSet::NONE;
        self.wait_for_change(none, none, end).await;
    }

    /// Waits until there is news and a majority of masters may be free, or until `end`. News is a
    /// call from a master, or a change that a master in `held` has reported. The masters that sent
    /// the news may be free, and so may those in `free`, which granted the last round and whose
    /// grants were given back. A change on a master outside of `held` is no news, because this
    /// waiter may have caused the change.
    pub(crate) async fn wait_for_change(&self, held: MasterSet, free: MasterSet, end: LeaseTick) {
        let quorum = self.machine.quorum();
        let is_called = |heard: Heard| {
            let news = heard.called | heard.changed.and(held);
            heard.is_released || !news.is_empty() && quorum.has_majority_of_every_set(news | free)
        };
        self.wait_until(end, None, is_called).await;
    }

    /// Waits until `is_done` returns `true` for what was heard, until `end`, or until the timers
    /// have ended. Calls `is_done` again after news, and after each vote in the round `answers`. If
    /// it is this waiter's turn, it keeps its turn as long as it is polled.
    pub(super) async fn wait_until(
        &self,
        end: LeaseTick,
        answers: Option<&RoundHandle>,
        is_done: impl Fn(Heard) -> bool,
    ) {
        let check = |heard: Heard| {
            if is_done(heard) || clock::now() >= end {
                return ControlFlow::Break(());
            }
            self.visit(|waiters| waiters.expect(self.id, end));
            ControlFlow::Continue(end)
        };
        self.wait(answers, check).await;
    }

    /// Waits until `check` returns `Break`. Calls `check` at once, after news, after each vote in
    /// the round `answers`, and at the instant that `check` returned. Returns `None` if the timers
    /// have ended.
    pub(super) async fn wait<T>(
        &self,
        answers: Option<&RoundHandle>,
        check: impl Fn(Heard) -> ControlFlow<T, LeaseTick>,
    ) -> Option<T> {
        let poll = |cx: &Context<'_>| {
            if let Some(round) = answers {
                round.wake_on_vote(cx);
            }
            check(self.machine.poll(cx, |machine, waker| {
                machine.waiters.keep(self.id, waker);
                machine.waiters.heard(self.id)
            }))
        };
        self.timers.wait(poll).await
    }

    pub(super) fn visit<T>(&self, visit: impl FnOnce(&mut Waiters) -> T) -> T {
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
        let (locks, others) = (
            Coordinator::new(&masters).unwrap(),
            Coordinator::new(&masters).unwrap(),
        );
        let moment = Duration::from_millis(20);
        for name in 0..100 {
            let lock = locks.fair(format!("{name}"), &locks.owner());
            let held = others.fair(format!("{name}"), &others.owner());
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
