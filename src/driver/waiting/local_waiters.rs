//! The waiters of this coordinator for mutexes and reentrant locks. They contend in turn: for each
//! lock, one waiter makes attempts, and the others wait for their turn. The coordinator also keeps
//! the [`History`] of locks of all kinds here.

use std::{
    collections::HashMap,
    future, mem,
    pin::pin,
    sync::{Arc, Weak},
};

use futures::future::select;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Events;
use crate::{
    clock,
    core::{
        hash::hash,
        protocol::name::LockId,
        time::tick::LeaseTick,
        vote::{MasterSet, Vote, round::Round},
        wait::{history::History, wait_order::WaitOrder},
    },
    driver::{context::Context, live_round::LiveRound},
    machine::listeners::{Listener, Topic},
    panics::shielded,
};

/// The wait queues of this coordinator, one for each lock that a task waits for.
#[derive(Debug, Default)]
pub(crate) struct LocalWaiters {
    queues: Mutex<HashMap<LockId, Arc<WaitQueue>>>,
    /// The histories of locks of all kinds, by the hash of the lock's key. An entry stays after the
    /// queue of its lock is gone.
    histories: Mutex<HashMap<u64, History>>,
}

/// The waiters for one lock. They contend on the masters one at a time, in the order in which they
/// came.
#[derive(Debug, Default)]
struct WaitQueue {
    state: Mutex<QueueState>,
    /// The events for the waiter that contends.
    events: Events,
}

#[derive(Debug, Default)]
struct QueueState {
    /// The number of waiters. It changes only while [`LocalWaiters::queues`] is locked, too. A
    /// queue without waiters is removed from that map.
    waiters: usize,
    order: WaitOrder<Arc<Notify>>,
    /// `true` once the queue gets the changes that masters report.
    is_listening: bool,
}

impl LocalWaiters {
    /// The largest number of histories. Then all are forgotten, and a waiter may give way too late,
    /// or waste a round trip.
    const MOST_HISTORIES: usize = 4_096;

    /// Returns whether no one else is known to want the lock: no task of this coordinator waits for
    /// it, and the coordinator's last attempts have met no client of another process.
    pub(crate) fn is_calm(&self, lock_id: &LockId) -> bool {
        let is_awaited = self.queues.lock().contains_key(lock_id);
        !is_awaited && !self.history(lock_id, |history| history.call_gives_way())
    }

    /// Notes that a guard of this coordinator has just posted its release. From now on, the
    /// commands of a waiter find the lock free on every master, because they are sent after the
    /// release.
    pub(crate) fn note_release(&self, lock_id: &LockId) {
        let queue = self.queues.lock().get(lock_id).cloned();
        if let Some(queue) = queue {
            queue.note_release();
        }
    }

    /// Wakes the contending waiter of every lock, to make it try again.
    pub(crate) fn wake_all(&self) {
        let queues = self.queues.lock().clone();
        let mut queues: Vec<_> = queues.into_iter().collect();
        // The map has no order, and a run of the simulator must be repeatable.
        queues.sort_by(|(one, _), (other, _)| one.key().cmp(other.key()));
        for (_, queue) in queues {
            queue.note_release();
        }
    }

    /// Reads or changes the history of the lock.
    pub(crate) fn history<T>(&self, lock_id: &LockId, visit: impl FnOnce(&mut History) -> T) -> T {
        let (hash, mut histories) = (hash(lock_id.key().bytes()), self.histories.lock());
        if histories.len() >= Self::MOST_HISTORIES && !histories.contains_key(&hash) {
            histories.clear();
        }
        visit(histories.entry(hash).or_default())
    }
}

/// A waiter. It leaves its queue when dropped.
#[derive(Debug)]
pub(crate) struct LocalWaiter<'a> {
    context: &'a Context,
    lock_id: &'a LockId,
    queue: Arc<WaitQueue>,
    number: u64,
}

