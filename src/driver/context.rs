//! The driver of a coordinator: its parts, and its tasks.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join;
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::watch};

use super::{
    masters::supervise, renewer::renew, round_handle::RoundHandle, time::Timers,
    timestamps::Timestamps, waiter::Waiter,
};
#[cfg(test)]
use crate::sim::Process;
use crate::{
    clock,
    core::{
        config::Config,
        hash::hash,
        protocol::{Command, LockId, identity::ClientName},
        reason::Reason,
        time::LeaseTick,
        view::{MasterHealth, MasterState},
        vote::{CastVote, Failure, Verb, Vote, Votes},
        wait::{history::History, queued::Reach},
    },
    machine::{Machine, session::Session, waiters::Topic},
    master::{Shared, Supervisor},
    observe::LockObserver,
    panics::shielded,
};

/// The driver of a coordinator: the parts that its calls, acquisitions and claims share. Dropping
/// this value ends the background task.
pub(crate) struct Context {
    pub(crate) config: Arc<Config>,
    pub(crate) owners: Arc<Owners>,
    pub(crate) timers: Timers,
    pub(crate) machine: Arc<Shared>,
    pub(crate) timestamps: Timestamps,
    /// The histories of locks of all kinds, by the hash of the lock's key. A history stays when no
    /// one waits for its lock any more.
    histories: Mutex<HashMap<u64, History>>,
    /// All waiters of the coordinator share this value.
    reach: Mutex<Reach>,
    is_closed: AtomicBool,
}

impl Context {
    /// Starts the background task on `runtime`. The task ends after the last coordinator, lock and
    /// guard are dropped. Before a supervisor ends, it delivers everything that was posted to it.
    pub(crate) fn start(
        owners: Arc<Owners>,
        machine: Arc<Shared>,
        supervisors: Vec<Supervisor>,
        runtime: &Handle,
    ) -> Arc<Self> {
        let busy = machine.clone();
        let is_busy = move || busy.lock(|machine| machine.sessions.iter().any(Session::is_busy));
        let task = join(supervise(supervisors, is_busy), renew(machine.clone()));
        let task = async move {
            task.await;
        };
        #[cfg(test)]
        let task = Process::adopt(task);
        let (ends_with_task, alive) = watch::channel(());
        let timers_end = TimersEnd(Some(ends_with_task));
        runtime.spawn(async move {
            let _end = timers_end; // dropped after the supervisors have ended
            task.await;
        });
        Arc::new(Self {
            owners,
            timers: Timers::new(runtime, alive),
            config: machine.config.clone(),
            machine,
            timestamps: Timestamps::default(),
            histories: Mutex::default(),
            reach: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns an error if the coordinator is closed, or if its tasks have ended.
    pub(crate) fn check_open(&self) -> Result<(), Reason> {
        if self.is_closed.load(Ordering::Acquire) || self.timers.have_ended() {
            return Err(Reason::Closed);
        }
        Ok(())
    }

    /// Returns whether this process was forked from the one that has the tasks. A call looks here
    /// or at [`check_open`](Self::check_open) before it locks a mutex: see
    /// [`HomeProcess`](crate::home::HomeProcess).
    pub(crate) fn is_forked(&self) -> bool {
        self.timers.home.is_parent()
    }

    /// Refuses new acquisitions. Wakes all waiters, to make them notice the close.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if self.is_forked() {
            return;
        }
        (self.machine).lock(|machine| machine.waiters.wake_all(&mut machine.out));
    }

    /// Waits until all releases are delivered, or until the keys that these releases delete have
    /// expired.
    pub(crate) async fn delivered(&self) {
        if self.is_forked() {
            return;
        }
        let check = || {
            let now = clock::monotonic();
            let until = self.machine.lock(|machine| machine.rounds.pending_until());
            match until.filter(|until| now < *until) {
                None => ControlFlow::Break(()),
                Some(until) => ControlFlow::Continue(clock::now_at(now) + until.since(now)),
            }
        };
        let waiter = Waiter::for_topic(&self.machine, &self.timers, &Topic::Delivered);
        waiter.wait(check).await;
    }

    /// Waits as [`delivered`](Self::delivered) does, for at most `limit`. Returns `false` if the
    /// limit ended the wait, or if the tasks that deliver the releases have ended.
    pub(crate) async fn delivered_within(&self, limit: Duration) -> bool {
        let end = clock::now() + limit;
        self.timers.until(end, self.delivered()).await.is_some() && !self.timers.have_ended()
    }

    /// Returns whether no one else is known to want the lock: no task of this coordinator waits for
    /// it, and the coordinator's last attempts have met no client of another process.
    pub(crate) fn is_calm(&self, lock_id: &LockId) -> bool {
        let is_awaited = (self.machine).lock(|machine| machine.waiters.is_awaited(lock_id));
        !is_awaited && !self.history(lock_id, |history| history.call_gives_way())
    }

    pub(crate) fn history<T>(&self, lock_id: &LockId, visit: impl FnOnce(&mut History) -> T) -> T {
        /// The largest number of histories. Then all are forgotten, and a waiter may give way too
        /// late, or waste a round trip.
        const MOST: usize = 4_096;
        let (hash, mut histories) = (hash(lock_id.key().bytes()), self.histories.lock());
        if histories.len() >= MOST && !histories.contains_key(&hash) {
            histories.clear();
        }
        visit(histories.entry(hash).or_default())
    }

    pub(crate) fn observer(&self) -> &LockObserver {
        &self.machine.observer
    }

    /// Asks all masters a question. If there is a `limit`, a majority that answers after that time
    /// is too late.
    pub(crate) fn ask(&self, question: Command, limit: Option<Duration>) -> RoundHandle {
        let round = (self.machine).with(|machine, now| machine.ask(question, limit, now));
        RoundHandle::new(&self.machine, round)
    }

    /// Returns the state of each master. After a fork, the states are those of a closed
    /// coordinator.
    pub(crate) fn health(&self) -> Vec<MasterHealth> {
        if self.is_forked() {
            let (roster, coordinator) = (&self.machine.roster, self.config.coordinator.as_ref());
            return MasterHealth::of_all(roster, coordinator, &MasterState::Closed).collect();
        }
        self.machine.masters()
    }

    /// Returns votes in which every master has failed, for a call [after a fork](Self::is_forked).
    pub(crate) fn closed_votes(&self, verb: Verb) -> Votes {
        let closed = CastVote::new(Vote::Fail(Failure::Closed), Duration::ZERO);
        let roster = &self.machine.roster;
        let cast = vec![Some(closed); roster.masters.len()];
        Votes::new(roster.clone(), cast.into(), verb)
    }

    /// Waits for an `event` of a round, for at most the [response timeout](Self::response_timeout).
    /// Returns `None` if the event has not come by then. Masters that are down have voted already.
    /// Masters that were never connected, or that are slower than a majority, may vote after this
    /// timeout.
    pub(crate) async fn in_time<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        let end = clock::now() + self.response_timeout();
        self.timers.until(end, event).await
    }

