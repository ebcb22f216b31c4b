//! The reasons why the stream of bytes to and from a server is given up.

use std::io;

/// The reason why a stream is given up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// A length in a reply is negative, too large, or no number.
    #[error("a reply announces an invalid length")]
    BadLength,
    #[error("closed by the server")]
    Closed,
    /// A reply is longer than any reply to a command of this crate.
    #[error("a reply without end")]
    Endless,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the answer is not RESP: is this a Redis server?")]
    NotResp,
    #[error("the connection takes no more bytes")]
    WriteZero,
}

impl WireError {
    /// Returns whether the connection ended, and nothing says why.
    #[cfg(feature = "tls")]
    pub(super) fn is_unexplained(&self) -> bool {
        match self {
            Self::Closed | Self::WriteZero => true,
            Self::Io(error) => error.get_ref().is_none(),
            Self::BadLength | Self::Endless | Self::NotResp => false,
        }
    }
}
