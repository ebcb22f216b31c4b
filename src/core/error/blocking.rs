//! Why a blocking call did not block.

/// A [blocking](crate::blocking) call was made in an async task of tokio, where it would stop the
/// other tasks of its thread. The same error is returned while the values of a thread are
/// destroyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a blocking call cannot wait here: \
     in an async task, use the async API, or make the call in spawn_blocking"
)]
#[non_exhaustive]
pub struct BlockingError;
