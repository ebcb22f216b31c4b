//! The handle with which tests use a memory master.

use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use parking_lot::Mutex;

use super::{clock::millis, connection::Dialer, fault::Fault, keys::Value, server::ServerState};
#[cfg(test)]
use crate::core::restart::Incarnation;
use crate::master::{config::MasterConfig, restart::known_origins::KnownOrigins};

/// A master in this process, for tests without a server.
///
/// A memory master answers the crate's commands like a real master: it runs the same Lua scripts. A
/// conformance suite checks this. The master fails when a test calls [`inject`](Self::inject).
///
/// Clones are handles on the same master. Give one clone to one or more coordinators, and keep
/// another to look at the master's keys or to inject faults.
///
/// Keys expire by tokio's clock. With `tokio::time::pause`, a test that covers hours takes almost
/// no real time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quorlock::{AcquireError, Coordinator, Fault, MemoryMaster};
///
/// let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
/// let locks = Coordinator::new(&masters)?;
///
/// masters[0].inject(Fault::Down);
/// let guard = locks.mutex("orders/42").try_acquire().await?; // two of three are enough
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
    state: Arc<Mutex<ServerState>>,
    /// The origins that are known to the process that this handle simulates.
    known_origins: KnownOrigins,
}

impl MemoryMaster {
    /// Creates a master without keys.
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let address = format!("memory:{number}").into();
        Self {
            state: Arc::new(Mutex::new(ServerState::new(address))),
            known_origins: KnownOrigins::default(),
        }
    }

    /// Makes the master fail with `fault` from now on. [`Fault::None`] makes the master work again.
    pub fn inject(&self, fault: Fault) {
        let mut state = self.state.lock();
        if fault != Fault::Hang {
            for command in mem::take(&mut state.undelivered) {
                state.commands += 1;
                let _ = state.execute(&command); // the connection for the reply is closed
                state.report_changes();
            }
        }
        state.fault = fault;
        let wakers = mem::take(&mut state.connections.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Restarts the master, which keeps nothing: all connections break, and all keys are gone. The
    /// present fault stays.
    ///
    /// Coordinators connect again after at most 100 ms. Their [quarantine](crate::Quarantine)
    /// notices the restart, and the master has no vote until the locks that it forgot are over.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # use std::time::Duration;
    /// let masters = [(); 3].map(|()| MemoryMaster::new());
    /// let locks = Coordinator::new(&masters)?;
    /// locks.all_ready(Duration::from_secs(1)).await?;
    /// masters[0].restart();
    /// let error = locks.all_ready(Duration::from_secs(1)).await.unwrap_err();
    /// assert!(error.to_string().contains("may have forgotten locks"));
    /// assert!(error.has_quorum());
    /// # Ok(()) }
    /// ```
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.restart();
        let wakers = mem::take(&mut state.connections.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Deletes all keys, like `FLUSHALL`. Coordinators that are connected notice this, and their
    /// [quarantine](crate::Quarantine) takes the vote from the master, as after a
    /// [`restart`](Self::restart). Without quarantine, two guards of one lock can be valid.
    pub fn forget(&self) {
        self.state.lock().flush();
    }

    /// Replaces all keys by those of `other`, like `REPLICAOF other` followed by `REPLICAOF NO
    /// ONE`. Coordinators that are connected notice this, as in [`forget`](Self::forget).
    pub fn resync(&self, other: &Self) {
        let keys = other.state.lock().keys().clone();
        let mut state = self.state.lock();
        let now = state.keys().now();
        state.resync(keys.moved_to(now));
    }

    /// Returns a handle on the same master for coordinators that simulate another process. Their
    /// [quarantine](crate::Quarantine) does not know that this process has seen the master.
    #[must_use]
    pub fn for_another_process(&self) -> Self {
        Self {
            state: self.state.clone(),
            known_origins: KnownOrigins::default(),
        }
    }

    pub(in crate::master) fn dialer(self, master: usize, config: &MasterConfig) -> Dialer {
        Dialer {
            restart_tracker: config.restart_tracker.with(&self.known_origins),
            state: self.state,
            master,
        }
    }

    /// Returns the names of all keys that have not expired, in order, without the record of the
    /// [quarantine](crate::Quarantine).
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.state.lock().keys().names()
    }

    /// Returns the string under `key`. A mutex is stored as a string. Returns `None` if the key
    /// does not exist or has another type.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        match self.state.lock().keys().value(key)? {
            Value::Text(text) => Some(text.clone()),
            Value::Hash(_) | Value::Sorted(_) => None,
        }
    }

    /// Returns the fields of the hash under `key`. A lock of any kind but a mutex is one.
    /// Returns `None` if the key does not exist or has another type.
    #[must_use]
    pub fn hash(&self, key: &str) -> Option<BTreeMap<String, String>> {
        match self.state.lock().keys().value(key)? {
            Value::Hash(fields) => Some(fields.clone()),
            Value::Text(_) | Value::Sorted(_) => None,
        }
    }

    /// Returns the members of the sorted set under `key`, in order. A lock's queue is stored as a
    /// sorted set.
    #[must_use]
    pub fn queue(&self, key: &str) -> Vec<String> {
        let mut state = self.state.lock();
        let members = state.keys().zrange(key).unwrap_or_default();
        members.into_iter().map(str::to_owned).collect()
    }

    /// Returns the remaining TTL of `key`. Returns `None` if the key does not exist or has no TTL.
    #[must_use]
    pub fn pttl(&self, key: &str) -> Option<Duration> {
        let left = self.state.lock().keys().pttl(key);
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
        let mut state = self.state.lock();
        state.keys.del(key);
        state.report_changes();
    }

    /// Returns how many commands the master has executed or answered with an error.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.state.lock().commands
    }

    pub(in crate::master) fn address(&self) -> Arc<str> {
        self.state.lock().address.clone()
    }

    fn put(&self, key: String, value: Value, ttl: Option<Duration>) {
        let mut state = self.state.lock();
        state.keys().put(key, value, ttl.map(millis));
        state.report_changes();
    }
}

