//! The guard of a fenced lock.

use std::ops::Deref;

use super::{
    Guard, ReadGuard, WriteGuard,
    any::{
        AnyGuard, Fenceable, OneName,
        sealed::{FromGuard, Key},
    },
};
use crate::{core::error::QuorumError, face::fence::FencingToken};

/// A guard of a [fenced](crate::Lock::fenced) lock: a guard of the type `G`, with its fencing
/// token. A function that serves several kinds of locks takes the [`token`](Self::token), and a
/// [`Guard`] beside it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use quorlock::{Coordinator, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// let guard = locks.mutex("account/7").fenced().acquire().await?;
/// let sql = format!("UPDATE account SET balance = 1, fence = {0} WHERE fence <= {0}", guard.token());
/// # let _ = sql;
/// guard.ensure_valid()?; // a method of `Guard`
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct FencedGuard<G = Guard> {
    guard: G,
    first: FencingToken,
}

impl<G: OneName> FencedGuard<G> {
    /// Returns the fencing token. It stays the same when the lock is extended, and when its owner
    /// acquires it again.
    pub fn token(&self) -> FencingToken {
        self.first
    }
}

impl<G: Fenceable> FencedGuard<G> {
    /// Returns each name that the guard holds, with the fencing token for the resource that the
    /// name protects. The order is that of [`names`](Guard::names). **Each name has tokens of its
    /// own:** the token of one name says nothing about the resource of another.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let accounts = locks.multi_mutex(["account/7", "account/3"]).fenced();
    /// let guard = accounts.acquire().await?;
    /// for (name, token) in guard.tokens() {
    ///     println!("{name} accepts writers from {token} on");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn tokens(&self) -> impl Iterator<Item = (&str, FencingToken)> {
        self.as_ref().fencing_tokens()
    }
}

impl FencedGuard<WriteGuard> {
    /// Turns this guard into the guard of a reader, as [`WriteGuard::downgrade`] does. Show no
    /// resource the token from then on.
    pub fn downgrade(self) -> ReadGuard {
        self.guard.downgrade()
    }
}

impl<G: AnyGuard> FencedGuard<G> {
    /// Releases the lock on all masters, and waits until a majority has confirmed: see
    /// [`Guard::release`].
    ///
    /// # Errors
    ///
    /// [`QuorumError`]: fewer than a majority confirmed in time.
    pub async fn release(self) -> Result<(), QuorumError> {
        self.guard.into().release().await
    }
}

impl<G: Fenceable> AnyGuard for FencedGuard<G> {}

impl<G: Fenceable> FromGuard for FencedGuard<G> {
    fn from_guard(guard: Guard, key: Key) -> Result<Self, Guard> {
        let first = guard.fencing_tokens().next().map(|(_, first)| first);
        match first {
            Some(first) => G::from_guard(guard, key).map(|guard| Self { guard, first }),
            None => Err(guard),
        }
    }
}

impl<G> Deref for FencedGuard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G: AnyGuard> AsRef<Guard> for FencedGuard<G> {
    fn as_ref(&self) -> &Guard {
        self.guard.as_ref()
    }
}

impl<G: AnyGuard> From<FencedGuard<G>> for Guard {
    fn from(fenced: FencedGuard<G>) -> Self {
        fenced.guard.into()
    }
}
