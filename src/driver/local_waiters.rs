//! The waiters of this coordinator for mutexes and reentrant locks. They contend in turn: for each
//! lock, one waiter makes attempts, and the others wait for their turn.

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

use super::{clock, masters::Masters, select::first_of, signal::Signal};
use crate::{
    core::{
        command::WakeScope,
        master_set::MasterSet,
        name::Resource,
        wait_order::{Turn, WaitOrder},
    },
    master::{ChannelEvent, Subscriber},
    user_code::shielded,
};

/// The wait queues of this coordinator, one for each lock that a task waits for.
#[derive(Debug, Default)]
pub(crate) struct LocalWaiters {
    queues: Mutex<HashMap<Resource, Arc<WaitQueue>>>,
    /// The number of queues.
    count: AtomicUsize,
}

/// The waiters for one lock. They contend on the masters one at a time, in the order in which they
/// came.
#[derive(Debug, Default)]
struct WaitQueue {
    state: Mutex<State>,
    /// Notified when an event has changed the state.
    changed: Signal,
}

#[derive(Debug, Default)]
struct State {
    /// The number of waiters. It changes only while [`LocalWaiters::queues`] is locked, too. A
    /// queue without waiters is removed from that map.
    waiters: usize,
    order: WaitOrder<Arc<Notify>>,
    is_subscribed: bool,
    /// The masters that have confirmed the subscription over their present connections.
    subscribed: MasterSet,
    /// The masters that have confirmed the subscription at any time.
    subscribed_before: MasterSet,
    /// The masters that have refused the subscription.
    denied: MasterSet,
    /// `true` if a holder has released, or may have released, the lock since the attempt began.
    is_released: bool,
    /// The masters that have deleted the key of a lost round since the attempt began.
    given_back: MasterSet,
}

impl LocalWaiters {
    /// Joins the wait queue for `resource`.
    pub(crate) fn join<'a>(
        &'a self,
        masters: &'a Masters,
        resource: &'a Resource,
    ) -> LocalWaiter<'a> {
        let mut queues = self.queues.lock();
        let queue = queues.entry(resource.clone()).or_default();
        let number = {
            let mut state = queue.state.lock();
            state.waiters += 1;
            state.order.number()
        };
        let queue = queue.clone();
        self.count.store(queues.len(), Ordering::Release);
        LocalWaiter {
            waiters: self,
            masters,
            resource,
            queue,
            number,
        }
    }

    /// Notes that a guard of this coordinator has just posted its release. A waiter that contends
    /// now finds the lock free on every master, because its commands are sent after the release.
    ///
    /// This method is cheap while no task waits for any lock: it only reads the number of queues. A
    /// waiter can miss the lock because of this guard only if it joined its queue before the
    /// release was posted. So the number includes the queue of that waiter.
    pub(crate) fn released(&self, resource: &Resource) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let queue = self.queues.lock().get(resource).cloned();
        if let Some(queue) = queue {
            queue.released();
        }
    }

    /// Wakes the contending waiter of every lock, to make it try again.
    pub(crate) fn wake_all(&self) {
        let queues: Vec<_> = self.queues.lock().values().cloned().collect();
        for queue in queues {
            queue.released();
        }
    }

    /// Removes `waiter`. Returns the handle that wakes the next waiter, if its turn has come.
    fn remove(&self, waiter: &LocalWaiter<'_>) -> Option<Arc<Notify>> {
        let mut queues = self.queues.lock();
        let mut state = waiter.queue.state.lock();
        let next = state.order.leave(waiter.number, clock::now());
        state.waiters -= 1;
        if state.waiters > 0 {
            return next;
        }
        queues.remove(waiter.resource);
        self.count.store(queues.len(), Ordering::Release);
        if state.is_subscribed {
            // Unsubscribes while `queues` is locked. The next waiter to join subscribes later.
            let subscriber = waiter.queue.subscriber();
            let channel = waiter.resource.channel();
            waiter.masters.unsubscribe(channel, &subscriber);
        }
        next
    }
}

/// A waiter in its queue. It leaves the queue when dropped.
#[derive(Debug)]
pub(crate) struct LocalWaiter<'a> {
    waiters: &'a LocalWaiters,
    masters: &'a Masters,
    resource: &'a Resource,
    queue: Arc<WaitQueue>,
    number: u64,
}

