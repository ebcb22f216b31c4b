//! How one master is reached. Knows commands and votes; what a majority is, it does not know.

#[cfg(all(test, feature = "redis"))]
#[path = "../../tests/conformance/mod.rs"]
mod conformance;
pub(crate) mod dial_error;
mod in_flight;
mod known_origins;
mod liveness;
mod mailbox;
mod memory;
mod owed;
pub(crate) mod probe;
pub(crate) mod question;
#[cfg(feature = "redis")]
mod redis;
mod restart;
pub(crate) mod server_error;
mod supervisor;
mod unanswered;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

#[cfg(feature = "redis")]
use std::sync::OnceLock;

use crate::core::{
    command::{Command, WakeScope},
    master_set::MasterSet,
    quorum::Vote,
    retry::Backoff,
    timeout::NodeTimeout,
};

pub(crate) use mailbox::{ChannelEvent, Mailbox, Subscriber};
pub use memory::{Fault, MemoryMaster};
use probe::{Dialer, Probe};
#[cfg(feature = "__internals")]
pub(crate) use redis::encode_command;
#[cfg(all(test, feature = "redis"))]
pub(crate) use redis::wire_error::WireError;
pub(crate) use restart::RestartTracker;
use supervisor::supervise;

/// Where votes go. Every master that an [`Request`] was posted to casts at least one vote for it, the
/// first one when its node timeout is over at the latest; more may follow when an answer comes
/// late. The timeout begins when the command is sent, which may wait for the first dial, or for one
/// node timeout while the master does not keep up.
pub(crate) trait CountVotes: Send + Sync {
    /// `now` was read after the vote was there.
    fn count(&self, master: usize, vote: Vote, now: Instant);

    /// What a master said in more words than a vote has, just before it is counted.
    fn note(&self, _master: usize, _text: &str) {}

    /// Until when `master` must get the command even if it cannot be reached now, if it must: when what
    /// the command would delete there is gone by itself.
    fn owed_until(&self, _master: usize) -> Option<Instant> {
        None
    }
}

/// One command on its way to masters, shared by all of them.
pub(crate) struct Request<C: ?Sized = dyn CountVotes> {
    pub(crate) command: Command,
    /// The masters on which a command that wakes does so, a bit each. It wakes nobody on the others.
    publishers: MasterSet,
    /// When it was posted. Each master has its own time to answer from the send.
    pub(crate) posted: Instant,
    /// The command's bytes for all masters: made by the first one that sends it.
    #[cfg(feature = "redis")]
    wire: OnceLock<redis::wire::Encoded>,
    pub(crate) counter: C,
}

impl<C> Request<C> {
    pub(crate) fn new(
        command: Command,
        publishers: MasterSet,
        posted: Instant,
        counter: C,
    ) -> Self {
        Self {
            command,
            publishers,
            posted,
            #[cfg(feature = "redis")]
            wire: OnceLock::new(),
            counter,
        }
    }
}

impl<C: ?Sized> Request<C> {
    fn wakes_on(&self, master: usize) -> bool {
        self.command.wakes != WakeScope::Nobody && self.publishers.contains(master)
    }

    /// The command as `master` is to have it.
    fn command_for(&self, master: usize) -> Command {
        let mut command = self.command.clone();
        if !self.wakes_on(master) {
            command.wakes = WakeScope::Nobody;
        }
        command
    }
}

impl<C: ?Sized> fmt::Debug for Request<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("command", &self.command)
            .field("posted", &self.posted)
            .finish_non_exhaustive()
    }
}

/// One master, as given to [`Builder::master`](crate::Builder::master): a URL, a
/// [`MemoryMaster`], or a ready `redis::Client`.
///
/// URLs are `redis://[user][:password@]host[:port][/db]`, `rediss://` for TLS (feature `tls`), and
/// `unix:///path[?db=n&user=..&pass=..]`.
#[derive(Debug)]
pub struct MasterSpec(Spec);

