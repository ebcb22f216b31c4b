//! Masters in this process: what the scripts do, written down in Rust, with faults to order.

mod connection;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::core::{
    claim::Claim,
    command::{Command, Reply, Verb},
};

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
/// masters[0].order(Fault::Down);
/// let guard = locks.mutex("orders/42").try_acquire().await?; // two of three will do
/// assert_eq!(masters[1].keys(), ["orders/42"]);
///
/// masters[1].order(Fault::ErrorReply("OOM command not allowed".into()));
/// let error = locks.mutex("orders/43").try_acquire().await.unwrap_err();
/// assert!(matches!(error, AcquireError::NoQuorum { .. }));
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryMaster {
    server: Arc<Server>,
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
    origin: Instant,
    keys: BTreeMap<String, Entry>,
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
}

struct Entry {
    /// `None` stands for a key of a type that is not a string.
    value: Option<String>,
    /// In milliseconds since `origin`. Redis counts in milliseconds, too, and keeps a key to the end of
    /// the one in which it expires.
    expires: Option<u64>,
}

impl MemoryMaster {
    /// A master with nothing on it.
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            server: Arc::new(Server {
                address: format!("memory:{number}").into(),
                state: Mutex::new(State {
                    origin: now(),
                    keys: BTreeMap::new(),
                    fault: Fault::None,
                    commands: 0,
                    connections: 0,
                    stale: VecDeque::new(),
                    listeners: BTreeMap::new(),
                    messages: BTreeMap::new(),
                    wakers: BTreeMap::new(),
                }),
            }),
        }
    }

    /// Makes it fail from now on, or, with [`Fault::None`], work again.
    pub fn order(&self, fault: Fault) {
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
        self.server.state.lock().keys.clear();
    }

    /// The names of all keys that have not expired, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut state = self.server.state.lock();
        let now = state.now();
        state.keys.retain(|_, entry| !entry.is_expired(now));
        state.keys.keys().cloned().collect()
    }

    /// What is written under `key`; `None` when there is nothing, or a key of another type.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        self.server.state.lock().live(key)?.value.clone()
    }

    /// For how long `key` will live; `None` when it is not there or has no TTL.
    #[must_use]
    pub fn pttl(&self, key: &str) -> Option<Duration> {
        let mut state = self.server.state.lock();
        let now = state.now();
        let expires = state.live(key)?.expires?;
        Some(Duration::from_millis(expires - now))
    }

    /// Writes a string under `key`, as another client would.
    pub fn set(&self, key: impl Into<String>, value: impl Into<String>, ttl: Option<Duration>) {
        self.insert(key.into(), Some(value.into()), ttl);
    }

    /// Puts a key of another type, say a hash, under `key`.
    pub fn set_other_type(&self, key: impl Into<String>, ttl: Option<Duration>) {
        self.insert(key.into(), None, ttl);
    }

    /// Deletes `key`, as another client would.
    pub fn delete(&self, key: &str) {
        self.server.state.lock().keys.remove(key);
    }

    /// How many commands it has executed or answered with an error.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.server.state.lock().commands
    }

    /// How many channels it is listened to on.
    #[cfg(test)]
    pub(crate) fn listeners(&self) -> usize {
        self.server.state.lock().listeners.len()
    }

    pub(super) fn address(&self) -> Arc<str> {
        self.server.address.clone()
    }

    fn insert(&self, key: String, value: Option<String>, ttl: Option<Duration>) {
        let mut state = self.server.state.lock();
        let expires = ttl.map(|ttl| state.now().saturating_add(millis(ttl)));
        state.keys.insert(key, Entry { value, expires });
    }
}

impl Default for MemoryMaster {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.server.state.lock();
        f.debug_struct("MemoryMaster")
            .field("address", &self.server.address)
            .field("fault", &state.fault)
            .field("keys", &state.keys.keys())
            .finish_non_exhaustive()
    }
}

impl State {
    /// The master's own clock.
    fn now(&self) -> u64 {
        millis(now().saturating_duration_since(self.origin))
    }

    fn live(&mut self, key: &str) -> Option<&mut Entry> {
        let now = self.now();
        self.keys
            .get_mut(key)
            .filter(|entry| !entry.is_expired(now))
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

    /// What `lua/mutex/*.lua` and `SET NX PX` do.
    fn execute(&mut self, command: &Command) -> Reply<'static> {
        const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let now = self.now();
        let Claim::Token(token) = &command.claim else {
            return Reply::Error("ERR not yet");
        };
        let token = token.as_bytes();
        let expires = now.saturating_add(command.ttl.millis());
        let key = command.resource.key();
        let Some(entry) = self.live(key) else {
            if command.verb == Verb::Acquire {
                let value = Some(String::from_utf8_lossy(token).into_owned());
                let expires = Some(expires);
                self.keys.insert(key.to_string(), Entry { value, expires });
                return Reply::Ok;
            }
            return Reply::Int(0);
        };
        let is_mine = match (&entry.value, command.verb) {
            (_, Verb::Acquire) => return Reply::Nil,
            (None, _) => return Reply::Error(WRONGTYPE),
            (Some(value), _) => value.as_bytes() == token,
        };
        if !is_mine {
            return match entry.expires {
                Some(expires) => {
                    let left = i64::try_from(expires - now).unwrap_or(i64::MAX);
                    Reply::Int(-left.max(1))
                }
                None => Reply::Nil,
            };
        }
        if command.verb == Verb::Release {
            self.keys.remove(&**key);
            self.publish(command.wake_channel(), "0");
        } else {
            // PTTL is -1 without a TTL, so that one is set even then.
            entry.expires = Some(entry.expires.map_or(expires, |old| old.max(expires)));
        }
        Reply::Int(1)
    }
}

impl Entry {
    fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| now > expires)
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
