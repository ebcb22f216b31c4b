//! Handles of the waiters that the machine keeps.

pub(in crate::driver) mod local_waiters;

use std::{ops::ControlFlow, sync::Arc, task};

use crate::{
    clock,
    core::{protocol::identity::Ticket, time::tick::LeaseTick, vote::MasterSet},
    driver::{context::Context, live_round::LiveRound},
    machine::waiters::{Heard, Topic, WaiterId, Waiters},
};

/// A waiter of this coordinator. It leaves when dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    context: &'a Context,
    id: WaiterId,
}

impl<'a> Waiter<'a> {
    /// Returns a waiter for a lock with queues, which listens for calls of `ticket`. A master calls
    /// the waiter at the head of its queue: it publishes the ticket of that waiter. The waiter hears
    /// every call that a later request causes, unless the master refuses the subscription or the
    /// connection breaks. After a missed call, the waiter asks again at its next poll.
    pub(crate) fn called(context: &'a Context, ticket: &Ticket) -> Self {
        let id = context.machine.with(|machine, now| {
            let id = machine.waiters.add_alone(now.lease);
            machine.listen(id, &Topic::Turn(ticket.clone()));
            id
        });
        Self { context, id }
    }

    /// Lets changes of `key` wake this waiter, too. A master reports a change only after a command
    /// that watches the key. Returns `false` if this waiter watches the key already.
    pub(crate) fn watch(&self, key: &Arc<str>) -> bool {
        let topic = Topic::Key(key.clone());
        (self.context.machine).lock(|machine| machine.listen(self.id, &topic))
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
        let quorum = self.context.masters.quorum();
        let is_called = |heard: Heard| {
            let news = heard.called | heard.changed.and(held);
            heard.is_released || !news.is_empty() && quorum.has_majority_of_every_set(news | free)
        };
        self.wait_until(end, None, is_called).await;
    }

    /// Waits until `is_done` returns `true` for what was heard, until `end`, or until the timers
    /// have ended. Calls `is_done` again after news, and after each vote in the round `answers`.
    async fn wait_until(
        &self,
        end: LeaseTick,
        answers: Option<&LiveRound>,
        is_done: impl Fn(Heard) -> bool,
    ) {
        let Context {
            machine, timers, ..
        } = self.context;
        let check = |cx: &task::Context<'_>| {
            if let Some(round) = answers {
                round.wake_on_vote(cx);
            }
            let heard = machine.poll(cx, |machine, waker| {
                machine.waiters.keep(self.id, waker);
                machine.waiters.heard(self.id)
            });
            if is_done(heard) || clock::now() >= end {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(end)
            }
        };
        timers.wait(check).await;
    }

    fn visit<T>(&self, visit: impl FnOnce(&mut Waiters) -> T) -> T {
        (self.context.machine).lock(|machine| visit(&mut machine.waiters))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if !self.context.is_forked() {
            (self.context.machine).with(|machine, now| machine.leave(self.id, now));
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
