//! A set of masters that hold locks together.

use std::{fmt, sync::Arc, time::Duration};

use futures::Stream;

use crate::{
    core::{protocol::connection_name::ListsId, view::MasterHealth, vote::quorum::Tally},
    driver::{context::Context, questions::health_events::health_events},
};

mod locks;
mod questions;

/// A set of independent masters that hold locks together.
///
/// A coordinator is cheap to clone, and all clones share everything. Each master has one
/// connection. A background task connects to the masters, notices when a master hangs, reconnects,
/// and renews the locks that are held. A request to a master that is known to be down fails at
/// once. The task ends after the last clone of the coordinator, the last lock and the last guard
/// are dropped. Before it ends, it delivers the releases that are owed.
///
/// # Runtimes
///
/// The task and the timers live on the tokio runtime in which the coordinator was built. Await the
/// futures of locks and guards there or on another tokio runtime: other executors are not
/// supported. A current-thread runtime runs only during a `block_on`: between two such calls, no
/// lock is renewed, and futures on another runtime wait without limit. A program without async uses
/// a [runtime with a worker thread](crate::docs::recipes#without-async).
///
/// Code that blocks a thread of the runtime keeps locks from being renewed, even if other threads
/// are idle: the task that renews may wait for the thread on which it was woken. Run such code with
/// `spawn_blocking` or `block_in_place`.
///
/// When the runtime of the task shuts down, locks that are held are no longer renewed. Then
/// [`lost`](crate::Guard::lost) and [`run`](crate::Guard::run) end at once when they are called. Until
/// one of them was called, or the validity ends, all other checks of a guard stay true. No release is
/// sent any more, and acquisitions fail with [`Closed`](crate::Reason::Closed). The same happens if a
/// [stream](crate::MasterSpec::with_connector) of the program panics, and in a process that was forked
/// after the coordinator was made. The parent of that process keeps its locks. A panic of a
/// `tracing` subscriber, a metrics recorder or a waker harms no call.
///
/// # Guarantees
///
/// At any instant, at most one holder of a name [is valid](crate::Guard::is_valid). A holder is the
/// guard of a mutex, or an [`Owner`](crate::Owner) with all its guards. The readers of a read-write
/// lock are valid together, and a semaphore has a holder for each slot. This guarantee has two
/// conditions: the rates of the clocks differ by less than the
/// [drift](crate::Builder::drift_ppm), and no master forgets a lock that has not expired. Any
/// majority of the masters is enough to lock. See [`docs::guarantees`](crate::docs::guarantees).
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use quorlock::{Coordinator, MemoryMaster};
///
/// let locks = Coordinator::builder()
///     .masters((0..5).map(|_| MemoryMaster::new())) // or ["redis://10.0.0.1", ..]
///     .ttl(Duration::from_secs(30))
///     .build()?;
/// let guard = locks.mutex("orders/42").acquire_within(Duration::from_secs(1)).await?;
/// assert!(guard.is_valid());
/// guard.release().await?;
/// locks.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Coordinator {
    pub(crate) context: Arc<Context>,
    pub(crate) lists_id: ListsId,
    /// Returns whether a name belongs to the group of this coordinator, if it has one.
    pub(crate) has_name: Option<HasName>,
}

pub(crate) type HasName = Arc<dyn Fn(&str) -> bool + Send + Sync>;

