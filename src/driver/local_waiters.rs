//! LocalWaiters for a lock that another holds: who is next in this process, and when it is worth trying.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    core::{
        command::WakeScope,
        master_set::MasterSet,
        name::Resource,
        wait_order::{Turn, WaitOrder},
    },
    driver::clock,
    driver::{engine::Engine, select::first_of},
    master::{ChannelEvent, Subscriber},
    user_code::shielded,
};

/// The queues of this process, one for each name that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct LocalWaiters {
    queues: Mutex<HashMap<Resource, Arc<WaitQueue>>>,
    /// How many queues there are.
    count: AtomicUsize,
}

/// The waiters of one name. One of them at a time contends for the lock on the masters, in the order in
/// which they came.
#[derive(Debug)]
struct WaitQueue {
    state: Mutex<State>,
    /// Something was heard.
    heard: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Under the lock of the queues as well: a queue without waiters is taken down.
    waiters: usize,
    order: WaitOrder<Arc<Notify>>,
    is_listening: bool,
    /// Masters that will tell of a release, a bit each.
    listening: MasterSet,
    /// Masters that would have told of a release at some time, a bit each.
    listened: MasterSet,
    /// Masters that will never tell, a bit each.
    refused: MasterSet,
    /// Somebody who held the lock has released it, or may have.
    is_released: bool,
    /// Masters on which a lost round gave the key back, a bit each.
    given_back: MasterSet,
}

impl LocalWaiters {
    /// Joins the queue for `resource`.
    pub(crate) fn join<'a>(&self, engine: &'a Engine, resource: &'a Resource) -> LocalWaiter<'a> {
        let mut queues = self.queues.lock();
        let queue = queues.entry(resource.clone()).or_insert_with(|| {
            Arc::new(WaitQueue {
                state: Mutex::default(),
                heard: Notify::new(),
            })
        });
        let number = {
            let mut state = queue.state.lock();
            state.waiters += 1;
            state.order.number()
        };
        let queue = queue.clone();
        self.count.store(queues.len(), Ordering::Release);
        LocalWaiter {
            engine,
            resource,
            queue,
            number,
        }
    }

    /// A guard of this process has just posted its release: whoever contends for the lock will find it
    /// free on every master, as its commands go the same way.
    ///
    /// Cheap when nobody waits for anything: who has joined a queue and sent an attempt that can fail by this
    /// lock did so before the release, through the same mailboxes, and is in the count.
    pub(crate) fn released(&self, resource: &Resource) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let queue = self.queues.lock().get(resource).cloned();
        if let Some(queue) = queue {
            queue.state.lock().released();
            shielded(|| queue.heard.notify_waiters());
        }
    }

    /// Has all who contend try again, as there is something new to learn.
    pub(crate) fn wake_all(&self) {
        let queues: Vec<_> = self.queues.lock().values().cloned().collect();
        for queue in queues {
            queue.state.lock().released();
            shielded(|| queue.heard.notify_waiters());
        }
    }

    fn leave(&self, waiter: &LocalWaiter<'_>) {
        let next = self.take_out(waiter);
        // Not under the locks: this wakes a task.
        if let Some(next) = next {
            shielded(|| next.notify_one());
        }
    }

    /// Removes `waiter`. Whose turn has come now.
    fn take_out(&self, waiter: &LocalWaiter<'_>) -> Option<Arc<Notify>> {
        let mut queues = self.queues.lock();
        let mut state = waiter.queue.state.lock();
        let next = state.order.leave(waiter.number, clock::now());
        state.waiters -= 1;
        if state.waiters > 0 {
            return next;
        }
        queues.remove(waiter.resource);
        self.count.store(queues.len(), Ordering::Release);
        if state.is_listening {
            // Under the lock, so that who joins next subscribes behind this.
            let channel = waiter.resource.channel();
            let subscriber = waiter.queue.subscriber();
            waiter
                .engine
                .each_mailbox(|mailbox| mailbox.unsubscribe(channel, &subscriber));
        }
        next
    }
}

/// A place in a queue, given up when dropped.
#[derive(Debug)]
pub(crate) struct LocalWaiter<'a> {
    engine: &'a Engine,
    resource: &'a Resource,
    queue: Arc<WaitQueue>,
    number: u64,
}