    /// Returns the response timeout that a majority of masters does not exceed, so that a few slow
    /// masters do not make calls slow. Before the first dial, returns the shortest response timeout
    /// that a master can have.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.machine.majority_timeout()
    }

    /// Returns how long a waiter in the queues may be silent. The result is at least four response
    /// timeouts of the slowest master, so a waiter does not count as dead after one lost poll.
    pub(crate) fn silent_waiter_timeout(&self) -> Duration {
        let slowest = self.machine.longest_timeout();
        self.config.silent_waiter_timeout.max(slowest * 4)
    }

    /// Returns when to try again after `failures` failures, according to the retry delay alone.
    pub(crate) fn retry_at(&self, failures: u32) -> LeaseTick {
        let retry = self.config.retry;
        clock::now() + retry.delay(failures, clock::random_u64())
    }

    /// Notes that a waiter for the lock `name` makes no attempt, because too few masters answered.
    /// Also logs the outage, unless it is in the log: an outage that begins soon after another is
    /// not logged at its start. Attempts cannot log it later, because waiters make no attempts
    /// while the outage lasts.
    pub(crate) fn note_no_masters(&self, name: &str) {
        self.note_reach(false, clock::now());
        let states = || {
            let health = self.machine.masters();
            let states: Vec<_> = health.iter().map(MasterHealth::to_string).collect();
            states.join(", ")
        };
        let observer = self.observer();
        observer.lacks_quorum(name, &Reason::NoQuorum, states);
    }

    /// Returns whether the waiters step aside now. They do so when they have reached too few
    /// masters for a long time.
    pub(crate) fn is_aside(&self) -> bool {
        let reach = *self.reach.lock();
        reach.is_aside(clock::now(), self.silent_waiter_timeout())
    }

    /// Notes whether an attempt has reached a majority. The attempt began at `start`, and is over
    /// now.
    pub(crate) fn note_reach(&self, is_reached: bool, start: LeaseTick) {
        let (times, timeout) = ((start, clock::now()), self.silent_waiter_timeout());
        self.reach.lock().note(is_reached, times, timeout);
    }
}

#[cfg(test)]
impl Context {
    pub(crate) fn waiters(&self) -> usize {
        self.machine.lock(|machine| machine.waiters.len())
    }

    pub(crate) fn topics(&self) -> usize {
        self.machine.lock(|machine| machine.waiters.topics())
    }

    pub(crate) fn report(&self, key: &str, master: usize) {
        self.machine.with(|machine, now| {
            machine.serve(master, now, |_, cx| cx.hear(&Topic::Key(key.into())));
        });
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_forked() {
            self.machine.lock(Machine::abandon);
        }
    }
}

pub(crate) struct Owners {
    /// The name of the coordinator on the masters: a random UUID.
    process: String,
    count: AtomicU64,
    client: Option<ClientName>,
}

impl Owners {
    pub(crate) fn new(client: Option<ClientName>) -> Self {
        Self {
            process: uuid(clock::random()),
            count: AtomicU64::new(0),
            client,
        }
    }

    pub(crate) fn new_id(&self) -> Arc<str> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut id = format!("{}:{number}", self.process);
        if let Some(client) = &self.client {
            id.push(ClientName::MARK);
            id.push_str(client.as_str());
        }
        id.into()
    }

    /// Returns whether this value named the owner `id`. Several coordinators may share this value,
    /// but all claims of an owner on one name belong to the same coordinator.
    pub(crate) fn have(&self, id: &str) -> bool {
        id.starts_with(&*self.process)
    }
}

fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40; // version 4
    bytes[8] = bytes[8] & 0x3f | 0x80; // the variant of RFC 9562
    let mut hex = format!("{:032x}", u128::from_be_bytes(bytes));
    for at in [8, 13, 18, 23] {
        hex.insert(at, '-');
    }
    hex
}

/// Ends the timers when it is dropped.
struct TimersEnd(Option<watch::Sender<()>>);

impl Drop for TimersEnd {
    /// Wakes all tasks that sleep. Their wakers are code of the program and may panic. Such a panic
    /// is caught, because this task may already be panicking.
    fn drop(&mut self) {
        shielded(|| drop(self.0.take()));
    }
}
