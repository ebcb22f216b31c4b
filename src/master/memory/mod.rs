//! Masters in this process: what the scripts do, written down in Rust, with faults to order.

mod connection;
mod fair;
mod fence;
mod keys;
mod probe;
mod scripts;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use tokio::time::Instant;

use self::keys::{Keys, Value};
pub(super) use self::{connection::Dialer, probe::MemoryProbe};
use super::{MasterConfig, known_origins::KnownOrigins};
use crate::core::{command::Command, restart::GuardRecord};

/// A master in this process, for tests without a server.
///
/// It does what a real master does with the crate's commands, the conformance suite sees to that, and it
/// fails to order. Clones are handles on the same master: give it to one or more coordinators and
/// keep a handle to look inside or to break it. Its keys expire by tokio's clock, so under
/// `tokio::time::pause` a test of hours takes no time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quorlock::{AcquireError, Coordinator, Fault, MemoryMaster};
///
/// let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
/// let locks = Coordinator::new(&masters)?;
///
/// masters[0].inject(Fault::Down);
/// let guard = locks.mutex("orders/42").try_acquire().await?; // two of three will do
/// assert_eq!(masters[1].keys(), ["orders/42"]);
///
/// masters[1].inject(Fault::ErrorReply("OOM command not allowed".into()));
/// let error = locks.mutex("orders/43").try_acquire().await.unwrap_err();
/// assert!(matches!(error, AcquireError::NoQuorum { .. }));
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryMaster {
    server: Arc<Server>,
    /// What the process that this handle stands for remembers.
    known_origins: KnownOrigins,
}

/// How a [`MemoryMaster`] fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It does not.
    #[default]
    None,
    /// Every command takes this long to arrive, and is executed then.
    Delay(Duration),
    /// Connections break, and none can be made.
    Down,
    /// Every command is answered with this error and not executed, such as `OOM command not allowed`.
    ErrorReply(String),
    /// It stands still, as after SIGSTOP: what it is sent is executed when the fault ends.
    Hang,
    /// It executes what it is sent, and its replies get lost. When the fault ends, connections that lost
    /// one break.
    Mute,
}

struct Server {
    address: Arc<str>,
    state: Mutex<State>,
}

struct State {
    /// Stands for the run id.
    address: Arc<str>,
    origin: Instant,
    /// By how many microseconds its time of day is off.
    ahead: i64,
    keys: Keys,
    fault: Fault,
    commands: u64,
    connections: u64,
    /// What was sent over connections that were given up while it stood still.
    stale: VecDeque<Command>,
    /// Which connections listen to which channel.
    listeners: BTreeMap<String, BTreeSet<u64>>,
    /// The channels of messages that a connection has not taken yet.
    messages: BTreeMap<u64, Vec<(String, String)>>,
    /// Who must look again when the fault changes or a message is there.
    wakers: BTreeMap<u64, Waker>,
    /// What a server keeps in a key, and forgets with the others; `None`: nobody has looked.
    guard: Option<GuardRecord>,
}

impl MemoryMaster {
    /// A master with nothing on it.
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let address: Arc<str> = format!("memory:{number}").into();
        Self {
            known_origins: KnownOrigins::default(),
            server: Arc::new(Server {
                address: address.clone(),
                state: Mutex::new(State {
                    address,
                    origin: now(),
                    ahead: 0,
                    keys: Keys::default(),
                    fault: Fault::None,
                    commands: 0,
                    connections: 0,
                    stale: VecDeque::new(),
                    listeners: BTreeMap::new(),
                    messages: BTreeMap::new(),
                    wakers: BTreeMap::new(),
                    guard: None,
                }),
            }),
        }
    }

    /// Makes it fail from now on, or, with [`Fault::None`], work again.
    pub fn inject(&self, fault: Fault) {
        let mut state = self.server.state.lock();
        if fault != Fault::Hang {
            for command in mem::take(&mut state.stale) {
                state.commands += 1;
                let _ = state.execute(&command); // there is nobody left to tell
            }
        }
        state.fault = fault;
        let wakers = mem::take(&mut state.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Forgets all keys, like a master that restarts without persistence, or `FLUSHALL`.
    pub fn forget(&self) {
        let mut state = self.server.state.lock();
        state.keys.clear();
        state.guard = None;
    }

    /// Returns a handle on the same master for coordinators that stand for another process: the
    /// [restart guard](crate::RestartGuard) of theirs does not know that this process has seen the
    /// master.
    #[must_use]
    pub fn for_another_process(&self) -> Self {
        Self {
            server: self.server.clone(),
            known_origins: KnownOrigins::default(),
        }
    }

    pub(super) fn dialer(self, number: usize, terms: &MasterConfig) -> Dialer {
        Dialer {
            guarding: terms.guarding.with(&self.known_origins),
            master: self,
            number,
        }
    }

    /// The names of all keys that have not expired, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.server.state.lock().keys().names()
    }

    /// The string under `key`, which a mutex is; `None` when there is nothing, or a key of another type.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        match self.server.state.lock().keys().value(key)? {
            Value::Text(text) => Some(text.clone()),
            Value::Hash(_) | Value::Sorted(_) => None,
        }
    }

    /// The fields of the hash under `key`, which a reentrant or a fair lock is; `None` when there is nothing, or
    /// a key of another type.
    #[must_use]
    pub fn hash(&self, key: &str) -> Option<BTreeMap<String, String>> {
        match self.server.state.lock().keys().value(key)? {
            Value::Hash(fields) => Some(fields.clone()),
            Value::Text(_) | Value::Sorted(_) => None,
        }
    }

    /// The members of the sorted set under `key`, which the queue of a fair lock is, in order.
    #[must_use]
    pub fn queue(&self, key: &str) -> Vec<String> {
        let mut state = self.server.state.lock();
        let members = state.keys().zrange(key).unwrap_or_default();
        members.into_iter().map(str::to_owned).collect()
    }

    /// For how long `key` will live; `None` when it is not there or has no TTL.
    #[must_use]
    pub fn pttl(&self, key: &str) -> Option<Duration> {
        let left = self.server.state.lock().keys().pttl(key);
        u64::try_from(left).ok().map(Duration::from_millis)
    }

    /// Writes a string under `key`, as another client would.
    pub fn set(&self, key: impl Into<String>, value: impl Into<String>, ttl: Option<Duration>) {
        self.put(key.into(), Value::Text(value.into()), ttl);
    }

    /// Writes a hash of `fields` under `key`, as another client would.
    pub fn set_hash<F, V>(
        &self,
        key: impl Into<String>,
        fields: impl IntoIterator<Item = (F, V)>,
        ttl: Option<Duration>,
    ) where
        F: Into<String>,
        V: Into<String>,
    {
        let fields = fields.into_iter();
        let fields = fields.map(|(field, value)| (field.into(), value.into()));
        self.put(key.into(), Value::Hash(fields.collect()), ttl);
    }

    /// Deletes `key`, as another client would.
    pub fn delete(&self, key: &str) {
        self.server.state.lock().keys.del(key);
    }

    /// How many commands it has executed or answered with an error.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.server.state.lock().commands
    }

    pub(super) fn address(&self) -> Arc<str> {
        self.server.address.clone()
    }

    fn put(&self, key: String, value: Value, ttl: Option<Duration>) {
        let mut state = self.server.state.lock();
        state.keys().put(key, value, ttl.map(millis));
    }
}

