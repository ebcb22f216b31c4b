//! A set of masters that hold locks together.

use std::{fmt, sync::Arc};

use crate::{
    check::{Checker, Preflight},
    core::{name::Kind, quorum::majority},
    driver::engine::Engine,
    lock::Lock,
    owner::Owner,
};

/// A set of independent masters that hold locks together.
///
/// A coordinator is cheap to clone, and all clones share everything.
///
/// Each master has one connection and one background task. The task connects to the master, notices
/// when the master hangs, and reconnects. A request to a master that is known to be down fails at
/// once and does not delay the others. One more task renews the locks that are held. The tasks end
/// when the last clone of the coordinator, the last lock and the last guard are gone and everything
/// that was posted is delivered.
///
/// # Guarantees
///
/// At any instant, at most one holder of a name [is valid](crate::Guard::is_valid), where a holder
/// is the guard of a mutex, or an [`Owner`] with all its guards. This holds as long as the rates of
/// the clocks differ by less than the [drift](crate::Builder::drift_ppm), and no master forgets a
/// lock that has not expired. Any majority of the masters can serve. See
/// [`docs::guarantees`](crate::docs::guarantees).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
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
    engine: Arc<Engine>,
    checker: Arc<Checker>,
}

impl Coordinator {
    pub(crate) fn from_parts(engine: Engine, checker: Checker) -> Self {
        Self {
            engine: Arc::new(engine),
            checker: Arc::new(checker),
        }
    }

