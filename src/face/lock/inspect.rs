//! Questions about who holds a lock.

use futures::future::{join, join_all};

use super::Lock;
use crate::{
    core::{error::AskError, view::inspection::Inspection},
    driver::questions::inspect::inspect,
};

/// Questions to the masters.
impl<G> Lock<G> {
    /// Asks all masters who holds the lock, how many times and for how much longer, and who waits
    /// for it.
    ///
    /// Changes nothing on the masters. The answer may be out of date when it arrives. The holder is
    /// reported even if it holds the name as another kind of lock. The queue is reported only if
    /// this lock is of a kind with queues. Waits for the answers of all masters, for at most the
    /// response timeout. For a master whose first connection is under way, the limit is the connect
    /// timeout.
    ///
    /// If the lock has several names, returns the answer for the first name that is held, or for
    /// the first name if all are free.
    ///
    /// # Errors
    ///
    /// - [`NoQuorum`](AskError::NoQuorum): fewer than a majority answered in time.
    /// - [`Config`](AskError::Config): the name cannot be used. Nothing was sent.
    /// - [`Closed`](AskError::Closed): the runtime has shut down, or the process was forked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, LockKind, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let owner = locks.new_owner();
    /// let lock = locks.reentrant("orders/42", &owner);
    /// let guard = lock.acquire().await?;
    /// let holder = lock.inspect().await?.holders.remove(0);
    /// assert_eq!(holder.kind, Some(LockKind::Reentrant));
    /// assert_eq!(holder.owner.as_deref(), Some(owner.id()));
    /// assert_eq!(holder.depth, 1);
    ///
    /// guard.release().await?;
    /// assert!(!lock.is_held().await?);
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self) -> Result<Inspection, AskError> {
        let draft = &self.draft;
        let first = draft.lock_id()?;
        let others = draft.others.iter();
        let others = others.map(|(context, lock_id)| inspect(context, lock_id));
        let others = join_all(others);
        let (first, others) = join(inspect(&draft.context, first), others).await;
        let first = first?;
        for other in others.into_iter().filter(|_| !first.is_held()) {
            let other = other?;
            if other.is_held() {
                return Ok(other);
            }
        }
        Ok(first)
    }

    /// Returns the first key of the lock. `None` if its name cannot be used.
    #[doc(hidden)]
    pub fn key(&self) -> Option<&str> {
        self.draft.lock_id().ok().map(|lock_id| &**lock_id.key())
    }

    /// Returns whether the lock is held. A lock counts as held if another client could not acquire
    /// it now, because it is free on too few masters. A shared lock that has a holder counts as
    /// held, even if it has room for more holders: see [`available_permits`](Lock::available_permits).
    ///
    /// The lock also counts as held while several owners hold it on different masters. This happens
    /// for a moment while clients contend. A `RedissonRedLock` is always in this state, because it
    /// has a different owner on every master. See [`inspect`](Self::inspect).
    ///
    /// # Errors
    ///
    /// See [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    pub async fn is_held(&self) -> Result<bool, AskError> {
        Ok(self.inspect().await?.is_held())
    }
}