impl Coordinator {
    /// Returns the state of each master, in the order in which the masters were configured. Sends
    /// nothing. [`last_heard`](MasterHealth::last_heard) says how old a state may be.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, MemoryMaster, health::MasterState};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// locks.all_ready_within(Duration::from_secs(5)).await?;
    /// for master in locks.health() {
    ///     println!("{master}"); // 10.0.0.1:6379 connected for 2.0s, round trip 310.0µs
    ///     assert_eq!(master.state, MasterState::Connected);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn health(&self) -> Vec<MasterHealth> {
        self.context.health()
    }

    /// Returns the changes of the masters' states. `next` of `StreamExt` in the crate `futures`
    /// waits for the next one.
    ///
    /// A coordinator that uses no lock sends nothing, so it does not notice that a master hangs. To
    /// notice it, call [`ready_within`](Self::ready_within) with a limit of zero from time to time.
    ///
    /// The stream begins with the present state of every master. Then it yields the new state of a
    /// master each time that the master is connected, goes down, is quarantined, votes again, stops
    /// taking locks, takes locks again, or [needs repair](MasterHealth::needs_repair) for another
    /// reason. If states change faster than the program reads them, the stream leaves out states in
    /// between.
    ///
    /// It ends after the last clone of the coordinator, the last lock and the last guard are
    /// dropped: it does not keep the coordinator alive. It also ends in a process that was forked
    /// after the coordinator was made.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future of `next` loses no change.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use futures::StreamExt;
    /// # use quorlock::{Coordinator, MemoryMaster, health::MasterState};
    /// # let locks = Coordinator::new([MemoryMaster::new()])?;
    ///
    /// let mut events = locks.health_events();
    /// while let Some(master) = events.next().await {
    ///     println!("{master}");
    /// #   if master.state == MasterState::Connected { break }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn health_events(&self) -> impl Stream<Item = MasterHealth> + Send + Sync + Unpin + use<> {
        health_events(
            self.context.machine.health.subscribe(),
            self.context.timers.home.clone(),
        )
    }

    /// Returns the TTL of locks that do not [set their own](crate::Lock::ttl).
    #[doc(hidden)]
    pub fn ttl(&self) -> Duration {
        self.context.config.ttl.duration()
    }

    /// Returns the length of a quarantine: [`max_ttl`](crate::Builder::max_ttl) plus its drift
    /// allowance, and at least 3 s. After a program with the same `max_ttl` has ended, its locks
    /// end within this time. Only locks with a [minimum hold](crate::Lock::min_hold) may stay
    /// longer.
    #[doc(hidden)]
    pub fn quarantine_length(&self) -> Duration {
        self.context.config.quarantine_length()
    }

    /// Returns the number of masters. While the masters [are changed](crate::Builder::old_masters),
    /// a master in both lists counts once.
    #[doc(hidden)]
    pub fn master_count(&self) -> usize {
        self.context.machine.roster.masters.len()
    }

    /// Returns the number of masters that make a majority. While the masters [are
    /// changed](crate::Builder::old_masters), each list has a majority of its own. This method then
    /// returns the larger of the two numbers.
    #[doc(hidden)]
    pub fn quorum(&self) -> usize {
        self.context.machine.quorum().size()
    }

    /// Returns the [name](crate::Builder::coordinator_name) of this coordinator.
    pub fn name(&self) -> Option<&str> {
        self.context.config.coordinator.as_deref()
    }

    /// For each list of masters, counts those whose present state makes `count` return `true`.
    /// There are two lists only while the masters [are changed](crate::Builder::old_masters). Locks
    /// can be acquired if a majority of each list can vote.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, MemoryMaster, health::MasterHealth, tools::Tally};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// locks.all_ready_within(Duration::from_secs(5)).await?;
    /// let able = locks.tally(MasterHealth::can_vote);
    /// assert!(able.iter().all(Tally::has_quorum));
    /// assert_eq!(able[0].to_string(), "3 of 3 masters (need 2)");
    /// # Ok(()) }
    /// ```
    #[doc(hidden)]
    pub fn tally(&self, count: impl Fn(&MasterHealth) -> bool) -> Vec<Tally> {
        let masters = &self.context.machine;
        let health = self.context.health();
        let counted = (0..health.len()).filter(|master| count(&health[*master]));
        masters.quorum().tallies(counted.collect()).collect()
    }

    /// Returns the ID of this coordinator's lists of masters.
    #[doc(hidden)]
    pub fn lists_id(&self) -> ListsId {
        self.lists_id
    }

    /// Returns the programs of the last warning about other lists of masters.
    #[doc(hidden)]
    pub fn programs_apart(&self) -> Option<String> {
        self.context.machine.apart()
    }

    #[cfg(test)]
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Refuses new acquisitions, and waits until all posted releases are delivered.
    ///
    /// A release is delivered when it has reached every master on which the key may still be. Keys
    /// that have expired need no release. So `close` takes at most the longer of two times: the
    /// longest TTL in use, and twice the [silent-waiter timeout](crate::Builder::silent_waiter_timeout) of a lock
    /// with queues. If masters are down, `close` may take all of this time:
    /// [`close_within`](Self::close_within) has a limit.
    ///
    /// Call `close` at the end of a program, so that the releases of dropped guards arrive. Before
    /// that, join the tasks that hold locks or wait for them. Guards that are still alive stay
    /// valid, are renewed, and can be extended and released. `close` does not wait for these guards
    /// or for attempts that are under way. Waiters make no further attempt, and return
    /// [`Closed`](crate::Reason::Closed). Closing a coordinator closes all its clones.
    /// Closing it again does no harm.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the coordinator closed. Releases that were posted are still
    /// delivered, as long as the runtime lives.
    pub async fn close(&self) {
        self.context.close();
        self.context.delivered().await;
    }

    /// Closes the coordinator as [`close`](Self::close) does, but waits for at most `limit`.
    /// Returns whether all posted releases are delivered. If the coordinator's runtime has ended,
    /// returns `false`, because no task is left to deliver releases. The timer for `limit` runs on
    /// that runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the coordinator closed, as with [`close`](Self::close).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, Fault, MemoryMaster};
    /// # let masters = [(); 3].map(|()| MemoryMaster::new());
    /// # let locks = Coordinator::new(&masters)?;
    /// let guard = locks.mutex("orders/42").acquire().await?;
    /// masters[0].inject(Fault::Down);
    /// drop(guard);
    /// let is_delivered = locks.close_within(Duration::from_millis(20)).await;
    /// assert!(!is_delivered, "a master is down: its key ends with the TTL");
    /// masters[0].inject(Fault::None);
    /// assert!(locks.close_within(Duration::from_secs(2)).await);
    /// # Ok(()) }
    /// ```
    pub async fn close_within(&self, limit: Duration) -> bool {
        self.context.close();
        self.context.delivered_within(limit).await
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("masters", &self.context.machine.roster.masters)
            .finish_non_exhaustive()
    }
}