    /// Returns the mutex called `name`. Sends nothing.
    ///
    /// On every master a mutex is a string under the lock's key, written by `SET NX PX`. Most
    /// Redlock libraries use the same format, so their locks and these exclude each other.
    ///
    /// A mutex is not reentrant, not even for its holder: a task that acquires a mutex it holds
    /// waits for itself.
    ///
    /// A name that cannot be used is reported when the lock is acquired.
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.engine.clone(), Kind::Mutex, name.as_ref(), None)
    }

    /// Returns a new owner for [`reentrant`](Self::reentrant) and [`fair`](Self::fair) locks. Sends
    /// nothing.
    ///
    /// Make one owner for each job: tasks that share an owner do not exclude each other. The locks
    /// of another coordinator refuse this owner with
    /// [`ForeignOwner`](crate::ConfigError::ForeignOwner); those of clones accept it.
    pub fn owner(&self) -> Owner {
        Owner(Arc::new(self.engine.owner()))
    }

    /// Returns the reentrant lock called `name`, to be held by `owner`. Sends nothing.
    ///
    /// The owner may acquire the lock as often as it likes. Each guard is one level, and dropping
    /// the last guard releases the lock. Acquiring a held lock again takes a round of its own,
    /// which extends the lock to the [TTL](Lock::ttl) that is asked for and never shortens it. The
    /// guards of one owner share their validity, and they are lost together.
    ///
    /// On every master a reentrant lock is a hash under the lock's key, in the format of Redisson's
    /// `RLock`. So this lock and Redisson's `RedissonRedLock` over the same masters exclude each
    /// other and wake each other's waiters. While this lock is held, Redisson's read-write lock is
    /// refused. Do not use Redisson's fair lock under the name of a reentrant or fair lock of this
    /// crate. Redisson's `getMultiLock(name, values)` takes a name even if it is held: see
    /// [`docs::guarantees`](crate::docs::guarantees#reentrant-locks).
    ///
    /// A name or an owner that cannot be used is reported when the lock is acquired. So is a name
    /// that is held as another kind of lock, by [`OtherKind`](crate::AcquireError::OtherKind). A
    /// name that is free can be acquired as any kind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{AcquireError, Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let owner = locks.owner();
    /// let lock = locks.reentrant("orders/42", &owner);
    /// let outer = lock.acquire().await?;
    /// let inner = lock.try_acquire().await?; // does not wait: the owner has the lock
    /// assert_eq!(inner.depth(), 2);
    ///
    /// let refused = locks.reentrant("orders/42", &locks.owner()).try_acquire().await;
    /// assert!(matches!(refused, Err(AcquireError::Contended { .. })));
    /// # drop((outer, inner));
    /// # Ok(()) }
    /// ```
    pub fn reentrant(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        Lock::new(
            self.engine.clone(),
            Kind::Reentrant,
            name.as_ref(),
            Some(owner),
        )
    }

    /// Returns the fair lock called `name`, to be held by `owner`. Sends nothing.
    ///
    /// A fair lock is a [reentrant](Self::reentrant) lock whose waiters are served in the order in
    /// which they came, across all processes and masters.
    ///
    /// Each waiter has a position in a queue on every master. This costs every master about one
    /// command a second for each waiter. A waiter whose process died is passed over after the
    /// [waiter timeout](crate::Builder::waiter_timeout). [`try_acquire`](Lock::try_acquire) does
    /// not queue, and does not pass the waiters in the queue.
    ///
    /// A waiter that no majority of masters has answered in time, for half the waiter timeout,
    /// cannot win. It leaves the queues so that others can win, and takes its old position when a
    /// majority answers again.
    ///
    /// A name or an owner that cannot be used is reported when the lock is acquired. So is a name
    /// that is held as another kind of lock, by [`OtherKind`](crate::AcquireError::OtherKind). A
    /// name that is free can be acquired as any kind.
    ///
    /// # Guarantees
    ///
    /// If a majority of masters has heard of two waiters, the one that came first is served first.
    /// Everything else is as for a [reentrant](Self::reentrant) lock.
    ///
    /// # Not guaranteed
    ///
    /// The order of arrival is decided by the waiters' clocks, which may be off by up to one
    /// second. If a clock is off by more, the masters' clocks decide. If masters are down or have
    /// lost their queues, a later waiter may be served first. After an outage that is longer than
    /// half the waiter timeout, waiters that come back later may be passed by others. See
    /// [`docs::guarantees`](crate::docs::guarantees#fair-locks).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let (mine, yours) = (locks.owner(), locks.owner());
    /// let guard = locks.fair("orders/42", &mine).acquire().await?;
    /// let next = locks.fair("orders/42", &yours);
    /// let waiting = tokio::spawn(async move { next.acquire().await });
    /// while locks.fair("orders/42", &mine).inspect().await?.queue != [yours.id()] {
    ///     tokio::task::yield_now().await;
    /// }
    /// guard.release().await?;
    /// // The lock is free or the waiter has it already: no one else can get it before the waiter.
    /// assert!(locks.fair("orders/42", &mine).try_acquire().await.is_err());
    /// assert!(waiting.await??.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn fair(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        Lock::new(self.engine.clone(), Kind::Fair, name.as_ref(), Some(owner))
    }

    /// Checks all masters and reports what is dangerous, why it is, and how to fix it.
    ///
    /// The check covers the servers, their settings and the rights of their user. It finds, for
    /// example, eviction, replicas, a server that is listed twice, missing rights, and clocks that
    /// differ. If something cannot be found out, that is a finding, too. So a report without
    /// findings means that all is well, with one exception.
    /// [`docs::operations`](crate::docs::operations#before-the-start) describes the exception, and
    /// lists the findings.
    ///
    /// Call it when a program starts, or in a test of a deployment. It changes nothing on the
    /// masters, apart from the guard key that every first dial writes, and no lock is refused
    /// because of a finding. It needs the rights `+info` and `+config|get` in addition to those
    /// that locks need.
    ///
    /// It opens a connection of its own to each master, for at most the connect timeout. Then it
    /// takes about four round trips. A master that does not answer costs at most three node
    /// timeouts.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster, Severity};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let report = locks.check().await;
    /// if report.worst() >= Some(Severity::Unknown) {
    ///     eprintln!("{report}");
    /// }
    /// // `Warn` should not stop a start: locks work while one master is in quarantine.
    /// assert!(report.worst() < Some(Severity::Refuse));
    /// # Ok(()) }
    /// ```
    pub async fn check(&self) -> Preflight {
        let (config, masters) = (self.engine.config(), self.engine.masters());
        self.checker.run(config, masters.node_timeout()).await
    }

    /// Returns the number of masters.
    pub fn master_count(&self) -> usize {
        self.engine.masters().count()
    }

    /// Returns the number of masters that make a majority.
    pub fn quorum(&self) -> usize {
        majority(self.engine.masters().count())
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Refuses new acquisitions, and waits until all posted releases are delivered.
    ///
    /// A release is delivered when it has reached every master that may hold the key, or when the
    /// key has expired there. So `close` takes at most the longest TTL in use, or twice the [waiter
    /// timeout](crate::Builder::waiter_timeout) of a fair lock if that is longer. It may take that
    /// long if masters are down: put it under a [timeout](tokio::time::timeout).
    ///
    /// Call `close` at the end of a program, so that the releases of dropped guards arrive. Join
    /// the tasks that hold or want locks first. Guards that are still alive stay valid, are
    /// renewed, and can be extended and released. `close` does not wait for them, nor for attempts
    /// that are under way. Waiters are woken, and get [`Closed`](crate::AcquireError::Closed)
    /// instead of another attempt. Closing a coordinator closes all its clones; closing it again
    /// does no harm.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the coordinator closed. Releases that are owed are still
    /// delivered, as long as the runtime lives.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("masters", &self.engine.masters().addresses())
            .finish_non_exhaustive()
    }
}