impl LocalWaiter<'_> {
    /// Waits until it is this waiter's turn to contend, but not longer than to `deadline`. It may
    /// have to wait again after the next attempt, if it was not polled for too long.
    pub(crate) async fn turn(&self, deadline: Option<Instant>) {
        loop {
            let now = clock::now();
            let turn = {
                let mut state = self.queue.state.lock();
                state.order.turn(self.number, now, Arc::default)
            };
            let Turn::Wait { told, look_again } = turn else {
                return;
            };
            if deadline.is_some_and(|deadline| deadline <= now) {
                return;
            }
            let end = deadline.map_or(look_again, |deadline| deadline.min(look_again));
            first_of(pin!(told.notified()), pin!(clock::sleep_until(end))).await;
        }
    }

    /// Notes that this waiter does not act before `at`, if it is its turn.
    pub(crate) fn expect(&self, at: Instant) {
        self.queue.state.lock().order.expect(self.number, at);
    }

    /// Sleeps until `at`, without another waiter taking over meanwhile.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        self.expect(at);
        clock::sleep_until(at).await;
    }

    /// Has this waiter come after all others of its queue.
    pub(crate) fn step_back(&mut self) {
        let next = {
            let mut state = self.queue.state.lock();
            let next = state.order.step_back(self.number, clock::now());
            if next.is_some() {
                self.number = state.order.number();
            }
            next
        };
        if let Some(next) = next {
            shielded(|| next.notify_one());
        }
    }

    /// Forgets what was heard: from here on counts what happens during and after the next attempt.
    pub(crate) fn attempt(&self) {
        let mut state = self.queue.state.lock();
        state.is_released = false;
        state.given_back = MasterSet::NONE;
    }

    /// Has the masters tell of releases. Whether that is new: then a release may have been missed just
    /// before, and it is worth trying again as soon as they listen.
    pub(crate) async fn listen(&self, end: Instant) -> bool {
        {
            let mut state = self.queue.state.lock();
            if state.is_listening {
                return false;
            }
            state.is_listening = true;
        }
        let channel = self.resource.channel();
        self.engine
            .each_mailbox(|mailbox| mailbox.subscribe(channel, self.queue.subscriber()));
        let masters = self.engine.size();
        self.look_until(end, |state| {
            state.listening.is_majority_of(masters)
                || state.refused.is_majority_of(masters)
                || state.is_released
        })
        .await;
        true
    }

    /// Waits until somebody has released the lock, but not longer than to `end`. Whether that was heard.
    ///
    /// `granted` are the masters that granted the last attempt, a bit each, and have the key no
    /// more. They and those on which others gave it back are free: this also ends when they are a
    /// majority. So a waiter does not wake itself, and waiters do not wake each other while
    /// somebody holds a majority.
    pub(crate) async fn released(&self, granted: MasterSet, end: Instant) -> bool {
        let masters = self.engine.size();
        let is_free = |state: &State| {
            state.is_released
                || !state.given_back.is_empty()
                    && (state.given_back | granted).is_majority_of(masters)
        };
        self.look_until(end, is_free).await;
        is_free(&self.queue.state.lock())
    }

    /// Whether a majority of masters tell of releases.
    pub(crate) fn can_be_told(&self) -> bool {
        self.queue
            .state
            .lock()
            .listening
            .is_majority_of(self.engine.size())
    }

    async fn look_until(&self, end: Instant, done: impl Fn(&State) -> bool) {
        self.expect(end);
        loop {
            let mut heard = pin!(self.queue.heard.notified());
            heard.as_mut().enable(); // first register, then look
            if done(&self.queue.state.lock()) || clock::now() >= end {
                return;
            }
            first_of(heard, pin!(clock::sleep_until(end))).await;
        }
    }
}

impl Drop for LocalWaiter<'_> {
    fn drop(&mut self) {
        self.engine.waiting().leave(self);
    }
}

impl State {
    /// Somebody who held the lock has released it, so whoever contends is to try again.
    fn released(&mut self) {
        self.is_released = true;
        self.order.hear(clock::now());
    }
}

impl WaitQueue {
    fn subscriber(self: &Arc<Self>) -> Weak<dyn Subscriber> {
        Arc::downgrade(self) as Weak<dyn Subscriber>
    }
}

