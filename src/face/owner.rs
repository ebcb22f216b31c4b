//! The holders of locks that can be acquired again.

use std::{fmt, sync::Arc};

use crate::driver::claim::owned_lock::LockOwner;

/// An identity that holds reentrant, fair and read-write locks. All tasks that have this handle or
/// a clone of it share the identity, on any thread.
///
/// [`Coordinator::owner`](crate::Coordinator::owner) makes an owner at little cost. Make one owner
/// for each task, not one for the whole service, because tasks that share an owner do not exclude
/// each other. A task may use its owner again and again.
///
/// An owner that holds a lock can acquire it again. No other owner can. This process counts how
/// often, so an owner works only with the coordinator that made it and with clones of that
/// coordinator, or with all coordinators of the [`Groups`](crate::Groups) that made it. Dropping
/// the owner releases no lock. Dropping the guards releases the locks.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use quorlock::{Coordinator, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// let (mine, yours) = (locks.owner(), locks.owner());
/// let outer = locks.reentrant("orders/42", &mine).acquire().await?;
/// let inner = locks.reentrant("orders/42", &mine).acquire().await?;
/// assert!(locks.reentrant("orders/42", &yours).try_acquire().await.is_err());
/// drop(outer); // in any order: dropping the last guard releases the lock
/// assert!(inner.is_valid());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Owner(pub(crate) Arc<LockOwner>);

impl Owner {
    /// Returns the ID of this owner on the masters, in Redisson's format: the coordinator's UUID,
    /// `:` and a number. If the coordinator has a [client name](crate::Builder::client_name), `@`
    /// and this name follow.
    pub fn id(&self) -> &str {
        self.0.id()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
