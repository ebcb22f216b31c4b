//! A waiter of this coordinator for a lock with queues. A master calls the waiter at the head of
//! its queue: it publishes the ticket of that waiter.

use std::{
    ops::ControlFlow,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use super::Events;
use crate::{
    core::{protocol::identity::Ticket, time::lease::LeaseTime, vote::master_set::MasterSet},
    driver::{
        masters::Masters,
        time::{Timers, clock},
    },
    master::{Listener, Topic},
};

/// A waiter that masters can call. It stops listening when dropped.
#[derive(Debug)]
pub(crate) struct CalledWaiter<'a> {
    masters: &'a Masters,
    timers: &'a Timers,
    /// How long this waiter waits for more calls after the first one.
    more: Duration,
    events: Arc<Events>,
    turn: Topic,
    /// The key whose changes wake this waiter.
    watched: OnceLock<Topic>,
}

impl<'a> CalledWaiter<'a> {
    /// Listens for calls of `ticket`. Requests that are posted later can cause calls. A call is
    /// missed only if the master refuses the subscription, or if the connection breaks. The waiter
    /// then asks again at its next poll.
    pub(crate) fn new(
        masters: &'a Masters,
        timers: &'a Timers,
        more: Duration,
        ticket: &Ticket,
    ) -> Self {
        let waiter = Self {
            masters,
            timers,
            more,
            events: Arc::default(),
            turn: Topic::Turn(ticket.clone()),
            watched: OnceLock::new(),
        };
        masters.listen(&waiter.turn, &waiter.listener());
        waiter
    }

    /// Lets changes of `key` wake this waiter, like calls. A master reports a change only after a
    /// command that watches the key.
    pub(crate) fn watch(&self, key: &Arc<str>) {
        let topic = Topic::Key(key.clone());
        if self.watched.set(topic.clone()).is_ok() {
            self.masters.listen(&topic, &self.listener());
        }
    }

    /// Forgets the events that came before the attempt that begins now.
    pub(crate) fn begin_attempt(&self) {
        self.events.forget();
    }

    /// Waits until a majority of masters have called this waiter, or until `end`. After the first
    /// call, or the first change on a master in `held`, waits for `more` calls only for a short
    /// time. Masters that are not in `held` report what this waiter does itself.
    ///
    /// A change may be a renewal. During the delay, the holder can put its key back on masters that
    /// have lost the key. Otherwise this waiter would take those masters for a moment.
    pub(crate) async fn called(&self, held: MasterSet, end: LeaseTime) {
        let (quorum, mut last) = (self.masters.quorum(), None);
        let check = || {
            let heard = self.events.heard();
            let now = clock::now();
            let is_quiet = heard.called.is_empty() && heard.changed.and(held).is_empty();
            if !is_quiet && last.is_none() {
                last = Some(end.min(now + self.more));
            }
            let until = last.unwrap_or(end);
            if quorum.is_every_majority_in(heard.called) || now >= until {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(Some(until))
            }
        };
        self.events.signal.wait(self.timers, check).await;
    }

    fn listener(&self) -> Weak<dyn Listener> {
        Arc::downgrade(&self.events) as Weak<dyn Listener>
    }
}

impl Drop for CalledWaiter<'_> {
    fn drop(&mut self) {
        for topic in self.watched.get().into_iter().chain([&self.turn]) {
            self.masters.ignore(topic, &self.listener());
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
        assert_eq!(locks.context().masters.listeners(), 0);
        locks.close().await;
        tokio::time::sleep(moment).await;
        assert!(
            masters
                .iter()
                .all(|master| master.with(|server, _| server.subscriptions()) == 0)
        );
    }
}
