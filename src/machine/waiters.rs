//! The waiters of a coordinator, and the news that wakes them.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
    task::Waker,
};

use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;

use super::{ClaimId, out::Effect};
use crate::core::{
    protocol::{LockId, Ticket},
    time::LeaseTick,
    vote::MasterSet,
    wait::wait_order::WaitOrder,
};

new_key_type! {
    struct QueueId;
}

/// A waiter, by its number in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaiterId {
    queue: QueueId,
    number: u64,
}

/// What news is about. The news of a master may get lost, so it is only a hint. It may also be
/// false: waiters are also told of a key when a change may have been missed, for example when the
/// connection breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The key changes: any client writes or deletes it, or it expires. A master reports this only
    /// after a command that watches the key.
    Key(Arc<str>),
    /// No release is pending any more.
    Delivered,
    /// The lock of the claim is lost.
    Lost(ClaimId),
    /// It is the turn of the waiter with this ticket. A master publishes this on the channel of the
    /// waiter's coordinator. This variant comes last: see [`Waiters::called`].
    Turn(Ticket),
}

/// What the waiters of a queue have heard since its newest attempt began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) called: MasterSet,
    /// The masters on which the lock has changed, or may have changed.
    pub(crate) changed: MasterSet,
    /// `true` if a guard of this process has released the lock, or if the coordinator has been
    /// closed.
    pub(crate) is_released: bool,
    /// `true` if the waiter that looks has its turn.
    pub(crate) contends: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    queues: SlotMap<QueueId, WaitQueue>,
    /// The queues of locks without queues on the masters, one for each lock that a task waits for.
    of_locks: HashMap<LockId, QueueId>,
    /// The queues that get the news about each topic.
    topics: BTreeMap<Topic, SmallVec<[QueueId; 1]>>,
}

/// The waiters for one lock. They contend on the masters one at a time, in the order in which they
/// came. A waiter in the queues of the masters is alone in its queue here.
#[derive(Debug, Default)]
struct WaitQueue {
    /// `None` if no other waiter can join.
    lock: Option<LockId>,
    /// The number of waiters. A queue without waiters is removed.
    waiters: usize,
    order: WaitOrder,
    /// What wakes the waiters: the contender if there is news, and the others if it is their turn.
    wakers: BTreeMap<u64, Waker>,
    heard: Heard,
    topics: SmallVec<[Topic; 2]>,
}

impl Waiters {
    pub(crate) fn join(&mut self, lock: &LockId, now: LeaseTick) -> WaiterId {
        let queue = *self.of_locks.entry(lock.clone()).or_insert_with(|| {
            self.queues.insert(WaitQueue {
                lock: Some(lock.clone()),
                ..WaitQueue::default()
            })
        });
        self.enter(queue, now)
    }

    /// Adds a waiter with a queue of its own.
    pub(crate) fn add_alone(&mut self, now: LeaseTick) -> WaiterId {
        let queue = self.queues.insert(WaitQueue::default());
        self.enter(queue, now)
    }

    fn enter(&mut self, id: QueueId, now: LeaseTick) -> WaiterId {
        let queue = &mut self.queues[id];
        queue.waiters += 1;
        let number = queue.order.number();
        queue.order.ask_for_turn(number, now);
        WaiterId { queue: id, number }
    }

    pub(super) fn leave(&mut self, waiter: WaiterId, now: LeaseTick, out: &mut Vec<Effect>) {
        let WaiterId { queue: id, number } = waiter;
        let queue = &mut self.queues[id];
        if let Some(waker) = queue.wakers.remove(&number) {
            out.push(Effect::Drop(waker));
        }
        let next = queue.order.leave(number, now);
        queue.wake(next, out);
        queue.waiters -= 1;
        if queue.waiters > 0 {
            return;
        }
        let queue = self.queues.remove(id).unwrap_or_default();
        if let Some(lock) = &queue.lock {
            self.of_locks.remove(lock);
        }
        for topic in &queue.topics {
            if let Some(queues) = self.topics.get_mut(topic) {
                queues.retain(|other| *other != id);
                if queues.is_empty() {
                    self.topics.remove(topic);
                }
            }
        }
    }

    /// Returns whether a task waits for a lock without queues on the masters.
    pub(crate) fn is_awaited(&self, lock: &LockId) -> bool {
        self.of_locks.contains_key(lock)
    }

    /// Asks for the turn of a waiter. Returns `None` if the waiter may contend. Otherwise keeps
    /// `waker` and returns the latest time to ask again.
    pub(crate) fn ask_for_turn(
        &mut self,
        waiter: WaiterId,
        now: LeaseTick,
        waker: &mut Option<Waker>,
    ) -> Option<LeaseTick> {
        let look_again = (self.queues[waiter.queue].order).ask_for_turn(waiter.number, now)?;
        self.keep(waiter, waker);
        Some(look_again)
    }

