//! The handle with which tests use a server in this process.

use std::{
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};

use crate::{
    fault::Fault,
    heart::{Data, Reply, Server, Value, Version},
    link::Link,
    state::State,
};

/// A Redis master in this process, for tests without a server.
///
/// Clones are handles on the same server. Give one clone to the code under test, and keep another
/// to look at the keys or to inject faults. Any number of runtimes may use it.
///
/// Its clock follows tokio's: with `tokio::time::pause`, a test that covers an hour takes seconds
/// of real time. `TIME` shows the time of day when the server was created, plus what has passed by
/// tokio's clock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use std::time::Duration;
///
/// use quorlock_memory::{Fault, MemoryMaster};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let master = MemoryMaster::new();
/// let mut stream = master.connect()?; // for a client of Redis
/// stream.write_all(b"SET key value PX 60000\r\n").await?;
/// let mut reply = [0; 5];
/// stream.read_exact(&mut reply).await?;
/// assert_eq!(&reply, b"+OK\r\n");
/// assert_eq!(master.get("key").as_deref(), Some("value"));
///
/// master.inject(Fault::Down);
/// assert!(master.connect().is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryMaster {
    address: Arc<str>,
    state: Arc<Mutex<State>>,
    process: u64,
}

impl MemoryMaster {
    /// Creates a server without keys.
    #[must_use]
    pub fn new() -> Self {
        Self::of_version(Version::default())
    }