impl Subscriber for WaitQueue {
    fn on_event(&self, master: usize, heard: ChannelEvent<'_>) {
        let mut state = self.state.lock();
        match heard {
            ChannelEvent::Disconnected => state.listening.remove(master),
            ChannelEvent::Subscribed => {
                // Over a new connection: what was published meanwhile is missed for good.
                state.is_released |= state.listened.contains(master);
                state.listening.insert(master);
                state.listened.insert(master);
            }
            ChannelEvent::Message(WakeScope::THIS_MASTER) => state.given_back.insert(master),
            ChannelEvent::Message(_) => state.released(),
            ChannelEvent::Denied => state.refused.insert(master),
        }
        drop(state);
        shielded(|| self.heard.notify_waiters());
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

    use tokio::time::timeout;

    use super::{ChannelEvent, Subscriber};
    use crate::{Coordinator, Fault, MemoryMaster};

    /// Whether they got it, gave up or were dropped.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_of_names_that_nobody_waits_for() {
        let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
        let (locks, others) = (
            Coordinator::new(&masters).unwrap(),
            Coordinator::new(&masters).unwrap(),
        );
        let patience = Duration::from_millis(20);
        for name in 0..1_000 {
            let lock = locks.mutex(format!("{name}"));
            if name % 2 == 0 {
                drop(lock.acquire().await.unwrap());
                continue;
            }
            let _held = others.mutex(format!("{name}")).try_acquire().await.unwrap();
            lock.acquire_within(patience).await.unwrap_err();
            let _ = timeout(patience, lock.acquire()).await;
        }
        assert_eq!(locks.engine().waiting().queues.lock().len(), 0);
        locks.close().await;
        tokio::time::sleep(patience).await;
        assert!(masters.iter().all(|master| master.listeners() == 0));
    }

    /// Others have three of five masters, and nobody has the other two.
    #[tokio::test(start_paused = true)]
    async fn what_lost_rounds_give_back_wakes_when_it_makes_a_majority() {
        let masters: Vec<_> = (0..5).map(|_| MemoryMaster::new()).collect();
        let locks = Coordinator::new(&masters).unwrap();
        for master in &masters[..3] {
            master.set_hash("r", [("another:1", "1")], None);
        }
        let lock = locks.reentrant("r", &locks.owner());
        let mut waiting = pin!(lock.acquire());
        let moment = Duration::from_millis(50);
        assert!(timeout(moment, waiting.as_mut()).await.is_err());
        let queues = locks.engine().waiting().queues.lock().clone();
        let queue = queues.values().next().unwrap();
        let sent = masters[0].commands();
        for master in [3, 4] {
            queue.on_event(master, ChannelEvent::Message("00"));
            assert!(timeout(moment, waiting.as_mut()).await.is_err());
        }
        assert_eq!(masters[0].commands(), sent, "two masters are no majority");
        masters[0].delete("r");
        queue.on_event(0, ChannelEvent::Message("00"));
        let got = timeout(moment, waiting.as_mut()).await;
        drop(got.expect("three masters are one").unwrap());
    }

    /// Whoever of a queue is dropped, and where: the others are told as before, and the last one has the masters
    /// tell nobody any more.
    #[tokio::test(start_paused = true)]
    #[expect(
        clippy::disallowed_methods,
        reason = "who is next in a queue goes on by itself"
    )]
    async fn no_master_tells_of_releases_when_who_waited_was_dropped_at_any_poll() {
        let millis = Duration::from_millis;
        let mut told = 0;
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
            // What is on its way, and time for the next to subscribe in its turn.
            tokio::time::sleep(millis(400)).await;
            told += usize::from(masters.iter().all(|master| master.listeners() == 1));
            held.release().await.unwrap();
            let served = timeout(millis(60), next).await;
            drop(served.expect("nobody told it").unwrap());
            tokio::time::sleep(millis(20)).await;
            for master in &masters {
                assert_eq!(master.listeners(), 0, "{polls} polls");
                assert_eq!(master.keys().len(), 0, "{polls} polls");
            }
            assert_eq!(locks.engine().waiting().queues.lock().len(), 0);
        }
        assert_eq!(told, 31);
    }

    /// Polls `future` not more than `polls` times, whenever it asks for it, and drops it.
    async fn polled<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut left = polls;
        poll_fn(|cx| {
            left -= 1;
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}
