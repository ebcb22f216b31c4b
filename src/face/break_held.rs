//! Breaking a lock that its holder does not release.

use super::coordinator::Coordinator;
use crate::{
    core::{view::inspection::Inspection, vote::votes::Votes},
    driver::query::inspect,
};

impl Coordinator {
    /// Takes a lock away from holders that do not release it, on all masters. Returns the vote of
    /// each master.
    ///
    /// **This breaks mutual exclusion if the holder is alive.** The holder finds out that its lock
    /// is lost at its next renewal, and until then it works beside the next holder. Fencing tokens
    /// protect a resource even then. Use this method in tools for people, after the holder is known
    /// to be dead. Programs wait for the end of the TTL instead.
    ///
    /// A master removes only the holders that `inspection` has seen, so a newer holder keeps the
    /// lock. [`Inspection::only`] names one of them. An owner that has acquired the lock again
    /// counts as the same holder. Waiters are notified. Those of a lock with queues are notified at
    /// once only if `inspection` is of the same kind. The counter of fencing tokens stays.
    ///
    /// # Votes
    ///
    /// - [`Grant`](crate::Vote::Grant): a holder was removed there.
    /// - [`Gone`](crate::Refusal::Gone): it was not held there.
    /// - [`Held`](crate::Refusal::Held): a newer holder has it there, or one that was not named,
    ///   and keeps it.
    /// - [`OtherKind`](crate::Refusal::OtherKind): the key there is not a lock, and is left alone.
    /// - [`Fail`](crate::Vote::Fail): the master did not answer. If it holds the lock, it keeps it
    ///   until the end of the TTL.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some masters may have removed the holders.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.mutex("orders/42");
    /// let guard = lock.acquire().await?;
    /// let inspection = lock.inspect().await?; // show it to a person, and ask
    /// let votes = locks.break_held(&inspection).await;
    /// assert_eq!(votes.granted_count(), 3);
    /// assert!(!lock.is_held().await?);
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub async fn break_held(&self, inspection: &Inspection) -> Votes {
        inspect::break_held(&self.context, inspection).await
    }
}