    /// Creates a server that has no keys and knows the commands of this version.
    #[must_use]
    pub fn of_version(version: Version) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let address = format!("memory:{number}");
        Self {
            state: Arc::new(Mutex::new(State::new(&address, version))),
            address: address.into(),
            process: 0,
        }
    }

    /// Returns the address, such as `memory:1`, which no other server of this process has.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens a connection. A task on the current runtime serves it. Fails while the server is
    /// [down](Fault::Down).
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        /// The most bytes on the way in each direction.
        const CAPACITY: usize = 256 * 1024;
        let mut state = self.state.lock();
        if state.fault == Fault::Down {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (stream, theirs) = duplex(CAPACITY);
        let mut link = Link::new(self.state.clone(), theirs, state.connect());
        drop(state);
        tokio::spawn(poll_fn(move |cx| link.poll(cx)));
        Ok(stream)
    }

    /// Makes the server fail with `fault` from now on. [`Fault::None`] makes it work again.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().inject(fault);
    }

    /// Restarts the server: all connections break, all keys are gone, and its run id is new. The
    /// present fault stays, and so do the values of `CONFIG SET` and the rights that were taken
    /// away.
    pub fn restart(&self) {
        self.with(|server, _| server.restart(Data::new()));
    }

    /// Deletes all keys, like `FLUSHALL`.
    pub fn forget(&self) {
        self.with(|server, _| server.flush());
    }

    /// Replaces all keys by those of `other`, like `REPLICAOF other` followed by `REPLICAOF NO
    /// ONE`.
    pub fn resync(&self, other: &Self) {
        let data = other.with(|server, _| server.snapshot());
        self.with(|server, _| server.resync(data));
    }

    /// Returns a handle on the same server for clients that simulate another process. Only its
    /// [`process`](Self::process) differs.
    #[must_use]
    pub fn for_another_process(&self) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        Self {
            process: COUNT.fetch_add(1, Ordering::Relaxed),
            ..self.clone()
        }
    }

    /// Returns the number of the process that this handle simulates: 0, or another number for a
    /// handle from [`for_another_process`](Self::for_another_process) and its clones. A client that
    /// remembers something about a server while its process lives should use the address and this
    /// number as the key.
    #[must_use]
    pub fn process(&self) -> u64 {
        self.process
    }

    /// Leaves `key` out of [`keys`](Self::keys) from now on. Clients hide keys that they write for
    /// themselves.
    pub fn hide(&self, key: &str) {
        self.state.lock().hidden.insert(key.to_owned());
    }

    /// Returns the names of all keys that have not expired, in order, without those that are
    /// [hidden](Self::hide).
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let mut state = self.state.lock();
        let now = state.now();
        let micros = state.server.micros(now);
        let names: Vec<_> = state.server.keys().names(micros).map(text).collect();
        let names = names.into_iter();
        names.filter(|name| !state.hidden.contains(name)).collect()
    }

    /// Returns the string under `key`. Returns `None` if the key does not exist or has another
    /// type.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        match self.value(key)? {
            Value::Text(value) => Some(text(&value)),
            Value::Hash(_) | Value::Sorted(_) => None,
        }
    }

    /// Returns the fields of the hash under `key`. Returns `None` if the key does not exist or has
    /// another type.
    #[must_use]
    pub fn hash(&self, key: &str) -> Option<BTreeMap<String, String>> {
        match self.value(key)? {
            Value::Hash(fields) => {
                let fields = fields.iter();
                Some(
                    fields
                        .map(|(field, value)| (text(field), text(value)))
                        .collect(),
                )
            }
            Value::Text(_) | Value::Sorted(_) => None,
        }
    }

    /// Returns the members of the sorted set under `key`, in order.
    #[must_use]
    pub fn queue(&self, key: &str) -> Vec<String> {
        let Some(Value::Sorted(members)) = self.value(key) else {
            return Vec::new();
        };
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_by_key(|(_, score)| *score);
        members.iter().map(|(member, _)| text(member)).collect()
    }

    /// Returns the remaining TTL of `key`. Returns `None` if the key does not exist or has no TTL.
    #[must_use]
    pub fn pttl(&self, key: &str) -> Option<Duration> {
        let left = self.with(|server, now| {
            let micros = server.micros(now);
            server.keys().pttl(key, micros)
        });
        u64::try_from(left).ok().map(Duration::from_millis)
    }

    /// Writes a string under `key`, as another client would.
    pub fn set(&self, key: impl Into<String>, value: impl Into<String>, ttl: Option<Duration>) {
        self.put(&key.into(), Value::Text(value.into().into_bytes()), ttl);
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
        let fields = fields.map(|(field, value)| {
            let (field, value) = (field.into(), value.into());
            (field.into_bytes(), value.into_bytes())
        });
        self.put(&key.into(), Value::Hash(fields.collect()), ttl);
    }

    /// Deletes `key`, as another client would.
    pub fn delete(&self, key: &str) {
        self.command(&["DEL", key]);
    }

    /// Executes a command at once, as another client would, in database 0. No fault applies to it,
    /// and [`commands`](Self::commands) does not count it.
    pub fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        self.with(|server, now| server.run(words, now))
    }

    /// Returns how many commands on data the server has executed or refused. Those about the
    /// connection, such as `HELLO` and `SUBSCRIBE`, do not count.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.with(|server, _| server.commands())
    }

    /// Sets the clock: it shows `ahead` microseconds more than the time of day, and gains `ppm`
    /// microseconds in a second from now on. With a `ppm` of -1,000,000, it stands still. As on a
    /// server, `TIME` and the TTLs of keys follow this clock.
    pub fn set_clock(&self, ahead: i64, ppm: i64) {
        let mut state = self.state.lock();
        state.with(|server, now| server.set_clock(now, ahead, ppm));
        state.wake_all(); // the timers of connections are wrong
    }

    /// Calls `f` with the server and the true time. Use this if no other method does what you need.
    /// Connections get what `f` makes the server send. `f` must not use a handle on this server.
    pub fn with<T>(&self, f: impl FnOnce(&mut Server, u64) -> T) -> T {
        self.state.lock().with(f)
    }

    fn value(&self, key: &str) -> Option<Value> {
        self.with(|server, now| {
            let micros = server.micros(now);
            server.keys().value(key, micros).cloned()
        })
    }

    fn put(&self, key: &str, value: Value, ttl: Option<Duration>) {
        let ttl = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        self.with(|server, now| server.put(key, value, ttl, now));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Default for MemoryMaster {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.state.lock().fault.clone();
        f.debug_struct("MemoryMaster")
            .field("address", &self.address)
            .field("fault", &fault)
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}
