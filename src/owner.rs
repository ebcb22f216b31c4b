//! The holders of reentrant and fair locks.

use std::{fmt, sync::Arc};

use crate::driver::{claim::Claim, owned_lock::LockOwner};

/// An identity that holds reentrant and fair locks, shared by everything that has this handle or a
/// clone of it, on any thread and in any task.
///
/// [`Coordinator::owner`](crate::Coordinator::owner) makes one, which is cheap. Make one for each
/// job, not one for the whole service: tasks that share an owner do not exclude each other.
///
/// A lock that an owner holds can be acquired again by that owner, and by no other. The number of
/// times is counted in this process, so an owner works only with the coordinator that made it and
/// its clones. Dropping the handle releases nothing; dropping the guards does.
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
pub struct Owner(pub(crate) Arc<LockOwner<Claim>>);

impl Owner {
    /// Returns the ID of this owner on the masters, in Redisson's format: the coordinator's UUID,
    /// `:` and a number.
    pub fn id(&self) -> &str {
        self.0.id()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
