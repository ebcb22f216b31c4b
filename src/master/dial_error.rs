//! The reasons why a dial fails.

#[cfg(feature = "sentinel")]
use std::fmt::Display;
use std::{future::Future, io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::redis::wire_error::WireError;
use crate::core::view::health::DialRefusal;

/// The rights that the quarantine needs, in the syntax of `ACL SETUSER`.
macro_rules! origin_rights {
    () => {
        "+eval +info +time +hmget +hset ~quorlock:guard"
    };
}
pub(crate) use origin_rights;

/// The reason why a dial failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// The dial of a server failed whose address the Sentinels named.
    #[cfg(feature = "sentinel")]
    #[error("at {address}, named by the Sentinels: {error}")]
    At { address: String, error: Box<Self> },
    /// The certificate of the server or of this program is refused.
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Certificate(String),
    /// Another server answered at the address during the dial. The question of this dial did not
    /// name it, so the dial must be repeated.
    #[error("another server answered at this address during the dial")]
    Changed,
    #[cfg(any(feature = "test-util", test))]
    #[error("{0}")]
    Connect(io::Error),
    #[error("refused the database: {0}")]
    Database(String),
    #[error("{0}: {1}")]
    Failed(Stage, io::Error),
    #[error("it is a Sentinel, not a master: use redis+sentinel://host:port/service")]
    IsSentinel,
    #[error("{0}")]
    Loading(String),
    #[error("refused the login: {0}")]
    Login(String),
    #[error("{0}")]
    MaxClients(String),
    /// The stream broke before the first reply. Only on a connection without TLS.
    #[error("{0}; if this port expects TLS, use rediss://")]
    NoGreeting(WireError),
    /// The stream broke after the handshake and before the first reply.
    #[cfg(feature = "tls")]
    #[error("{0}; does the server want a certificate of the client, with Builder::tls?")]
    NoGreetingOverTls(WireError),
    #[error("it is a {role}, not a master")]
    NotAMaster { role: String },
    #[error("it does not know HELLO 3, which Redis has since version 6: {0}")]
    NotRedis6(String),
    #[error("it cannot be asked whether it restarted: {why}")]
    RestartUnknown { why: String },
    /// The server cannot be asked whether it restarted, and quarantine is strict.
    #[error(
        "it cannot be asked whether it restarted: {why}; give its user the rights {}, \
         or use quarantine that is not strict",
        origin_rights!()
    )]
    RightsMissing { why: String },
    #[error("it is the same server as master {other}: every master must be a server of its own")]
    SameServer {
        /// The number of the other master, from 1.
        other: usize,
    },
    /// The Sentinels do not say where the master is.
    #[cfg(feature = "sentinel")]
    #[error("{0}")]
    Sentinel(String),
    #[error("{}", why_no_socket(.0))]
    Socket(io::Error),
    #[error("no connection in {0:?}{during}", during = during(.1))]
    Timeout(Duration, Option<Stage>),
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Tls(String),
    #[error(transparent)]
    Wire(#[cfg_attr(not(feature = "tls"), from)] WireError),
}

impl DialError {
    /// Returns this error with the address at which it happened.
    #[cfg(feature = "sentinel")]
    pub(super) fn at(self, address: &impl Display) -> Self {
        Self::At {
            address: address.to_string(),
            error: Box::new(self),
        }
    }

    pub(super) fn refusal(&self) -> Option<DialRefusal> {
        match self {
            #[cfg(feature = "sentinel")]
            Self::At { error, .. } => error.refusal(),
            #[cfg(feature = "tls")]
            Self::Certificate(_) => Some(DialRefusal::Certificate),
            Self::Login(_) => Some(DialRefusal::Login),
            _ => None,
        }
    }

    /// Returns whether the server speaks a protocol other than RESP.
    pub(crate) fn is_no_redis(&self) -> bool {
        matches!(
            self,
            Self::IsSentinel
                | Self::NoGreeting(WireError::NotResp)
                | Self::Wire(WireError::NotResp)
        )
    }
}

/// Returns why a unix socket cannot be used. The path is the address of the master, so it stands
/// before this text.
fn why_no_socket(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no such socket file ({error})"),
        io::ErrorKind::PermissionDenied => {
            format!("this user may not open the socket file ({error})")
        }
        io::ErrorKind::ConnectionRefused => format!("no server listens on the socket ({error})"),
        _ => error.to_string(),
    }
}

/// A part of a dial that takes time, with the host or the address.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Stage {
    #[error("connecting to {0}")]
    Connect(String),
    #[error("waiting for {0} to answer the login")]
    Login(String),
    #[error("looking up {0:?}")]
    Lookup(String),
    #[cfg(feature = "tls")]
    #[error(
        "waiting for {0} to answer the TLS handshake; if this port expects no TLS, use redis://"
    )]
    Tls(String),
}

fn during(stage: &Option<Stage>) -> String {
    stage
        .as_ref()
        .map_or_else(String::new, |stage| format!(": {stage}"))
}

/// The stage that a dial has reached. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Progress(Arc<Mutex<Option<Stage>>>);

impl Progress {
    pub(super) fn reach(&self, stage: impl Into<Option<Stage>>) {
        *self.0.lock() = stage.into();
    }
}

/// Runs `dial`. Gives up the dial if it is not over after `limit`. The error then has the stage
/// that `progress` shows.
pub(super) async fn in_time<T>(
    limit: Duration,
    progress: &Progress,
    dial: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    match timeout(limit, dial).await {
        Ok(dialled) => dialled,
        Err(_) => Err(DialError::Timeout(limit, progress.0.lock().clone())),
    }
}
