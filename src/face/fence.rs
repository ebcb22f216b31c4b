//! Fencing tokens, and their receiving side.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// The number of a holder of a [fenced](crate::Lock::fenced) lock. It is larger than the token of
/// every earlier holder of the lock.
///
/// A token of a lock is below 2^53, so it is the same number in SQL, JSON and Lua. Convert it to
/// `u64` to send it to a resource, or to `i64` for SQL. The resource can convert it back from
/// `u64`. With the feature `serde`, a token is serialized as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl From<u64> for FencingToken {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<FencingToken> for i64 {
    /// Keeps the value of every token of a lock. A number above [`i64::MAX`], which is no token of
    /// a lock, becomes [`i64::MAX`].
    fn from(token: FencingToken) -> Self {
        Self::try_from(token.0).unwrap_or(Self::MAX)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for FencingToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Self)
    }
}

/// A check that keeps late writers out of a resource. A fence admits a
/// [fencing token](FencingToken) only if it has admitted no larger token before.
///
/// Use a fence for a resource in this process, for example a file that only this process writes. A
/// resource that has its own store must keep the largest token in that store, and must compare and
/// write in one step. See [`docs::fencing`](crate::docs::fencing) for SQL and Redis.
///
/// # Guarantees
///
/// After a token was admitted, no smaller token is admitted. A holder must show its token with its
/// *first* access, even if that access only reads. Otherwise a late writer could write after the
/// holder has read and before the holder writes.
///
/// # Not guaranteed
///
/// - A check and the write after it are two steps. Keep a mutex of the process locked over both
///   steps: otherwise a late writer may be admitted, pause, and write after a later holder.
/// - A fence does not survive a restart of its process. A new fence has admitted no token.
///
/// ```
/// use quorlock::{Fence, FencingToken};
///
/// let (first, second) = (FencingToken::from(33), FencingToken::from(34));
/// let fence = Fence::new();
/// assert!(fence.admit(first)); // the first holder reads
/// assert!(fence.admit(second)); // the next holder took over
/// assert!(!fence.admit(first)); // the first holder is late
/// assert!(fence.admit(second)); // any number of times
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    highest: AtomicU64,
}

impl Fence {
    /// Creates a fence that has admitted no token.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            highest: AtomicU64::new(0),
        }
    }

    /// Returns whether the fence admits `token`: it has admitted no larger token, which is from a
    /// later holder. From then on, it admits no smaller token.
    #[must_use = "a holder whose token is not admitted must not act"]
    pub fn admit(&self, token: FencingToken) -> bool {
        self.highest.fetch_max(token.0, Ordering::AcqRel) <= token.0
    }
}
