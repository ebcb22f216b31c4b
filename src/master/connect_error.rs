//! The reasons why no connection to a server can be made.

use std::{future::Future, io, time::Duration};

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::core::view::DialRefusal;

/// The reason why a connection to a master could not be made, or why the master refused the login.
///
/// The text has no password. It names a user only in error replies of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The error at an address that the Sentinels named.
    #[error("at {address}, named by the Sentinels: {error}")]
    At {
        /// The address.
        address: String,
        /// What went wrong there.
        error: Box<Self>,
    },
    /// The master cannot be used, for example because of its URL: see
    /// [`MasterSpec::address`](crate::MasterSpec::address).
    #[error("{0}")]
    BadMaster(String),
    /// The server, or a proxy before it, answered with an error that may be over soon: for example,
    /// it takes no more connections, or is still reading its data from disk.
    #[error("{0}")]
    Busy(String),
    /// The certificate of the server or of this program is refused, or this program trusts no
    /// authority.
    #[error("{0}")]
    Certificate(String),
    /// The server refused the database. The text begins with the number of the database.
    #[error("refused the database {0}")]
    Database(String),
    /// A step failed.
    #[error("{0}: {1}")]
    Failed(ConnectStep, io::Error),
    /// The server is a Sentinel.
    #[error("it is a Sentinel, not a master: use redis+sentinel://host:port/service")]
    IsSentinel,
    /// The server is one of several in a cluster, and others have some of the keys.
    #[error("it is a part of a cluster, and no master of its own: {0}")]
    IsShard(String),
    /// The server refused the user or the password. The text ends with what to do.
    #[error("refused the login: {0}")]
    Login(String),
    /// The stream of a connection without TLS broke before the first reply.
    #[error("{0}; if this port expects TLS, use rediss://")]
    NoGreeting(io::Error),
    /// The stream of a connection with TLS broke after the handshake and before the first reply.
    #[error(
        "{0}; does the server want a certificate of the client, with cert_file and key_file or Builder::tls?"
    )]
    NoGreetingOverTls(io::Error),
    /// The server and this program have no version of TLS in common, or the server has no TLS.
    #[error("{0}")]
    NoTls(String),
    /// The server is a replica.
    #[error("it is a {role}, not a master")]
    NotAMaster {
        /// The role that the server reports.
        role: String,
    },
    /// The first answer is not that of a Redis server.
    #[error("{0}")]
    NotRedis(String),
    /// The server does not know RESP3.
    #[error("it does not know HELLO 3, which Redis has since version 6: {0}")]
    NotRedis6(String),
    /// The server cannot be asked whether it may have lost locks, or it is not the server that this
    /// master should be. Only a coordinator asks. If no dial can work until someone changes a
    /// setting, this is the refusal.
    #[error("{0}")]
    Origin(String, Option<DialRefusal>),

    /// The Sentinels do not say where the master is.
    #[error("{0}")]
    Sentinel(String),
    /// The Sentinels will not say where the master is until a setting is changed: so many refuse
    /// the login, do not know the service, or are no Sentinels that the others are no majority.
    #[error("{0}")]
    Service(String),
    /// The time limit of the dial was over during this step.
    #[error("no connection in {0:?}{during}", during = during(.1))]
    Timeout(Duration, Option<ConnectStep>),
    /// The handshake of TLS failed, perhaps not for long.
    #[error("{0}")]
    Tls(String),
    /// The stream broke, or carried no replies of a Redis server.
    #[error(transparent)]
    Wire(#[cfg_attr(not(feature = "tls"), from)] io::Error),
}

impl ConnectError {
    #[cfg(feature = "sentinel")]
    pub(super) fn at(self, address: &str) -> Self {
        Self::At {
            address: address.to_owned(),
            error: Box::new(self),
        }
    }

    pub(super) fn refusal(&self) -> Option<DialRefusal> {
        match self {
            Self::At { error, .. } => error.refusal(),
            Self::Certificate(_) => Some(DialRefusal::Certificate),
            Self::Database(_) => Some(DialRefusal::Database),
            Self::IsSentinel | Self::IsShard(_) | Self::NotRedis(_) | Self::NotRedis6(_) => {
                Some(DialRefusal::OtherServer)
            }
            Self::Login(_) => Some(DialRefusal::Login),
            Self::NoTls(_) => Some(DialRefusal::Tls),
            Self::Origin(_, refusal) => *refusal,
            Self::Service(_) => Some(DialRefusal::Service),
            _ => None, // may be over soon
        }
    }
}

/// A step of a dial that takes time. It has the name of the host, or the address.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectStep {
    /// Connecting to this address.
    #[error("connecting to {0}")]
    Connect(String),
    /// Waiting for the answer to the login, or to the question about restarts, which follows the
    /// login.
    #[error("waiting for {0} to answer the first commands")]
    Login(String),
    /// Looking up the name of this host.
    #[error("looking up {0:?}")]
    Lookup(String),
    /// Waiting for the answer to the TLS handshake.
    #[error(
        "waiting for {0} to answer the TLS handshake; if this port expects no TLS, use redis://"
    )]
    Tls(String),
}

fn during(step: &Option<ConnectStep>) -> String {
    step.as_ref()
        .map_or_else(String::new, |step| format!(": {step}"))
}

/// The step that a dial has reached.
pub(super) type Progress = Mutex<Option<ConnectStep>>;

/// Runs `dial`. Gives up the dial if it is not over after `limit`. The error then has the step
/// that `progress` shows.
pub(super) async fn in_time<T>(
    limit: Duration,
    progress: &Progress,
    dial: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let dialled = timeout(limit, dial).await;
    dialled.unwrap_or_else(|_| Err(ConnectError::Timeout(limit, progress.lock().clone())))
}

/// The rights that the quarantine needs, in the syntax of `ACL SETUSER`.
pub(super) const ORIGIN_RIGHTS: &str = "+eval +info +time +hmget +hset ~quorlock:origin";
