//! A waiter of this coordinator for a lock with queues. A master calls the waiter at the head of
//! its queue: it publishes the ticket of that waiter.

use std::sync::{Arc, OnceLock, Weak};

use super::Events;
use crate::{
    core::{protocol::identity::Ticket, time::tick::LeaseTick, vote::MasterSet},
    driver::context::Context,
    machine::listeners::{Listener, Topic},
};

/// A waiter that masters can call. It stops listening when dropped.
#[derive(Debug)]
pub(crate) struct CalledWaiter<'a> {
    context: &'a Context,
    events: Arc<Events>,
    turn: Topic,
    /// The key whose changes wake this waiter.
    key: OnceLock<Topic>,
}

impl<'a> CalledWaiter<'a> {
    /// Returns a waiter that listens for calls of `ticket`. It hears every call that a later
    /// request causes, unless the master refuses the subscription or the connection breaks. After a
    /// missed call, the waiter asks again at its next poll.
    pub(crate) fn new(context: &'a Context, ticket: &Ticket) -> Self {
        let waiter = Self {
            context,
            events: Arc::default(),
            turn: Topic::Turn(ticket.clone()),
            key: OnceLock::new(),
        };
        waiter.listen(&waiter.turn);
        waiter
    }

    /// Lets changes of `key` wake this waiter, as calls do. A master reports a change only after a
    /// command that watches the key. Returns `false` if this waiter watches a key already.
    pub(crate) fn listen_to(&self, key: &Arc<str>) -> bool {
        let topic = Topic::Key(key.clone());
        let begins = self.key.set(topic.clone()).is_ok();
        if begins {
            self.listen(&topic);
        }
        begins
    }

    /// Returns whether changes of a key wake this waiter.
    pub(crate) fn listens_to_key(&self) -> bool {
        self.key.get().is_some()
    }

    /// Forgets the events that came before the attempt that begins now.
    pub(crate) fn begin_attempt(&self) {
        self.events.forget();
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
        let is_called = || {
            let heard = self.events.heard();
            let news = heard.called | heard.changed.and(held);
            !news.is_empty()
                && self
                    .context
                    .machine
                    .quorum()
                    .has_majority_of_every_set(news | free)
        };
        let signal = &self.events.signal;
        signal
            .wait_until(end, &self.context.timers, is_called)
            .await;
    }

    fn listen(&self, topic: &Topic) {
        let machine = &self.context.machine;
        machine.lock(|machine| machine.listen(topic, &self.listener()));
    }

    fn listener(&self) -> Weak<dyn Listener> {
        Arc::downgrade(&self.events) as Weak<dyn Listener>
    }
}

impl Drop for CalledWaiter<'_> {
    fn drop(&mut self) {
        if self.context.is_forked() {
            return;
        }
        let machine = &self.context.machine;
        for topic in self.key.get().into_iter().chain([&self.turn]) {
            machine.lock(|machine| machine.ignore(topic, &self.listener()));
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
        assert_eq!(locks.context().listeners(), 0);
        locks.close().await;
        tokio::time::sleep(moment).await;
        assert!(
            masters
                .iter()
                .all(|master| master.with(|server, _| server.subscriptions()) == 0)
        );
    }
}