    /// Moves a waiter to the end of its queue, if other waiters wait. The waiter then has another
    /// number.
    pub(crate) fn step_back(
        &mut self,
        waiter: &mut WaiterId,
        now: LeaseTick,
        out: &mut Vec<Effect>,
    ) {
        let queue = &mut self.queues[waiter.queue];
        let next = queue.order.step_back(waiter.number, now);
        if next.is_some() {
            if let Some(waker) = queue.wakers.remove(&waiter.number) {
                out.push(Effect::Drop(waker));
            }
            waiter.number = queue.order.number();
        }
        queue.wake(next, out);
    }

    /// If it is the turn of this waiter, notes that it does not act before `at`.
    pub(crate) fn expect(&mut self, waiter: WaiterId, at: LeaseTick) {
        (self.queues[waiter.queue].order).expect(waiter.number, at);
    }

    fn contends(&self, waiter: WaiterId) -> bool {
        (self.queues[waiter.queue].order).contends(waiter.number)
    }

    pub(crate) fn heard(&self, waiter: WaiterId) -> Heard {
        Heard {
            contends: self.contends(waiter),
            ..self.queues[waiter.queue].heard
        }
    }

    /// Keeps `waker` until there is news or it is the turn of the waiter. Leaves the waker that it
    /// replaces.
    pub(crate) fn keep(&mut self, waiter: WaiterId, waker: &mut Option<Waker>) {
        let wakers = &mut self.queues[waiter.queue].wakers;
        if let Some(new) = waker.take_if(|new| {
            let old = wakers.get(&waiter.number);
            old.is_none_or(|old| !old.will_wake(new))
        }) {
            *waker = wakers.insert(waiter.number, new);
        }
    }

    /// Forgets the news that came before the attempt that begins now. Does nothing if it is not
    /// this waiter's turn. For example, a last attempt at a deadline must not take the news from
    /// the waiter that contends.
    pub(crate) fn begin_attempt(&mut self, waiter: WaiterId) {
        if self.contends(waiter) {
            self.queues[waiter.queue].heard = Heard::default();
        }
    }

    /// From now on, passes news about `topic` to the queue of `waiter`. Returns `false` if it did
    /// so before.
    pub(super) fn listen(&mut self, waiter: WaiterId, topic: &Topic) -> bool {
        let queue = &mut self.queues[waiter.queue];
        let is_new = !queue.topics.contains(topic);
        if is_new {
            queue.topics.push(topic.clone());
            let queues = self.topics.entry(topic.clone()).or_default();
            queues.push(waiter.queue);
        }
        is_new
    }

    pub(crate) fn watches(&self, waiter: WaiterId) -> bool {
        let topics = &self.queues[waiter.queue].topics;
        topics.iter().any(|topic| matches!(topic, Topic::Key(_)))
    }

    /// Returns the ticket of a waiter that waits for its turn, if there is one. All of them have
    /// the same channel.
    pub(super) fn called(&self) -> Option<&Ticket> {
        match self.topics.last_key_value()?.0 {
            Topic::Turn(ticket) => Some(ticket),
            Topic::Delivered | Topic::Key(_) | Topic::Lost(_) => None,
        }
    }

    pub(super) fn hear(
        &mut self,
        master: usize,
        topic: &Topic,
        now: LeaseTick,
        out: &mut Vec<Effect>,
    ) {
        for queue in self.topics.get(topic).into_iter().flatten() {
            self.queues[*queue].hear_of(topic, master, now, out);
        }
    }

    /// Passes on news about `topic` that comes from no master.
    pub(super) fn wake(&mut self, topic: &Topic, out: &mut Vec<Effect>) {
        for queue in self.topics.get(topic).into_iter().flatten() {
            self.queues[*queue].wake_everyone(out);
        }
    }

    /// Tells the waiters of each key that the key may have changed on `master` without a report.
    pub(super) fn hear_of_all_keys(
        &mut self,
        master: usize,
        now: LeaseTick,
        out: &mut Vec<Effect>,
    ) {
        let keys = (self.topics.iter()).take_while(|(topic, _)| matches!(topic, Topic::Key(_)));
        for (topic, queues) in keys {
            for queue in queues {
                self.queues[*queue].hear_of(topic, master, now, out);
            }
        }
    }

