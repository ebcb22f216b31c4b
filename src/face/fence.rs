//! The receiving side of fencing tokens.

use std::sync::atomic::{AtomicU64, Ordering};

/// A check that keeps late writers out of a resource. A fence admits a
/// [fencing token](crate::Guard::fencing_token) only if it has admitted no larger token before.
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
/// A fence does not survive a restart of its process. A new fence has admitted no token.
///
/// ```
/// use quorlock::Fence;
///
/// let fence = Fence::new();
/// assert!(fence.admit(33).is_ok()); // the first holder reads
/// assert!(fence.admit(34).is_ok()); // the next holder took over
/// let late = fence.admit(33).unwrap_err();
/// assert_eq!((late.token, late.highest), (33, 34));
/// assert!(fence.admit(34).is_ok()); // any number of times
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

    /// Admits `token`. From then on, no smaller token is admitted.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a larger token was admitted before. That token is from a later holder.
    pub fn admit(&self, token: u64) -> Result<(), StaleToken> {
        let highest = self.highest.fetch_max(token, Ordering::AcqRel);
        if highest <= token {
            Ok(())
        } else {
            Err(StaleToken { token, highest })
        }
    }
}

/// A fencing token that came after a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fencing token {token} is stale: {highest} was admitted before, by a later holder")]
#[non_exhaustive]
pub struct StaleToken {
    /// The token that was refused.
    pub token: u64,
    /// The largest token that was admitted.
    pub highest: u64,
}
