//! The guard of a fenced lock.

use std::ops::Deref;

use super::{Guard, any::sealed::FromGuard};
use crate::{core::error::TooFewMasters, face::fence::FencingToken};

/// A [`Guard`] of a [fenced](crate::Lock::fenced) lock, with its fencing token.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use quorlock::{Coordinator, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// let guard = locks.mutex("account/7").fenced().acquire().await?;
/// let sql = format!("UPDATE account SET balance = 1, fence = {0} WHERE fence <= {0}", guard.token());
/// # let _ = sql;
/// guard.ensure_held()?; // a method of `Guard`
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct FencedGuard {
    guard: Guard,
    token: FencingToken,
}

impl FencedGuard {
    /// Returns the fencing token. It stays the same when the lock is extended, and when its owner
    /// acquires it again.
    ///
    /// If the guard holds [several names](crate::Coordinator::mutex_all), returns the token of the
    /// [first](Guard::name). Each name has a token of its own: see [`tokens`](Self::tokens).
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns each name that the guard holds, with the fencing token for the resource that the
    /// name protects. The order is that of [`names`](Guard::names).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let accounts = locks.mutex_all(["account/7", "account/3"]).fenced();
    /// let guard = accounts.acquire().await?;
    /// for (name, token) in guard.tokens() {
    ///     println!("{name} accepts writers from {token} on");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn tokens(&self) -> impl Iterator<Item = (&str, FencingToken)> {
        self.guard.fencing_tokens()
    }

    /// Releases the lock on all masters, and waits until a majority has confirmed: see
    /// [`Guard::release`].
    ///
    /// # Errors
    ///
    /// [`TooFewMasters`]: fewer than a majority confirmed in time.
    pub async fn release(self) -> Result<(), TooFewMasters> {
        self.guard.release().await
    }
}

impl FromGuard for FencedGuard {
    fn from_guard(guard: Guard) -> Option<Self> {
        let (_, token) = guard.fencing_tokens().next()?;
        Some(Self { guard, token })
    }
}

impl Deref for FencedGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl AsRef<Guard> for FencedGuard {
    fn as_ref(&self) -> &Guard {
        self
    }
}

impl From<FencedGuard> for Guard {
    fn from(fenced: FencedGuard) -> Self {
        fenced.guard
    }
}
