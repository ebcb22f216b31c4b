//! The reasons why the stream of bytes to and from a server is given up.

use std::io;

/// The reason why a stream is given up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A length in a reply is negative, too large, or no number.
    #[error("a reply announces an invalid length")]
    BadLength,
    /// The server has closed the stream.
    #[error("closed by the server")]
    Closed,
    /// A reply is longer than any reply to a command of this crate.
    #[error("a reply without end")]
    Endless,
    /// An error of the stream.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not those of a Redis server.
    #[error("the answer is not RESP: is this a Redis server?")]
    NotResp,
    /// The stream takes no more bytes.
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