/// For this crate's own tests.
#[cfg(test)]
impl MemoryMaster {
    /// Returns the number of subscriptions.
    pub(crate) fn listeners(&self) -> usize {
        self.state.lock().connections.subscriptions.len()
    }

    /// Sets the wall clock of this master ahead by `offset` microseconds. Tickets and candidates
    /// are compared with that clock. Keys expire by another clock.
    pub(crate) fn set_clock(&self, offset: i64) {
        self.state.lock().clock.offset = offset;
    }

    /// Makes the clock by which keys expire gain this many milliseconds in 1,000 s.
    pub(crate) fn set_gain(&self, gain: u64) {
        self.state.lock().clock.gain = gain;
    }
}

/// For the conformance suite, which runs on both kinds of master.
#[cfg(test)]
impl MemoryMaster {
    /// The number of the suite's connection.
    const CONNECTION: u64 = u64::MAX;

    /// Runs the script of the quarantine.
    pub(crate) fn ask_guard(&self, arguments: &[String]) -> Incarnation {
        let asked = self.state.lock().incarnation(arguments);
        asked.expect("the script does not fail")
    }

    pub(crate) fn info(&self) -> String {
        self.state.lock().info()
    }

    /// Begins another process with the same keys.
    pub(crate) fn set_run_id(&self, run_id: &str) {
        self.state.lock().run_id = run_id.to_owned();
    }

    /// Sets the clock, for good.
    pub(crate) fn set_millis(&self, millis: u64) {
        self.state.lock().set_time(millis * 1_000);
    }

    /// Subscribes to `channel`, as a connection does.
    pub(crate) fn listen(&self, channel: &str) {
        let mut state = self.state.lock();
        state
            .connections
            .subscriptions
            .insert((channel.to_owned(), Self::CONNECTION));
    }

    /// Returns the channels and texts of the messages since the last call.
    pub(crate) fn heard(&self) -> Vec<(String, String)> {
        let mut state = self.state.lock();
        let pushes = state
            .connections
            .pushes
            .remove(&Self::CONNECTION)
            .unwrap_or_default();
        let messages = pushes.into_iter().filter_map(|push| match push {
            super::connections::Push::Message(channel, message) => Some((channel, message)),
            super::connections::Push::Changed(_) => None,
        });
        messages.collect()
    }

    /// Returns the members of a sorted set with their scores, and the time of the master's clock.
    /// Some scores are times of this clock.
    pub(crate) fn scores(&self, key: &str) -> Option<(Vec<(String, f64)>, u64)> {
        let mut state = self.state.lock();
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

    /// Returns the time of the clock by which keys expire.
    pub(crate) fn millis(&self) -> u64 {
        self.state.lock().keys().now()
    }

    /// Adds a member to a sorted set. `score` makes the score from the time of the master's clock.
    pub(crate) fn add(&self, key: &str, member: &str, score: impl Fn(u64) -> f64) {
        let mut state = self.state.lock();
        let keys = state.keys();
        let score = score(keys.now());
        let _ = keys.zadd(key, score, member); // a key of another type fails the test later
    }
}

impl Default for MemoryMaster {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut state = self.state.lock();
        let keys = state.keys().names();
        f.debug_struct("MemoryMaster")
            .field("address", &state.address)
            .field("fault", &state.fault)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}
