//! The receiving side of fencing tokens.

use std::sync::atomic::{AtomicU64, Ordering};

/// Keeps late writers out: admits a [fencing token](crate::Guard::fencing_token) that is at least as large as every one
/// before it.
///
/// For a resource in this process, such as a file that it alone writes. A resource with a store of its own keeps
/// the largest token in there, and compares and writes in one step: see [`docs::fencing`](crate::docs::fencing) for
/// SQL and Redis.
///
/// # Guarantees
///
/// After a token was admitted, no smaller one is. So the holder shows its token with its *first* access, even if that only
/// reads: else a late writer may come between what the next holder has read and what it writes.
///
/// # Not guaranteed
///
/// It starts from nothing with every process: a token that was admitted before a restart is forgotten.
///
/// ```
/// use quorlock::Fence;
///
/// let fence = Fence::new();
/// assert!(fence.admit(33).is_ok()); // the first holder reads
/// assert!(fence.admit(34).is_ok()); // the next one took over
/// let late = fence.admit(33).unwrap_err();
/// assert_eq!((late.token, late.highest), (33, 34));
/// assert!(fence.admit(34).is_ok()); // as often as it likes
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    highest: AtomicU64,
}

impl Fence {
    /// A fence that has seen no token.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            highest: AtomicU64::new(0),
        }
    }

    /// Lets the holder of `token` pass, and nobody with a smaller one from now on.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] when a larger one has passed: the lock is somebody else's by now.
    pub fn admit(&self, token: u64) -> Result<(), StaleToken> {
        let highest = self.highest.fetch_max(token, Ordering::AcqRel);
        if highest <= token {
            Ok(())
        } else {
            Err(StaleToken { token, highest })
        }
    }
}

/// A fencing token that came behind a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fencing token {token} is stale: {highest} has passed")]
#[non_exhaustive]
pub struct StaleToken {
    /// The token.
    pub token: u64,
    /// The largest that has passed.
    pub highest: u64,
}