/// What tests see and do that users cannot.
#[cfg(test)]
impl MemoryMaster {
    /// How many channels it is listened to on.
    pub(crate) fn listeners(&self) -> usize {
        self.server.state.lock().listeners.len()
    }

    /// Sets its time of day, which tickets and candidates are compared with. Keys expire by another clock.
    pub(crate) fn set_clock(&self, ahead: i64) {
        self.server.state.lock().ahead = ahead;
    }
}

/// What conformance asks, which is for both kinds of master.
#[cfg(all(test, feature = "redis"))]
impl MemoryMaster {
    const TESTS: u64 = u64::MAX;

    /// Listens on `channel`, as a connection would.
    pub(crate) fn listen(&self, channel: &str) {
        let mut state = self.server.state.lock();
        state.listen(Self::TESTS, channel, true);
    }

    /// The channels and texts of the messages since the last time.
    pub(crate) fn heard(&self) -> Vec<(String, String)> {
        let mut state = self.server.state.lock();
        state.messages.remove(&Self::TESTS).unwrap_or_default()
    }

    /// The members of a sorted set with their scores, and the master's clock, which some of them are times of.
    pub(crate) fn scores(&self, key: &str) -> Option<(Vec<(String, f64)>, u64)> {
        let mut state = self.server.state.lock();
        let keys = state.keys();
        match keys.value(key)? {
            Value::Sorted(members) => {
                let members = members
                    .iter()
                    .map(|(member, score)| (member.clone(), *score));
                Some((members.collect(), keys.now()))
            }
            Value::Text(_) | Value::Hash(_) => None,
        }
    }

    /// Puts a member in a sorted set, with a score for the time of the master's clock.
    pub(crate) fn add(&self, key: &str, member: &str, score: impl Fn(u64) -> f64) {
        let mut state = self.server.state.lock();
        let keys = state.keys();
        let score = score(keys.now());
        let _ = keys.zadd(key, score, member); // another type is the test's mistake, and shows there
    }
}

impl Default for MemoryMaster {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut state = self.server.state.lock();
        let keys = state.keys().names();
        f.debug_struct("MemoryMaster")
            .field("address", &self.server.address)
            .field("fault", &state.fault)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

impl State {
    /// The keys as they are now, by the master's own clock.
    fn keys(&mut self) -> &mut Keys {
        let now = now().saturating_duration_since(self.origin);
        self.keys.at(millis(now))
    }

    /// Its time of day, in microseconds since 1970.
    fn wall_micros(&self) -> u64 {
        wall_micros().saturating_add_signed(self.ahead)
    }

    fn publish(&mut self, channel: &str, message: &str) {
        for number in self.listeners.get(channel).into_iter().flatten() {
            let messages = self.messages.entry(*number).or_default();
            messages.push((channel.to_owned(), message.to_owned()));
            if let Some(waker) = self.wakers.get(number) {
                waker.wake_by_ref();
            }
        }
    }

    fn listen(&mut self, number: u64, channel: &str, listen: bool) {
        let listeners = self.listeners.entry(channel.to_owned()).or_default();
        if listen {
            listeners.insert(number);
        } else {
            listeners.remove(&number);
        }
        if listeners.is_empty() {
            self.listeners.remove(channel);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a memory master is a server, and keeps the time by which its keys expire"
)]
fn now() -> Instant {
    Instant::now()
}

/// What goes by the time in tickets goes by the clock of those who draw them.
#[expect(
    clippy::disallowed_methods,
    reason = "a memory master is a server, and compares its time with that of tickets"
)]
fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
