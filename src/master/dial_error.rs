//! The reasons why a dial fails.

use super::{connect_error::ConnectError, wire_error::WireError};
use crate::core::view::health::DialRefusal;

/// The rights that the quarantine needs, in the syntax of `ACL SETUSER`.
pub(super) const ORIGIN_RIGHTS: &str = "+eval +info +time +hmget +hset ~quorlock:guard";

/// The reason why a dial failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// Another server answered at the address during the dial. The question of this dial did not
    /// name it, so the dial must be repeated.
    #[error("another server answered at this address during the dial")]
    Changed,
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("it cannot be asked whether it restarted: {why}")]
    RestartUnknown { why: String },
    /// The server cannot be asked whether it restarted, and quarantine is strict.
    #[error(
        "it cannot be asked whether it restarted: {why}; give its user the rights {}, \
         or use quarantine that is not strict",
        ORIGIN_RIGHTS
    )]
    RightsMissing { why: String },
    #[error("it is the same server as master {other}: every master must be a server of its own")]
    SameServer {
        /// The number of the other master, from 1.
        other: usize,
    },
}

impl DialError {
    pub(super) fn refusal(&self) -> Option<DialRefusal> {
        match self {
            Self::Connect(error) => error.refusal(),
            _ => None,
        }
    }
}

impl From<WireError> for DialError {
    fn from(error: WireError) -> Self {
        Self::Connect(error.into())
    }
}
