//! A named lock, and a lock that is held, for code without async.

use std::time::Duration;

use super::background::Blocking;
use crate::{
    core::{
        error::{
            AcquireError, BlockingError, ExtendError, InspectError, LostError, ReleaseError,
            RunError,
        },
        time::lease::Renewal,
        view::inspection::Inspection,
        vote::votes::Votes,
    },
    face::{guard, lock},
};

/// A named lock on all masters of a [`Coordinator`](super::Coordinator), like an async
/// [`Lock`](crate::Lock).
///
/// A call cannot be cancelled while it blocks. To limit the wait, call
/// [`acquire_within`](Self::acquire_within). To end all waits, close the coordinator in another
/// thread.
///
/// In an async task, every method that blocks returns
/// [`BlockingError`] inside its error, and sends nothing.
pub type Lock = Blocking<lock::Lock>;

impl Blocking<lock::Lock> {
    /// Makes one attempt to acquire the lock: see [`try_acquire`](crate::Lock::try_acquire).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`].
    pub fn try_acquire(&self) -> Result<Guard, AcquireError> {
        self.guard(self.inner.try_acquire())
    }

    /// Waits until the lock is acquired, for at most about `limit`: see
    /// [`acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`].
    pub fn acquire_within(&self, limit: Duration) -> Result<Guard, AcquireError> {
        self.guard(self.inner.acquire_within(limit))
    }

    /// Waits until the lock is acquired: see [`acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`].
    pub fn acquire(&self) -> Result<Guard, AcquireError> {
        self.guard(self.inner.acquire())
    }

    fn guard(
        &self,
        acquired: impl Future<Output = Result<guard::Guard, AcquireError>>,
    ) -> Result<Guard, AcquireError> {
        Ok(self.thread.view(self.thread.wait(acquired)??))
    }

    /// Acquires the lock as [`acquire`](Self::acquire) does, runs `body`, and releases the lock. If
    /// `body` panics, the lock is released, too.
    ///
    /// A loss of the lock does not stop `body`, because nothing can interrupt a thread. Between its
    /// steps, `body` should call [`ensure_held`](crate::Guard::ensure_held). The async
    /// [`run`](crate::Lock::run) drops its body when the lock is lost.
    ///
    /// # Errors
    ///
    /// - [`Acquire`](RunError::Acquire): the lock was not acquired, and `body` did not run.
    /// - [`Body`](RunError::Body): the body returned this error. The lock may have been lost by
    ///   then.
    /// - [`Lost`](RunError::Lost): the lock was lost before the body returned a value.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{MemoryMaster, blocking::Coordinator};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let sum = locks.mutex("orders/42").run(|guard| {
    ///     let first = 40;
    ///     guard.ensure_held()?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(first + 2)
    /// })?;
    /// assert_eq!(sum, 42);
    /// # Ok(()) }
    /// ```
    pub fn run<T, E>(&self, body: impl FnOnce(&Guard) -> Result<T, E>) -> Result<T, RunError<E>> {
        let guard = self.acquire()?;
        let outcome = body(&guard).map_err(RunError::Body);
        if outcome.is_ok() {
            guard.ensure_held()?;
        }
        // As in the async `run`, the result of the body is returned, whether or not the release is
        // confirmed.
        let _ = guard.release();
        outcome
    }

    /// Asks all masters who holds the lock, and who waits for it: see
    /// [`inspect`](crate::Lock::inspect).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`].
    pub fn inspect(&self) -> Result<Inspection, InspectError> {
        self.thread.wait(self.inner.inspect())?
    }

    /// Returns whether the lock is held: see [`is_held`](crate::Lock::is_held).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`].
    pub fn is_held(&self) -> Result<bool, InspectError> {
        self.thread.wait(self.inner.is_held())?
    }

    /// Returns how many permits of a semaphore are free: see
    /// [`available`](crate::Lock::available).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`].
    pub fn available(&self) -> Result<usize, InspectError> {
        self.thread.wait(self.inner.available())?
    }
}

/// Settings of one lock. The TTL and the renewal replace those of the coordinator.
impl Blocking<lock::Lock> {
    /// Sets how long the lock lives on the masters unless it is extended or released: see
    /// [`ttl`](crate::Lock::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.thread.view(self.inner.ttl(ttl))
    }

    /// Sets how long the lock is renewed while its guard lives: see
    /// [`renewal`](crate::Lock::renewal).
    pub fn renewal(self, renewal: Renewal) -> Self {
        self.thread.view(self.inner.renewal(renewal))
    }

    /// Keeps others from the lock until `time` has passed since its acquisition: see
    /// [`min_hold`](crate::Lock::min_hold).
    pub fn min_hold(self, time: Duration) -> Self {
        self.thread.view(self.inner.min_hold(time))
    }

    /// Makes every guard carry a [fencing token](crate::Guard::fencing_token): see
    /// [`fenced`](crate::Lock::fenced).
    pub fn fenced(self) -> Self {
        self.thread.view(self.inner.fenced())
    }
}

/// A named lock that readers share, and that a writer holds alone, like an async
/// [`ReadWriteLock`](crate::ReadWriteLock).
pub type ReadWriteLock = Blocking<lock::shared::ReadWriteLock>;

impl Blocking<lock::shared::ReadWriteLock> {
    /// Returns the lock of a reader: see [`read`](crate::ReadWriteLock::read).
    pub fn read(&self) -> Lock {
        self.thread.view(self.inner.read())
    }

    /// Returns the lock of the writer: see [`write`](crate::ReadWriteLock::write).
    pub fn write(&self) -> Lock {
        self.thread.view(self.inner.write())
    }
}

/// A lock that is held, like an async [`Guard`](crate::Guard).
///
/// It has the guarantees and the limits of the async guard. Dropping the guard posts a release and
/// does not block. A guard can be dropped on any thread, also in async code. The end of the program
/// does not wait for the release: see [the background thread](super#the-background-thread).
pub type Guard = Blocking<guard::Guard>;

impl Blocking<guard::Guard> {
    /// Blocks until the lock is lost: see [`lost`](crate::Guard::lost).
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. The lock is not affected.
    pub fn lost(&self) -> Result<LostError, BlockingError> {
        self.thread.wait(self.inner.lost())
    }

    /// Blocks until the lock is lost, for at most `limit`. Returns `None` if the lock is still
    /// held.
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. The lock is not affected.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<LostError>, BlockingError> {
        self.thread.wait_within(limit, self.inner.lost())
    }

    /// Blocks until every master has answered or timed out, and returns the
    /// [votes](crate::Guard::votes).
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. The lock is not affected.
    pub fn settled(&self) -> Result<Votes, BlockingError> {
        self.thread.wait(self.inner.settled())
    }

    /// Makes the lock valid for `ttl` from now: see [`extend`](crate::Guard::extend).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`]. After a `BlockingError`, nothing was sent.
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.thread.wait(self.inner.extend(ttl))?
    }

    /// Releases the lock on all masters, and blocks until a majority has confirmed: see
    /// [`release`](crate::Guard::release).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`]. After a `BlockingError`, the release is
    /// posted as if the guard had been dropped.
    pub fn release(self) -> Result<(), ReleaseError> {
        let Self { inner, thread } = self;
        thread.wait(inner.release())?
    }
}