impl<'a> LocalWaiter<'a> {
    /// Joins the queue of the waiters for `lock_id`.
    pub(crate) fn join(context: &'a Context, lock_id: &'a LockId) -> Self {
        let mut queues = context.local_waiters.queues.lock();
        let queue = queues.entry(lock_id.clone()).or_default().clone();
        let number = {
            let mut state = queue.state.lock();
            state.waiters += 1;
            let number = state.order.number();
            state.order.ask_for_turn(number, clock::now(), Arc::default);
            number
        };
        Self {
            context,
            lock_id,
            queue,
            number,
        }
    }

    /// Waits until this waiter has its turn to contend, until `deadline`, or until the timers have
    /// ended. If too much time passes without a poll of this waiter, it loses its turn and must
    /// wait again. Returns whether there was a wait.
    pub(crate) async fn wait_for_turn(&self, deadline: Option<LeaseTick>) -> bool {
        let mut has_waited = false;
        loop {
            let now = clock::now();
            let turn = {
                let mut state = self.queue.state.lock();
                state.order.ask_for_turn(self.number, now, Arc::default)
            };
            let Some((wakeup, look_again)) = turn else {
                return has_waited;
            };
            if deadline.is_some_and(|deadline| deadline <= now) || self.context.timers.have_ended()
            {
                return has_waited;
            }
            let end = deadline.map_or(look_again, |deadline| deadline.min(look_again));
            let end = self.context.timers.sleep_until(end);
            select(pin!(wakeup.notified()), pin!(end)).await;
            has_waited = true;
        }
    }

    /// If this waiter has its turn, notes that it does not act before `at`.
    pub(crate) fn expect(&self, at: LeaseTick) {
        self.queue.state.lock().order.expect(self.number, at);
    }

    /// Sleeps until `at`. The waiter keeps its turn meanwhile.
    pub(crate) async fn sleep_until(&self, at: LeaseTick) {
        self.expect(at);
        self.context.timers.sleep_until(at).await;
    }

