//! The guard of a reader.

use std::ops::Deref;

use super::{Guard, any::sealed::FromGuard};
use crate::core::error::TooFewMasters;

/// A [`Guard`] of a [reader](crate::ReadWriteLock::read). Guards of other readers can be valid at
/// the same time, so it has no fencing token.
#[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct ReadGuard(Guard);

impl ReadGuard {
    /// Releases the lock on all masters, and waits until a majority has confirmed: see
    /// [`Guard::release`].
    ///
    /// # Errors
    ///
    /// [`TooFewMasters`]: fewer than a majority confirmed in time.
    pub async fn release(self) -> Result<(), TooFewMasters> {
        self.0.release().await
    }
}

impl FromGuard for ReadGuard {
    fn from_guard(guard: Guard) -> Option<Self> {
        Some(Self(guard))
    }
}

impl Deref for ReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl AsRef<Guard> for ReadGuard {
    fn as_ref(&self) -> &Guard {
        self
    }
}

impl From<ReadGuard> for Guard {
    fn from(read: ReadGuard) -> Self {
        read.0
    }
}
