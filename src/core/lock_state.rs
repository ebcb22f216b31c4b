//! The state of a lock that was won.

use std::fmt;

/// The state of a lock that was won, from [`Guard::state`](crate::Guard::state).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the three states are the algorithm; a match on them should be complete"
)]
pub enum LockState {
    /// The guard holds the lock.
    Held,
    /// The guard holds the lock, but no majority confirmed the last attempt to renew it. The
    /// attempt is repeated until the validity ends.
    InDoubt,
    /// The lock is lost for good: it never becomes valid again.
    Lost(LostReason),
}

/// The reason why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// A majority of masters say that the guard does not hold the lock. Its keys were deleted, have
    /// expired or belong to another holder.
    Disowned,
    /// The validity ended without an extension.
    Expired,
    /// The limit of the [renewal](crate::Renewal) was reached, and then the validity ended.
    RenewalLimit,
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::InDoubt => f.write_str("in doubt"),
            Self::Lost(reason) => write!(f, "lost: {reason}"),
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disowned => "a majority of masters no longer hold it for this guard",
            Self::Expired => "its validity ended without an extension",
            Self::RenewalLimit => "it reached the limit of its renewal",
        })
    }
}