impl LocalWaiter<'_> {
    /// Waits until this waiter has its turn to contend, or until `deadline`. If the waiter is not
    /// polled for too long, it loses its turn and must wait again.
    pub(crate) async fn turn(&self, deadline: Option<Instant>) {
        loop {
            let now = clock::now();
            let turn = {
                let mut state = self.queue.state.lock();
                state.order.turn(self.number, now, Arc::default)
            };
            let Turn::Wait { wakeup, look_again } = turn else {
                return;
            };
            if deadline.is_some_and(|deadline| deadline <= now) {
                return;
            }
            let end = deadline.map_or(look_again, |deadline| deadline.min(look_again));
            first_of(wakeup.notified(), pin!(clock::sleep_until(end))).await;
        }
    }

    /// If this waiter has its turn, notes that it does not act before `at`.
    pub(crate) fn expect(&self, at: Instant) {
        self.queue.state.lock().order.expect(self.number, at);
    }

    /// Sleeps until `at`. The waiter keeps its turn meanwhile.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        self.expect(at);
        clock::sleep_until(at).await;
    }

    /// Moves this waiter to the end of its queue.
    pub(crate) fn step_back(&mut self) {
        let next = {
            let mut state = self.queue.state.lock();
            let next = state.order.step_back(self.number, clock::now());
            if next.is_some() {
                self.number = state.order.number();
            }
            next
        };
        wake(next);
    }

    /// Forgets the releases that came before the attempt that begins now.
    pub(crate) fn begin_attempt(&self) {
        let mut state = self.queue.state.lock();
        state.is_released = false;
        state.given_back = MasterSet::NONE;
    }

    /// Subscribes to releases on all masters. Then waits until a majority of masters have confirmed
    /// the subscription, or a majority have refused it. A release or `end` also ends the wait.
    ///
    /// Returns whether the subscription is new. A release just before a new subscription may have
    /// been missed, so the caller makes another attempt.
    pub(crate) async fn subscribe(&self, end: Instant) -> bool {
        {
            let mut state = self.queue.state.lock();
            if state.is_subscribed {
                return false;
            }
            state.is_subscribed = true;
        }
        let channel = self.resource.channel();
        self.masters.subscribe(channel, &self.queue.subscriber());
        let masters = self.masters.count();
        self.wait_until(end, |state| {
            state.subscribed.is_majority_of(masters)
                || state.denied.is_majority_of(masters)
                || state.is_released
        })
        .await;
        true
    }

    /// Waits until the lock seems to be free, or until `end`. Returns whether the lock seems to be
    /// free.
    ///
    /// The lock seems to be free when a holder has released it. The masters in `granted` are free:
    /// they granted the last attempt, and have deleted its key since. Masters that have deleted the
    /// key of another lost round are free, too. The lock also seems to be free when all these
    /// masters are a majority, and at least one has announced the deletion. So a waiter does not
    /// wake itself, and waiters do not wake each other while a holder has a majority.
    pub(crate) async fn released(&self, granted: MasterSet, end: Instant) -> bool {
        let masters = self.masters.count();
        let is_free = |state: &State| {
            state.is_released
                || !state.given_back.is_empty()
                    && (state.given_back | granted).is_majority_of(masters)
        };
        self.wait_until(end, is_free).await;
        is_free(&self.queue.state.lock())
    }

    /// Returns whether the queue is subscribed to releases on a majority of masters.
    pub(crate) fn gets_notices(&self) -> bool {
        let subscribed = self.queue.state.lock().subscribed;
        subscribed.is_majority_of(self.masters.count())
    }

    async fn wait_until(&self, end: Instant, is_done: impl Fn(&State) -> bool) {
        self.expect(end);
        let is_done = || is_done(&self.queue.state.lock());
        self.queue.changed.wait_until(end, is_done).await;
    }
}

impl Drop for LocalWaiter<'_> {
    fn drop(&mut self) {
        wake(self.waiters.remove(self));
    }
}

/// Wakes the waiter whose turn has come. The caller must hold no mutex, because a waker runs code
/// of the program.
fn wake(next: Option<Arc<Notify>>) {
    if let Some(next) = next {
        shielded(|| next.notify_one());
    }
}

impl State {
    /// Notes that a holder has released the lock. The waiter that contends then tries again.
    fn released(&mut self) {
        self.is_released = true;
        self.order.on_event(clock::now());
    }
}

impl WaitQueue {
    fn released(&self) {
        self.state.lock().released();
        self.changed.notify();
    }

    fn subscriber(self: &Arc<Self>) -> Weak<dyn Subscriber> {
        Arc::downgrade(self) as Weak<dyn Subscriber>
    }
}

impl Subscriber for WaitQueue {
    fn on_event(&self, master: usize, event: ChannelEvent<'_>) {
        let mut state = self.state.lock();
        match event {
            ChannelEvent::Disconnected => state.subscribed.remove(master),
            ChannelEvent::Subscribed => {
                // If the master has confirmed before, this confirmation comes over a new
                // connection. Messages after the end of the old connection are lost. One of them
                // may have announced a release.
                state.is_released |= state.subscribed_before.contains(master);
                state.subscribed.insert(master);
                state.subscribed_before.insert(master);
            }
            ChannelEvent::Message(WakeScope::THIS_MASTER) => state.given_back.insert(master),
            ChannelEvent::Message(_) => state.released(),
            ChannelEvent::Denied => state.denied.insert(master),
        }
        drop(state);
        self.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

    use tokio::time::timeout;

    use super::{ChannelEvent, Subscriber};
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
        assert_eq!(locks.engine().local_waiters().queues.lock().len(), 0);
        locks.close().await;
        tokio::time::sleep(moment).await;
        assert!(masters.iter().all(|master| master.listeners() == 0));
    }

    /// Another holder has three of five masters, and the other two are free.
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
        let queues = locks.engine().local_waiters().queues.lock().clone();
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

    /// A waiter can be dropped at any poll. The other waiters still hear of releases, and the last
    /// waiter unsubscribes.
    #[tokio::test(start_paused = true)]
    #[expect(
        clippy::disallowed_methods,
        reason = "the next waiter goes on by itself"
    )]
    async fn a_waiter_that_is_dropped_at_any_poll_unsubscribes() {
        let millis = Duration::from_millis;
        let mut subscribed = 0;
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
            // Leaves time for the requests under way, and for the next waiter to subscribe.
            tokio::time::sleep(millis(400)).await;
            subscribed += usize::from(masters.iter().all(|master| master.listeners() == 1));
            held.release().await.unwrap();
            let served = timeout(millis(60), next).await;
            drop(served.expect("the waiter was not woken").unwrap());
            tokio::time::sleep(millis(20)).await;
            for master in &masters {
                assert_eq!(master.listeners(), 0, "{polls} polls");
                assert_eq!(master.keys().len(), 0, "{polls} polls");
            }
            assert_eq!(locks.engine().local_waiters().queues.lock().len(), 0);
        }
        assert_eq!(subscribed, 31);
    }

    /// Polls `future` each time that it wakes its task, at most `polls` times. Then drops it.
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
