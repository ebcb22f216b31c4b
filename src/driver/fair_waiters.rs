//! LocalWaiters for a fair lock: the masters call up who is next.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Weak},
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    core::{identity::Ticket, master_set::MasterSet},
    driver::clock,
    driver::{engine::Engine, select::first_of},
    master::{ChannelEvent, Subscriber},
    user_code::shielded,
};

/// The waiters of this process for all its fair locks, who are called up on one channel.
#[derive(Debug)]
pub(crate) struct FairWaiters {
    channel: Arc<str>,
    board: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    waiters: Mutex<HashMap<Ticket, Arc<Wakeup>>>,
}

#[derive(Debug, Default)]
struct Wakeup {
    /// The masters that did, a bit each.
    by: Mutex<MasterSet>,
    heard: Notify,
}

impl FairWaiters {
    /// Of the process that is called `process`.
    pub(crate) fn new(process: &str) -> Self {
        Self {
            channel: format!("quorlock:turn:{process}").into(),
            board: Arc::default(),
        }
    }

    /// Listens for `ticket`. What is posted behind this cannot be answered with a call that is missed.
    pub(crate) fn join<'a>(&self, engine: &'a Engine, ticket: &Ticket) -> FairWaiter<'a> {
        let called = Arc::<Wakeup>::default();
        let mut waiters = self.board.waiters.lock();
        let is_first = waiters.is_empty();
        waiters.insert(ticket.clone(), called.clone());
        if is_first {
            // Under the lock, so that it is ahead of what the last one to leave does.
            engine.each_mailbox(|mailbox| mailbox.subscribe(&self.channel, self.subscriber()));
        }
        FairWaiter {
            engine,
            ticket: ticket.clone(),
            called,
        }
    }

    /// Has all who wait ask again, as there is something new to learn.
    pub(crate) fn wake_all(&self) {
        let waiters: Vec<_> = self.board.waiters.lock().values().cloned().collect();
        for called in waiters {
            called.call(MasterSet::ALL);
        }
    }

    fn leave(&self, turn: &FairWaiter<'_>) {
        let mut waiters = self.board.waiters.lock();
        waiters.remove(&turn.ticket);
        if waiters.is_empty() {
            let subscriber = self.subscriber();
            turn.engine
                .each_mailbox(|mailbox| mailbox.unsubscribe(&self.channel, &subscriber));
        }
    }

    fn subscriber(&self) -> Weak<dyn Subscriber> {
        Arc::downgrade(&self.board) as Weak<dyn Subscriber>
    }
}

impl Subscriber for Inbox {
    fn on_event(&self, master: usize, heard: ChannelEvent<'_>) {
        let ChannelEvent::Message(ticket) = heard else {
            return; // what was missed meanwhile is noticed by polling
        };
        let called = self.waiters.lock().get(ticket).cloned();
        if let Some(called) = called {
            called.call(MasterSet::only(master));
        }
    }
}

impl Wakeup {
    /// By `masters`, a bit each.
    fn call(&self, masters: MasterSet) {
        *self.by.lock() |= masters;
        shielded(|| self.heard.notify_waiters());
    }
}

/// A waiter who listens, until this is dropped.
#[derive(Debug)]
pub(crate) struct FairWaiter<'a> {
    engine: &'a Engine,
    ticket: Ticket,
    called: Arc<Wakeup>,
}

impl FairWaiter<'_> {
    /// Forgets what was heard: from here on counts what happens during and after the next attempt.
    pub(crate) fn attempt(&self) {
        *self.called.by.lock() = MasterSet::NONE;
    }

    /// Waits until a majority of masters have called, or so long that the rest will not, or to `end`.
    pub(crate) async fn called(&self, end: Instant) {
        let mut last = None;
        loop {
            let mut heard = pin!(self.called.heard.notified());
            heard.as_mut().enable(); // first register, then look
            let by = *self.called.by.lock();
            let now = clock::now();
            if !by.is_empty() && last.is_none() {
                last = Some(end.min(now + self.engine.config().retry.least()));
            }
            let until = last.unwrap_or(end);
            if by.is_majority_of(self.engine.size()) || now >= until {
                return;
            }
            first_of(heard, pin!(clock::sleep_until(until))).await;
        }
    }
}

impl Drop for FairWaiter<'_> {
    fn drop(&mut self) {
        self.engine.turns().leave(self);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Coordinator, MemoryMaster};

    /// Whether they got it, gave up or were dropped.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_those_who_do_not_wait_any_more() {
        let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
        let (locks, others) = (
            Coordinator::new(&masters).unwrap(),
            Coordinator::new(&masters).unwrap(),
        );
        let patience = Duration::from_millis(20);
        for name in 0..100 {
            let lock = locks.fair(format!("{name}"), &locks.owner());
            let held = others.fair(format!("{name}"), &others.owner());
            let held = held.acquire().await.unwrap();
            match name % 3 {
                0 => assert!(lock.acquire_within(patience).await.is_err()),
                1 => {
                    let mut waiter = Box::pin(lock.acquire());
                    let waits = tokio::time::timeout(patience, waiter.as_mut()).await;
                    assert!(waits.is_err());
                    assert!(masters.iter().all(|master| master.listeners() == 1));
                    drop(held);
                    drop(waiter.await.unwrap());
                }
                _ => {
                    let waits = tokio::time::timeout(patience, lock.acquire()).await;
                    assert!(waits.is_err());
                }
            }
        }
        assert_eq!(locks.engine().turns().board.waiters.lock().len(), 0);
        locks.close().await;
        tokio::time::sleep(patience).await;
        assert!(masters.iter().all(|master| master.listeners() == 0));
    }
}
