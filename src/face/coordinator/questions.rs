//! Methods of a coordinator that wait until its masters are ready, or take a lock from its holders.

use std::time::Duration;

use super::Coordinator;
use crate::{
    clock,
    core::{
        error::{AskError, Asked, QuorumError},
        view::inspection::Inspection,
        vote::votes::Votes,
    },
    driver::questions::{inspect, ready::ready},
};

impl Coordinator {
    /// Waits until a majority of masters can vote, for at most `limit`. Returns the answer of each
    /// master. A [grant](crate::votes::Vote::Grant) means that the master can vote.
    ///
    /// A master can vote if it is connected, answers in time, accepts writes and scripts, and is
    /// not [in quarantine](crate::Quarantine).
    ///
    /// Call this method when a program starts, or in a health probe. Without this call, the first
    /// attempts of a program may fail because too few connections are ready. The call asks each
    /// master to write the key of the reserved name `quorlock:check`, which expires after a
    /// millisecond. So a master that refuses writes or scripts is not ready. Examples are a
    /// replica, and a server whose memory is full. The call asks again until enough masters can
    /// vote, or until so many deny a right that the others are no majority.
    ///
    /// If the user lacks a right to that key or to a command such as `SET`, the master counts as
    /// ready, and the log gets a warning: the locks of the program may not need the right. Once a
    /// majority has denied a lock, this method also tries the rights of that lock on each master. A
    /// denial then counts, until such a lock is granted.
    ///
    /// # Duration
    ///
    /// This method returns at most one response timeout after `limit`. The first connections may
    /// take the connect timeout in addition. If `limit` is zero, this method asks each master once.
    ///
    /// # Errors
    ///
    /// - [`Denied`](AskError::Denied): too many masters deny a right or lack a
    ///   command.
    /// - [`NoQuorum`](AskError::NoQuorum): too few masters could vote before the limit.
    ///   The error says which masters could not, and why.
    /// - [`Closed`](AskError::Closed): the coordinator is closed, or its tasks have ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{AskError, Coordinator, Fault, MemoryMaster};
    /// let masters = [(); 3].map(|()| MemoryMaster::new());
    /// masters[0].inject(Fault::Down);
    /// let locks = Coordinator::new(&masters)?;
    /// let votes = locks.ready_within(Duration::from_secs(5)).await?;
    /// assert!(votes.granted_count() >= 2);
    ///
    /// // Gives the third master a moment, too.
    /// match locks.all_ready_within(Duration::from_millis(100)).await {
    ///     Ok(_) => println!("all masters can vote"),
    ///     Err(error @ AskError::NotAll { .. }) => eprintln!("start anyway: {error}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn ready_within(&self, limit: Duration) -> Result<Votes, AskError> {
        self.when_ready(false, limit).await
    }

    /// Waits until all masters can vote, for at most `limit`. Apart from that, works like
    /// [`ready_within`](Self::ready_within).
    ///
    /// # Errors
    ///
    /// [`NotAll`](AskError::NotAll): a majority of masters can vote, but not all of them before the
    /// limit. For all other errors, see [`ready_within`](Self::ready_within).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    pub async fn all_ready_within(&self, limit: Duration) -> Result<Votes, AskError> {
        self.when_ready(true, limit).await
    }

    /// On all masters, takes a lock away from holders that do not release it. Succeeds if a majority
    /// of masters do not have these holders any more. Another holder may have the lock there.
    /// Returns the vote of each master.
    ///
    /// **This breaks mutual exclusion if the holder is alive.** At its next renewal, the holder
    /// finds out that its lock is lost. Until then, it works beside the next holder. Fencing tokens
    /// protect a resource even then. Use this method in tools that people run, after the holder is
    /// known to be dead. Other programs should wait for the end of the TTL.
    ///
    /// A master removes only the holders that `inspection` has seen, so a newer holder keeps the
    /// lock. [`Inspection::only`] selects one of these holders. An owner that has acquired the lock
    /// again counts as the holder that was seen. Waiters are notified. Only waiters in the queues
    /// of another kind of lock than the inspected one find out later, by polling. The counter of
    /// fencing tokens stays.
    ///
    /// # Votes
    ///
    /// - [`Grant`](crate::votes::Vote::Grant): the master removed a holder.
    /// - [`Gone`](crate::votes::Refusal::Gone): the lock was not held on the master.
    /// - [`Held`](crate::votes::Refusal::Held): the lock has a newer holder on the master, or one that was
    ///   not selected. That holder keeps the lock.
    /// - [`OtherKind`](crate::votes::Refusal::OtherKind): the key on the master is not a lock, and is left
    ///   alone.
    /// - [`Fail`](crate::votes::Vote::Fail): the master did not answer. If it has the lock's key, the key
    ///   may stay until the end of the TTL.
    ///
    /// # Errors
    ///
    /// - [`NoQuorum`](AskError::NoQuorum): fewer than a majority answered in time. The
    ///   others may keep the holders until the end of the TTL. Try again.
    /// - [`Config`](AskError::Config): another coordinator made the inspection. Nothing was sent.
    /// - [`Closed`](AskError::Closed): the runtime has shut down, or the process was forked.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some masters may have removed the holders.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.mutex("orders/42");
    /// let guard = lock.acquire().await?;
    /// let inspection = lock.inspect().await?; // show it to a person, and ask
    /// let votes = locks.break_held(&inspection).await?;
    /// assert_eq!(votes.granted_count(), 3);
    /// assert!(!lock.is_held().await?);
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub async fn break_held(&self, inspection: &Inspection) -> Result<Votes, AskError> {
        inspect::break_held(&self.context, inspection).await
    }

    async fn when_ready(&self, need_all: bool, limit: Duration) -> Result<Votes, AskError> {
        let is_enough = match need_all {
            true => Votes::has_all,
            false => Votes::has_quorum,
        };
        let start = clock::now();
        let votes = ready(&self.context, is_enough, limit).await;
        let votes = votes.ok_or(AskError::Closed)?;
        if is_enough(&votes) {
            return Ok(votes);
        }
        if votes.lacks_rights() {
            return Err(AskError::Denied { votes });
        }
        if need_all && votes.has_quorum() {
            return Err(AskError::NotAll { votes });
        }
        let asked = Asked::Ready(clock::now().since(start));
        Err(AskError::NoQuorum(QuorumError {
            name: None,
            votes,
            asked,
        }))
    }
}
