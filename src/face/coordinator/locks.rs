//! The locks of a coordinator: a method for each kind.

use std::sync::Arc;

use super::Coordinator;
use crate::{
    core::{config_error::ConfigError, kind::LockKind},
    driver::claim::owned_lock::LockOwner,
    face::{
        guard::{MultiGuard, PermitGuard},
        lock::{Lock, Owner, shared::ReadWriteLock},
    },
};

/// Methods that return locks. A name or an owner that cannot be used is reported when the lock is
/// acquired. If the name is held as another kind of lock, acquiring it fails with
/// [`OtherKind`](crate::Reason::OtherKind). A name that is free can be acquired as any kind.
impl Coordinator {
    /// Returns the mutex called `name`. Sends nothing.
    ///
    /// On every master a mutex is a string under the lock's key, written by `SET NX PX`. Most
    /// Redlock libraries use the same format, so their locks and these mutexes exclude each other.
    ///
    /// A mutex is not reentrant. A task that holds a mutex and acquires it again waits for itself.
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.lock(LockKind::Mutex, name.as_ref())
    }

    /// Returns a new owner for [`reentrant`](Self::reentrant) locks, and for fair and read-write
    /// locks that [are to be reentrant](Lock::owner). Sends nothing.
    ///
    /// Make one owner for each task, because tasks that share an owner do not exclude each other. A
    /// task may use its owner again and again. The owner works with this coordinator and its
    /// clones, and with all coordinators of the same [groups](crate::Groups). Other locks refuse
    /// the owner with [`ForeignOwner`](crate::ConfigError::ForeignOwner).
    pub fn new_owner(&self) -> Owner {
        Owner(Arc::new(LockOwner::new(self.context.owners.new_id())))
    }

    /// Returns the reentrant lock called `name` for `owner`. Sends nothing.
    ///
    /// The owner may acquire the lock as often as it likes. Each guard is one level, and dropping
    /// the last guard releases the lock. Each further acquisition takes one round. The round
    /// extends the lock to the [TTL](Lock::ttl) of that acquisition, and never shortens the lock.
    /// The guards of one owner have one validity, and they are lost together.
    ///
    /// On every master a reentrant lock is a hash under the lock's key, in the format of Redisson's
    /// `RLock`. So this lock and Redisson's `RedissonRedLock` over the same masters exclude each
    /// other and wake each other's waiters. While this lock is held, Redisson's read-write lock of
    /// the same name cannot be acquired.
    ///
    /// Two kinds of Redisson locks must not have the name of a reentrant or fair lock of this
    /// crate. One is Redisson's fair lock. The other is `getMultiLock(name, values)`, which
    /// acquires a name even if another client holds it. See
    /// [`docs::guarantees`](crate::docs::guarantees#reentrant-locks).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let owner = locks.new_owner();
    /// let lock = locks.reentrant("orders/42", &owner);
    /// let outer = lock.acquire().await?;
    /// let inner = lock.try_acquire().await?; // does not wait: the owner has the lock
    /// assert_eq!(inner.depth(), 2);
    ///
    /// let refused = locks.reentrant("orders/42", &locks.new_owner()).try_acquire().await;
    /// assert!(refused.is_err_and(|error| error.is_busy()));
    /// # drop((outer, inner));
    /// # Ok(()) }
    /// ```
    pub fn reentrant(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        self.lock(LockKind::Reentrant, name.as_ref()).owner(owner)
    }

    /// Returns the fair lock called `name`. Sends nothing.
    ///
    /// A fair lock serves its waiters in the order in which they came, across all processes and
    /// masters. One guard holds it at a time, as with a mutex. With an [owner](Lock::owner), the
    /// lock is [reentrant](Self::reentrant). The format on the masters is the same.
    ///
    /// Each waiter has a position in a queue on every master. To keep the position, the waiter
    /// sends every master about one command a second. If the process of a waiter has died, other
    /// waiters are served in its place after the
    /// [silent-waiter timeout](crate::Builder::silent_waiter_timeout).
    /// [`try_acquire`](Lock::try_acquire) does not join the queues. It fails while other waiters
    /// come first.
    ///
    /// A waiter can win only while a majority of masters answers it in time. If half the
    /// silent-waiter timeout passes without answers from a majority, the waiter leaves the queues,
    /// so that other waiters can win. When a majority answers again, the waiter takes its old position. If no
    /// majority ever knew that position, the waiter gets a new one.
    ///
    /// # Guarantees
    ///
    /// Of two waiters that a majority of masters have in their queues, the one that came first is
    /// served first. All guarantees of a [reentrant](Self::reentrant) lock apply as well.
    ///
    /// # Not guaranteed
    ///
    /// The waiters' clocks decide the order of arrival. These clocks may be off by up to one
    /// second. If a waiter's clock is off by more, the masters' clocks decide. If masters are down
    /// or have lost their queues, a later waiter may be served first. This may also happen after an
    /// outage that is longer than half the silent-waiter timeout, because the waiters return to the queues
    /// one by one. See [`docs::guarantees`](crate::docs::guarantees#fair-locks).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let lock = locks.fair("orders/42");
    /// let guard = lock.acquire().await?;
    /// let next = lock.clone();
    /// let waiting = tokio::spawn(async move { next.acquire().await });
    /// while lock.inspect().await?.waiters.is_empty() {
    ///     tokio::task::yield_now().await;
    /// }
    /// guard.release().await?;
    /// // The lock is free, or the waiter has it already. Nobody gets it before the waiter.
    /// assert!(lock.try_acquire().await.is_err());
    /// assert!(waiting.await??.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn fair(&self, name: impl AsRef<str>) -> Lock {
        self.lock(LockKind::Fair, name.as_ref())
    }

    /// Returns the read-write lock called `name`. Its readers share it, and its writer holds it
    /// alone.
    ///
    /// Each reader has a lease of its own. If a reader dies, the writer waits for the rest of that
    /// lease only. Readers and writers are served in the order in which they came, like the waiters
    /// of a [fair](Self::fair) lock: a reader waits for earlier writers, and a writer waits for all
    /// who came earlier. So a stream of readers does not keep a writer out, and writers do not keep
    /// a reader out.
    ///
    /// A writer may [become a reader](crate::WriteGuard::downgrade). With an
    /// [owner](ReadWriteLock::owner), the lock is reentrant: the writer may also read. A reader
    /// cannot become the writer, because two readers could wait for each other: see
    /// [`Upgrade`](crate::Reason::Upgrade).
    ///
    /// # Guarantees
    ///
    /// While a writer holds the lock, no other owner reads or writes. This guarantee has the same
    /// conditions as that of a [mutex](Self::mutex).
    ///
    /// # Not guaranteed
    ///
    /// The order in which waiters are served has the same exceptions as that of a
    /// [fair](Self::fair) lock. Redisson's `RReadWriteLock` has another format: while a name is
    /// held as one of the two, it cannot be acquired as the other.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let config = locks.read_write("config");
    /// let reading = config.read().acquire().await?;
    /// let also_reading = config.read().acquire().await?;
    ///
    /// assert!(config.write().try_acquire().await.is_err());
    /// reading.release().await?;
    /// also_reading.release().await?;
    /// let writing = config.write().acquire().await?;
    /// let reading = writing.downgrade(); // others may read what was written
    /// # drop(reading);
    /// # Ok(()) }
    /// ```
    pub fn read_write(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock {
            writer: self.lock(LockKind::ReadWrite, name.as_ref()),
        }
    }

    /// Returns the semaphore called `name`. At most `permits` guards hold it at once. `permits` is
    /// from 1 to 1,000. Sends nothing.
    ///
    /// Each guard has a [slot](PermitGuard::slot) of its own, which no other guard has at the same
    /// time. A job that needs several permits holds several guards. Waiters are served in the order
    /// in which they came, like those of a [fair lock](Self::fair), but waiters that come close
    /// together may swap places.
    ///
    /// Programs may use different numbers of permits. There are never more holders than the largest
    /// of these numbers. So the number can grow or shrink while programs run: no holder loses its
    /// permit, and a program with a smaller number waits until enough holders are gone. Callers
    /// that come later wait behind that program, even if there is a permit for them.
    ///
    /// With [`fenced`](Lock::fenced), a token is larger than those of all earlier holders of all
    /// slots. If each slot has a resource of its own, that resource can check the token.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let jobs = locks.semaphore("reports", 2);
    /// let first = jobs.acquire().await?;
    /// let second = jobs.acquire().await?;
    /// assert_ne!(first.slot(), second.slot());
    /// assert!(jobs.try_acquire().await.is_err());
    /// drop(first);
    /// let third = jobs.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: usize) -> Lock<PermitGuard> {
        let name = name.as_ref();
        let lock = Lock::semaphore(self.context.clone(), name, permits);
        self.refuse_others(lock, [name])
    }

    /// Returns the mutexes called `names` as one lock: all of them are acquired, or none. Sends
    /// nothing.
    ///
    /// This lock and a [`mutex`](Self::mutex) of one of its names exclude each other. There may be
    /// 1 to 100 names, in any order, and a name that is given twice counts once. A guard holds all
    /// names: it is valid until the first of them expires, it is lost as soon as one name is lost,
    /// and its release releases all.
    ///
    /// All names that seem free are asked for at once. If one name is held,
    /// [`acquire`](Lock::acquire) takes the names in the order of their keys: it keeps the names
    /// before the held one, waits for the held name, and goes on with the names after it. All
    /// clients use this order, so they never wait for each other in a circle. A task that holds
    /// such a lock already, and waits for another lock, can still be part of a circle.
    ///
    /// Each name is a lock of its own on the masters, with its own
    /// [fencing token](crate::FencedGuard::tokens), metrics, log messages and span. If an
    /// attempt fails, the error has the name that was not acquired. [`inspect`](Lock::inspect)
    /// tells who holds it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let accounts = locks.multi_mutex(["account/7", "account/3"]);
    /// let guard = accounts.acquire().await?;
    /// assert!(locks.mutex("account/3").try_acquire().await.is_err());
    /// assert!(guard.names().eq(["account/3", "account/7"]));
    /// # Ok(()) }
    /// ```
    pub fn multi_mutex(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Lock<MultiGuard> {
        let names: Vec<_> = names.into_iter().collect();
        let lock = Lock::multi_mutex(&self.context, |_| self.context.clone(), &names);
        self.refuse_others(lock, names.iter().map(AsRef::as_ref))
    }

    /// Returns the lock called `name` of kind `kind`. `owner` is used only for a reentrant kind.
    #[cfg(any(test, feature = "__internals"))]
    #[doc(hidden)]
    pub fn of_kind(&self, kind: LockKind, name: impl AsRef<str>, owner: &Owner) -> Lock {
        let lock = self.lock(kind, name.as_ref());
        if kind.is_reentrant() {
            lock.owner(owner)
        } else {
            lock
        }
    }

    fn lock(&self, kind: LockKind, name: &str) -> Lock {
        self.refuse_others(Lock::new(self.context.clone(), kind, name), [name])
    }

    /// Makes `lock` unusable if one of its names belongs to another group.
    fn refuse_others<'a, G>(
        &self,
        lock: Lock<G>,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Lock<G> {
        let is_other = |name: &&str| self.has_name.as_ref().is_some_and(|has| !has(name));
        match names.into_iter().find(is_other) {
            Some(name) => lock.refused(ConfigError::ForeignName { name: name.into() }),
            None => lock,
        }
    }
}
