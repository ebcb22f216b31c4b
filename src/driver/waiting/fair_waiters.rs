//! The waiters of this coordinator for fair locks. A master calls the waiter at the head of its
//! queue: it publishes the ticket of that waiter.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{Arc, OnceLock, Weak},
    time::Instant,
};

use parking_lot::Mutex;

use super::signal::Signal;
use crate::{
    core::{kind::identity::Ticket, vote::master_set::MasterSet},
    driver::{masters::Masters, time::clock},
    master::{Subscriber, Watcher},
};

/// The waiters of this coordinator for all fair locks. Masters call all of them on one channel.
#[derive(Debug)]
pub(crate) struct FairWaiters {
    channel: Arc<str>,
    inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    waiters: Mutex<HashMap<Ticket, Arc<Wakeup>>>,
}

#[derive(Debug, Default)]
struct Wakeup {
    state: Mutex<State>,
    called: Signal,
}

/// The events since the attempt of a waiter began.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The masters that have called the waiter.
    by: MasterSet,
    /// The masters that have reported a change of the lock.
    changed: MasterSet,
}

impl FairWaiters {
    pub(crate) fn new(process: &str) -> Self {
        Self {
            channel: format!("quorlock:turn:{process}").into(),
            inbox: Arc::default(),
        }
    }

    /// Listens for calls of `ticket`. Requests that are posted later can cause calls. A call is
    /// missed only if the master refuses the subscription, or if the connection breaks.
    pub(crate) fn join<'a>(&'a self, masters: &'a Masters, ticket: &Ticket) -> FairWaiter<'a> {
        let wakeup = Arc::<Wakeup>::default();
        let mut waiters = self.inbox.waiters.lock();
        let is_first = waiters.is_empty();
        waiters.insert(ticket.clone(), wakeup.clone());
        if is_first {
            // Subscribes while `waiters` is locked. A waiter that leaves unsubscribes later.
            masters.subscribe(&self.channel, &self.subscriber());
        }
        FairWaiter {
            waiters: self,
            masters,
            ticket: ticket.clone(),
            wakeup,
            watched: OnceLock::new(),
        }
    }

    /// Wakes all waiters, to make them ask again.
    pub(crate) fn wake_all(&self) {
        let waiters: Vec<_> = self.inbox.waiters.lock().values().cloned().collect();
        for wakeup in waiters {
            wakeup.call(MasterSet::ALL);
        }
    }

    fn subscriber(&self) -> Weak<dyn Subscriber> {
        Arc::downgrade(&self.inbox) as Weak<dyn Subscriber>
    }
}

impl Subscriber for Inbox {
    /// A waiter that misses a call asks again at its next poll.
    fn on_message(&self, master: usize, ticket: &str) {
        let wakeup = self.waiters.lock().get(ticket).cloned();
        if let Some(wakeup) = wakeup {
            wakeup.call(MasterSet::only(master));
        }
    }
}

impl Watcher for Wakeup {
    fn on_change(&self, master: usize) {
        self.state.lock().changed.insert(master);
        self.called.notify();
    }
}

impl Wakeup {
    fn call(&self, by: MasterSet) {
        self.state.lock().by |= by;
        self.called.notify();
    }
}

/// A waiter that masters can call. It stops listening when dropped.
#[derive(Debug)]
pub(crate) struct FairWaiter<'a> {
    waiters: &'a FairWaiters,
    masters: &'a Masters,
    ticket: Ticket,
    wakeup: Arc<Wakeup>,
    /// The key whose changes wake this waiter.
    watched: OnceLock<Arc<str>>,
}

impl FairWaiter<'_> {
    /// Lets changes of `key` wake this waiter, like calls. A master reports a change only after a
    /// command that watches the key.
    pub(crate) fn watch(&self, key: &Arc<str>) {
        if self.watched.set(key.clone()).is_ok() {
            self.masters.watch(key, &self.watcher());
        }
    }

    fn watcher(&self) -> Weak<dyn Watcher> {
        Arc::downgrade(&self.wakeup) as Weak<dyn Watcher>
    }

    /// Forgets the events that came before the attempt that begins now.
    pub(crate) fn begin_attempt(&self) {
        *self.wakeup.state.lock() = State::default();
    }

    /// Waits until a majority of every set has called this waiter, or until `end`. After the first
    /// call, or the first change on a master in `held`, waits for more calls only for the shortest
    /// retry delay. Masters that are not in `held` report what this waiter does itself.
    ///
    /// A change may be a renewal. During the delay, the holder can put its key back on masters that
    /// have lost the key. Otherwise this waiter would take those masters for a moment.
    pub(crate) async fn called(&self, held: MasterSet, end: Instant) {
        let mut last = None;
        let check = || {
            let State { by, changed } = *self.wakeup.state.lock();
            let now = clock::now();
            let is_quiet = by.is_empty() && changed.and(held).is_empty();
            if !is_quiet && last.is_none() {
                last = Some(end.min(now + self.masters.config().retry.least()));
            }
            let until = last.unwrap_or(end);
            if self.masters.quorum().is_every_majority_in(by) || now >= until {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(Some(until))
            }
        };
        self.wakeup.called.wait(&self.masters.timers, check).await;
    }
}

impl Drop for FairWaiter<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.watched.get() {
            self.masters.unwatch(key, &self.watcher());
        }
        let mut waiters = self.waiters.inbox.waiters.lock();
        waiters.remove(&self.ticket);
        if waiters.is_empty() {
            let subscriber = self.waiters.subscriber();
            self.masters.unsubscribe(&self.waiters.channel, &subscriber);
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
                    assert!(masters.iter().all(|master| master.listeners() == 1));
                    drop(held);
                    drop(waiter.await.unwrap());
                }
                _ => {
                    let waits = tokio::time::timeout(moment, lock.acquire()).await;
                    assert!(waits.is_err());
                }
            }
        }
        assert_eq!(locks.engine().fair_waiters().inbox.waiters.lock().len(), 0);
        locks.close().await;
        tokio::time::sleep(moment).await;
        assert!(masters.iter().all(|master| master.listeners() == 0));
    }
}