    /// Sleeps until `at`, or until a guard of this process releases the lock.
    pub(crate) async fn pause_until(&self, at: LeaseTick) {
        self.expect(at);
        let (signal, is_released) = (&self.queue.events.signal, || self.is_released());
        signal
            .wait_until(at, &self.context.timers, is_released)
            .await;
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

    /// Forgets the events that came before the attempt that begins now. Does nothing if it is not
    /// this waiter's turn. For example, a last attempt at a deadline must not take the events from
    /// the waiter that contends.
    pub(crate) fn begin_attempt(&self) {
        let state = self.queue.state.lock();
        if state.order.contends(self.number) {
            self.queue.events.forget();
        }
    }

    /// Starts to get the changes that masters report, unless waiters only poll. A master reports a
    /// change only after a command that watches the lock. Returns whether there will be reports.
    pub(crate) fn listen(&self) -> bool {
        if self.context.config.waiters_poll {
            return false;
        }
        let was_listening = mem::replace(&mut self.queue.state.lock().is_listening, true);
        if !was_listening {
            let (topic, listener) = (self.topic(), self.queue.listener());
            (self.context.machine).lock(|machine| machine.listen(&topic, &listener));
        }
        true
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
    pub(crate) async fn wait_for_news(
        &self,
        answers: Option<&LiveRound>,
        wanted: MasterSet,
        end: LeaseTick,
    ) -> Option<MasterSet> {
        if !self.queue.state.lock().order.contends(self.number) {
            return Some(wanted);
        }
        self.expect(end);
        let events = &self.queue.events;
        let agreed = self.agreed(wanted);
        let freed_in = |round: &Round| round.masters(Vote::is_freed);
        let freed = || answers.map_or(MasterSet::NONE, |round| round.read(freed_in));
        let is_majority = |set| self.context.machine.quorum().has_majority_of_every_set(set);
        let is_news = |freed: MasterSet| {
            let heard = events.heard();
            heard.is_released
                || agreed.is_some_and(|agreed| heard.changed.contains(agreed))
                || is_majority(heard.changed | freed)
        };
        let may_be_free = || is_news(freed());
        let changed = pin!(
            events
                .signal
                .wait_until(end, &self.context.timers, may_be_free)
        );
        // After a release was decided, more masters may still answer that the lock is free.
        let answered = pin!(async {
            match answers {
                Some(round) => {
                    let is_free = |round: &Round, _| is_news(freed_in(round)).then_some(());
                    round.until(is_free).await;
                }
                None => future::pending().await,
            }
        });
        select(changed, answered).await;
        let (changed, freed) = (events.heard().changed, freed());
        if is_majority(changed | freed) {
            let news = changed - freed;
            return Some(if news.is_empty() { freed } else { news });
        }
        may_be_free().then_some(wanted)
    }

    /// Returns whether a guard of this process has released the lock since the newest attempt of
    /// this queue began.
    pub(crate) fn is_released(&self) -> bool {
        self.queue.events.heard().is_released
    }

    /// Reads or changes the history of the lock.
    pub(crate) fn history<T>(&self, visit: impl FnOnce(&mut History) -> T) -> T {
        self.context.local_waiters.history(self.lock_id, visit)
    }

    /// Returns the agreed master, chosen from the masters in `among` that report changes.
    pub(crate) fn agreed(&self, among: MasterSet) -> Option<usize> {
        if self.context.config.waiters_poll {
            return None;
        }
        let machine = &self.context.machine;
        machine.agreed(self.lock_id.key(), machine.reporting().and(among))
    }

    /// Leaves the queue. If this starts the turn of another waiter, returns the handle that wakes
    /// that waiter.
    fn leave(&self) -> Option<Arc<Notify>> {
        let mut queues = self.context.local_waiters.queues.lock();
        let mut state = self.queue.state.lock();
        let next = state.order.leave(self.number, clock::now());
        state.waiters -= 1;
        let is_last = state.waiters == 0;
        if is_last {
            // This queue is not used again: the next waiter creates another one.
            queues.remove(self.lock_id);
        }
        let has_listened = is_last && state.is_listening;
        drop((state, queues)); // a turn of the machine may run code of the program
        if has_listened {
            let (topic, listener) = (self.topic(), self.queue.listener());
            (self.context.machine).lock(|machine| machine.ignore(&topic, &listener));
        }
        next
    }

    fn topic(&self) -> Topic {
        Topic::Key(self.lock_id.key().clone())
    }
}

impl Drop for LocalWaiter<'_> {
    fn drop(&mut self) {
        if !self.context.is_forked() {
            wake(self.leave());
        }
    }
}

/// Wakes the waiter whose turn has come. The caller must hold no mutex, because a waker runs code
/// of the program.
fn wake(next: Option<Arc<Notify>>) {
    if let Some(next) = next {
        shielded(|| next.notify_one());
    }
}

impl WaitQueue {
    fn note_release(&self) {
        self.state.lock().order.on_event(clock::now());
        self.events.note_release();
    }

    fn listener(self: &Arc<Self>) -> Weak<dyn Listener> {
        Arc::downgrade(self) as Weak<dyn Listener>
    }
}

impl Listener for WaitQueue {
    fn on_news(&self, master: usize, topic: &Topic) {
        self.state.lock().order.on_event(clock::now());
        self.events.on_news(master, topic);
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use testkit::polled::polled;
    use tokio::time::timeout;

    use super::{Listener, Topic};
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
        assert_eq!(locks.context().local_waiters.queues.lock().len(), 0);
        assert_eq!(locks.context().listeners(), 0);
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
        let queues = locks.context().local_waiters.queues.lock().clone();
        let queue = queues.values().next().unwrap();
        let sent = masters[0].commands();
        for master in [3, 4] {
            queue.on_news(master, &Topic::Key("r".into()));
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
            let queues = locks.context().local_waiters.queues.lock().clone();
            let queue = queues.values().next().unwrap();
            let flood = async || loop {
                tokio::time::sleep(millis(1)).await;
                (0..5).for_each(|master| queue.on_news(master, &Topic::Key("r".into())));
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
            watched += usize::from(locks.context().listeners() == 3);
            held.release().await.unwrap();
            let served = timeout(millis(60), next).await;
            drop(served.expect("the waiter was not woken").unwrap());
            tokio::time::sleep(millis(20)).await;
            for master in &masters {
                assert_eq!(master.keys().len(), 0, "{polls} polls");
            }
            assert_eq!(locks.context().local_waiters.queues.lock().len(), 0);
            assert_eq!(locks.context().listeners(), 0);
        }
        assert_eq!(watched, 31);
    }
}
