//! How a held lock stands.

use std::fmt;

/// How a lock stands that was won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the three states are the algorithm; a match on them should be complete"
)]
pub enum LockState {
    /// It is ours.
    Held,
    /// It is ours, and the last attempt to extend it did not find a majority. It is tried again until
    /// the validity ends.
    InDoubt,
    /// It is not ours any more, for good: no guard comes back from this.
    Lost(LostReason),
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// A majority of masters say that it is not ours. Its keys were deleted, expired or belong to
    /// somebody else.
    Disowned,
    /// Its validity ended without an extension.
    Expired,
    /// It was held for as long as it may be, and then its validity ended.
    RenewalLimit,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disowned => "the masters say that it is not ours any more",
            Self::Expired => "its validity ended without an extension",
            Self::RenewalLimit => "it was held for as long as it may be",
        })
    }
}
