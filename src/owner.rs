//! Who holds reentrant and fair locks.

use std::{fmt, sync::Arc};

use crate::driver::{claim::Claim, owned_lock::LockOwner};

/// Who holds a reentrant or a fair lock: whoever has this handle or a clone of it, on any thread, in any task.
///
/// Made by [`Coordinator::owner`](crate::Coordinator::owner), cheaply: one for each job, not one for a service.
/// A lock that an owner holds can be acquired by it again, and by nobody else. How often it did is counted here, in this
/// process: an owner is for one coordinator and its clones.
///
/// Tasks that share an owner do not exclude each other. Dropping the handle gives nothing up: guards do.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use quorlock::{Coordinator, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// let (mine, yours) = (locks.owner(), locks.owner());
/// let outer = locks.reentrant("orders/42", &mine).acquire().await?;
/// let inner = locks.reentrant("orders/42", &mine).acquire().await?;
/// assert!(locks.reentrant("orders/42", &yours).try_acquire().await.is_err());
/// drop(outer); // in any order: the last one gives the lock up
/// assert!(inner.is_valid());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Owner(pub(crate) Arc<LockOwner<Claim>>);

impl Owner {
    /// Returns the name of this owner on the masters: a UUID for the coordinator, `:` and a number, as
    /// Redisson writes it.
    pub fn id(&self) -> &str {
        self.0.id()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