    /// Notes that a guard of this coordinator has just posted its release. From now on, the
    /// commands of a waiter find the lock free on every master, because they are sent after the
    /// release.
    pub(crate) fn note_release(&mut self, lock: &LockId, now: LeaseTick, out: &mut Vec<Effect>) {
        if let Some(queue) = self.of_locks.get(lock) {
            let queue = &mut self.queues[*queue];
            queue.heard.is_released = true;
            queue.wake_contender(now, out);
        }
    }

    /// Wakes all waiters, to make them notice the close.
    pub(crate) fn wake_all(&mut self, out: &mut Vec<Effect>) {
        for queue in self.queues.values_mut() {
            queue.heard.is_released = true;
            queue.wake_everyone(out);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    #[cfg(test)]
    pub(crate) fn topics(&self) -> usize {
        self.topics.len()
    }
}

impl WaitQueue {
    fn hear_of(&mut self, topic: &Topic, master: usize, now: LeaseTick, out: &mut Vec<Effect>) {
        if matches!(topic, Topic::Turn(_)) {
            self.heard.called.insert(master);
        } else {
            self.heard.changed.insert(master);
        }
        self.wake_contender(now, out);
    }

    /// Wakes the contender. If there is none, wakes all: those that were passed over do not ask for
    /// their turn before they are woken.
    fn wake_contender(&mut self, now: LeaseTick, out: &mut Vec<Effect>) {
        match self.order.on_event(now) {
            None => self.wake_everyone(out),
            contender => self.wake(contender, out),
        }
    }

    fn wake_everyone(&mut self, out: &mut Vec<Effect>) {
        let wakers = mem::take(&mut self.wakers);
        out.extend(wakers.into_values().map(Effect::Wake));
    }

    fn wake(&mut self, waiter: Option<u64>, out: &mut Vec<Effect>) {
        let waker = waiter.and_then(|number| self.wakers.remove(&number));
        out.extend(waker.map(Effect::Wake));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{kind::LockKind, protocol::command::fixture::lock_id};

    /// The tickets come after the keys, whatever the order of the calls.
    #[test]
    fn a_waiter_is_called_while_any_waits_for_its_turn() {
        let (mut waiters, now) = (Waiters::default(), LeaseTick::some());
        let mut out = Vec::new();
        let key = Topic::Key("r".into());
        let turn = |number| Topic::Turn(Ticket::new(number, "u:1"));
        let [watching, one, other] = [(); 3].map(|()| waiters.add_alone(now));
        assert!(waiters.called().is_none());
        assert!(waiters.listen(one, &turn(1)));
        assert!(waiters.listen(watching, &key));
        assert!(waiters.listen(other, &turn(2)));
        assert!(!waiters.listen(other, &turn(2)));
        assert!(waiters.called().is_some());
        waiters.leave(one, now, &mut out);
        assert!(waiters.called().is_some());
        waiters.leave(other, now, &mut out);
        assert!(waiters.called().is_none());
        assert_eq!((waiters.len(), waiters.topics()), (1, 1));
        waiters.leave(watching, now, &mut out);
        assert_eq!((waiters.len(), waiters.topics()), (0, 0));
    }

    /// News wakes the contender, and the end of its turn wakes the next waiter.
    #[test]
    fn one_waiter_of_a_lock_is_woken_at_a_time() {
        let (mut waiters, now) = (Waiters::default(), LeaseTick::some());
        let mut out = Vec::new();
        let lock = lock_id(LockKind::Mutex, "r");
        let [first, next] = [(); 2].map(|()| waiters.join(&lock, now));
        let key = Topic::Key(lock.key().clone());
        waiters.listen(first, &key);
        let waker = || Some(Waker::noop().clone());
        waiters.keep(first, &mut waker());
        assert_eq!(waiters.ask_for_turn(first, now, &mut None), None);
        let look_again = waiters.ask_for_turn(next, now, &mut waker());
        assert!(look_again.is_some_and(|at| at > now));
        waiters.hear(3, &key, now, &mut out);
        assert!(matches!(&out[..], [Effect::Wake(_)]));
        assert_eq!(waiters.heard(next).changed, MasterSet::only(3));
        waiters.note_release(&lock, now, &mut out);
        assert!(waiters.heard(next).is_released);
        assert_eq!(out.len(), 1, "it was woken already");
        waiters.begin_attempt(next); // has no turn
        assert!(waiters.heard(next).is_released);
        waiters.begin_attempt(first);
        assert!(!waiters.heard(next).is_released);
        waiters.leave(first, now, &mut out);
        assert_eq!(out.len(), 2);
        assert!(waiters.contends(next) && waiters.is_awaited(&lock));
        waiters.leave(next, now, &mut out);
        assert!(!waiters.is_awaited(&lock));
        assert_eq!((waiters.len(), waiters.topics()), (0, 0));
    }
}
