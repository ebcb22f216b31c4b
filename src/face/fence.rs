//! Fencing tokens.

use std::fmt;

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