enum Spec {
    Memory(MemoryMaster),
    #[cfg(feature = "redis")]
    Redis(Box<redis::Endpoint>),
    /// Kept for the error of `build`, which can say which master it was.
    Bad(String),
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(memory) => memory.fmt(f),
            #[cfg(feature = "redis")]
            Self::Redis(endpoint) => f.write_str(&endpoint.address()),
            Self::Bad(reason) => f.write_str(reason),
        }
    }
}

impl From<&str> for MasterSpec {
    fn from(url: &str) -> Self {
        #[cfg(feature = "redis")]
        let spec = redis::Endpoint::from_url(url)
            .map_or_else(Spec::Bad, |endpoint| Spec::Redis(Box::new(endpoint)));
        #[cfg(not(feature = "redis"))]
        let spec = {
            let _ = url;
            Spec::Bad("URLs need the crate's feature `redis`".to_owned())
        };
        Self(spec)
    }
}

impl From<&&str> for MasterSpec {
    fn from(url: &&str) -> Self {
        Self::from(*url)
    }
}

impl From<String> for MasterSpec {
    fn from(url: String) -> Self {
        Self::from(url.as_str())
    }
}

impl From<&String> for MasterSpec {
    fn from(url: &String) -> Self {
        Self::from(url.as_str())
    }
}

impl From<MemoryMaster> for MasterSpec {
    fn from(memory: MemoryMaster) -> Self {
        Self(Spec::Memory(memory))
    }
}

impl From<&MemoryMaster> for MasterSpec {
    fn from(memory: &MemoryMaster) -> Self {
        Self(Spec::Memory(memory.clone()))
    }
}

/// What every supervisor is told.
#[derive(Clone, Debug)]
pub(crate) struct MasterConfig {
    pub(crate) node_timeout: NodeTimeout,
    pub(crate) connect_timeout: Duration,
    /// How long to wait between dials.
    pub(crate) redial: Backoff,
    pub(crate) now: fn() -> Instant,
    pub(crate) random: fn() -> u64,
    pub(crate) guarding: RestartTracker,
    /// For how long a master that forgot has no vote.
    pub(crate) quarantine: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

/// The task that looks after one master; the floor above spawns it.
pub(crate) type Supervisor = Pin<Box<dyn Future<Output = ()> + Send>>;

impl MasterSpec {
    /// The address without secrets, which is also what makes two masters the same server.
    pub(crate) fn address(&self) -> Result<Arc<str>, String> {
        match &self.0 {
            Spec::Memory(memory) => Ok(memory.address()),
            #[cfg(feature = "redis")]
            Spec::Redis(endpoint) => Ok(endpoint.address()),
            Spec::Bad(reason) => Err(reason.clone()),
        }
    }

    /// Returns what a check needs to dial this master, which is number `master`.
    pub(crate) fn probe(&self, master: usize, config: &MasterConfig) -> Option<Probe> {
        let dialer = match &self.0 {
            Spec::Memory(memory) => Dialer::Memory(memory.clone().dialer(master, config)),
            #[cfg(feature = "redis")]
            Spec::Redis(endpoint) => Dialer::Redis(endpoint.clone().dialer(master, config)),
            Spec::Bad(_) => return None,
        };
        Some(Probe {
            address: self.address().ok()?,
            connect_timeout: config.connect_timeout,
            node_timeout: config.node_timeout,
            dialer,
        })
    }

    /// The mailbox of this master, as number `master`, and the task that serves it.
    pub(crate) fn open(
        self,
        master: usize,
        address: Arc<str>,
        terms: &MasterConfig,
    ) -> (Arc<Mailbox>, Supervisor) {
        let timeout = terms.node_timeout.least();
        let mailbox = Arc::new(Mailbox::new(master, address, terms.now, timeout));
        let supervisor: Supervisor = match self.0 {
            Spec::Memory(memory) => Box::pin(supervise(
                memory.dialer(master, terms),
                mailbox.clone(),
                terms.clone(),
            )),
            #[cfg(feature = "redis")]
            Spec::Redis(endpoint) => Box::pin(supervise(
                endpoint.dialer(master, terms),
                mailbox.clone(),
                terms.clone(),
            )),
            Spec::Bad(_) => Box::pin(async {}),
        };
        (mailbox, supervisor)
    }
}
