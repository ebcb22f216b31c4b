//! A set of masters that hold locks together, for code without async.

use std::time::Duration;

use super::{
    background::{self, BackgroundThread, Blocking},
    lock::{Lock, ReadWriteLock},
};
use crate::{
    core::{
        config_error::ConfigError,
        error::{BlockingError, ReadyError},
        view::{MasterHealth, inspection::Inspection},
        vote::votes::Votes,
    },
    driver::questions::health_events,
    face::{
        builder::Builder,
        coordinator,
        lock::{self, Owner},
    },
    master::MasterSpec,
};

/// A set of independent masters that hold locks together, like an async
/// [`Coordinator`](crate::Coordinator).
///
/// A coordinator is cheap to clone, and all clones share everything. Threads may share one
/// coordinator, lock or guard.
///
/// [`Coordinator::new`] and [`Builder::build_blocking`] make a coordinator with a
/// [thread](super#the-background-thread) of its own. They need no runtime.
/// [`blocking`](crate::Coordinator::blocking) makes a view of an async coordinator.
pub type Coordinator = Blocking<coordinator::Coordinator>;

impl Blocking<coordinator::Coordinator> {
    /// Creates a coordinator of `masters` with the [default settings](Builder), and starts to
    /// connect.
    ///
    /// # Errors
    ///
    /// See [`Builder::build_blocking`].
    pub fn new(
        masters: impl IntoIterator<Item = impl Into<MasterSpec>>,
    ) -> Result<Self, ConfigError> {
        Self::builder().masters(masters).build_blocking()
    }

    /// Returns a builder with the default settings and no masters. Finish it with
    /// [`build_blocking`](Builder::build_blocking).
    pub fn builder() -> Builder {
        coordinator::Coordinator::builder()
    }

    /// Wraps a lock of another coordinator, for example a lock of [groups](crate::Groups). Calls of
    /// the wrapped lock use the thread of this coordinator.
    ///
    /// This method accepts no coordinator, because every coordinator makes its [own
    /// view](crate::Coordinator::blocking). The following does not compile:
    ///
    /// ```compile_fail,E0308
    /// # fn wraps(view: &quorlock::blocking::Coordinator, locks: &quorlock::Groups) {
    /// view.with(locks.of("orders/42"));
    /// # }
    /// ```
    pub fn with(&self, lock: lock::Lock) -> Lock {
        self.thread.view(lock)
    }

    /// Returns the mutex called `name`: see [`mutex`](crate::Coordinator::mutex).
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.thread.view(self.inner.mutex(name))
    }

    /// Returns the reentrant lock called `name` for `owner`: see
    /// [`reentrant`](crate::Coordinator::reentrant).
    pub fn reentrant(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        self.thread.view(self.inner.reentrant(name, owner))
    }

    /// Returns the fair lock called `name` for `owner`: see [`fair`](crate::Coordinator::fair).
    pub fn fair(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        self.thread.view(self.inner.fair(name, owner))
    }

    /// Returns the read-write lock called `name` for `owner`: see
    /// [`read_write`](crate::Coordinator::read_write).
    pub fn read_write(&self, name: impl AsRef<str>, owner: &Owner) -> ReadWriteLock {
        self.thread.view(self.inner.read_write(name, owner))
    }

    /// Returns the semaphore called `name`: see [`semaphore`](crate::Coordinator::semaphore).
    pub fn semaphore(&self, name: impl AsRef<str>, permits: usize) -> Lock {
        self.thread.view(self.inner.semaphore(name, permits))
    }

    /// Returns the mutexes called `names` as one lock: see
    /// [`mutex_all`](crate::Coordinator::mutex_all).
    pub fn mutex_all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Lock {
        self.thread.view(self.inner.mutex_all(names))
    }

    /// Deletes a lock that its holder does not release: see
    /// [`break_held`](crate::Coordinator::break_held).
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. Nothing was sent.
    pub fn break_held(&self, inspection: &Inspection) -> Result<Votes, BlockingError> {
        self.thread.wait(self.inner.break_held(inspection))
    }

    /// Waits until a majority of masters can vote, for at most `limit`: see
    /// [`ready`](crate::Coordinator::ready).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`].
    pub fn ready(&self, limit: Duration) -> Result<Votes, ReadyError> {
        self.thread.wait(self.inner.ready(limit))?
    }

    /// Waits until all masters can vote, for at most `limit`: see
    /// [`all_ready`](crate::Coordinator::all_ready).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`BlockingError`].
    pub fn all_ready(&self, limit: Duration) -> Result<Votes, ReadyError> {
        self.thread.wait(self.inner.all_ready(limit))?
    }

    /// Returns the changes of the masters' states, starting with the present state of each master.
    /// The returned events do not keep the coordinator alive.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{MasterState, MemoryMaster, blocking::Coordinator};
    /// # let locks = Coordinator::new([MemoryMaster::new()])?;
    /// let mut events = locks.health_events();
    /// while let Some(master) = events.next()? {
    ///     println!("{master}");
    /// #   if master.state == MasterState::Connected { break }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn health_events(&self) -> HealthEvents {
        self.thread.view(self.inner.health_events())
    }

    /// Refuses new acquisitions, and blocks until all posted releases are delivered: see
    /// [`close`](crate::Coordinator::close). If masters are down, the call may take as long as the
    /// longest TTL in use, so prefer [`close_within`](Self::close_within).
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. The coordinator was not closed.
    pub fn close(&self) -> Result<(), BlockingError> {
        self.thread.wait(self.inner.close())
    }

    /// Closes the coordinator as [`close`](Self::close) does, but waits for at most `limit`.
    /// Returns whether all posted releases were delivered in that time.
    ///
    /// Call this method at the end of `main`, so that the releases of dropped guards arrive. If the
    /// result is `false`, the delivery continues while the program runs.
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. The coordinator was not closed.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{MemoryMaster, blocking::Coordinator};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let guard = locks.mutex("orders/42").acquire()?;
    /// drop(guard);
    /// if !locks.close_within(Duration::from_secs(2))? {
    ///     eprintln!("some masters are down: their keys end with the TTL");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn close_within(&self, limit: Duration) -> Result<bool, BlockingError> {
        let closed = self.inner.close_within(Duration::MAX);
        Ok(self.thread.wait_within(limit, closed)?.unwrap_or(false))
    }
}

/// The changes of the masters' states, like async [`HealthEvents`](crate::HealthEvents).
pub type HealthEvents = Blocking<health_events::HealthEvents>;

impl Blocking<health_events::HealthEvents> {
    /// Blocks until the next change, and returns it. Returns `None` after the last change.
    ///
    /// # Errors
    ///
    /// [`BlockingError`]. No change is lost.
    #[expect(
        clippy::should_implement_trait,
        reason = "the result says that it could not block"
    )]
    pub fn next(&mut self) -> Result<Option<MasterHealth>, BlockingError> {
        self.thread.wait(self.inner.next())
    }
}

impl Builder {
    /// Checks all settings, creates a [blocking coordinator](crate::blocking) and starts to
    /// connect.
    ///
    /// Needs no runtime: the coordinator has a [thread](crate::blocking#the-background-thread) of
    /// its own. Does not wait for any master.
    ///
    /// # Errors
    ///
    /// [`NoThread`](ConfigError::NoThread), and the errors of [`build`](Self::build) except
    /// `NoRuntime`. Nothing was sent.
    pub fn build_blocking(self) -> Result<Coordinator, ConfigError> {
        let thread = BackgroundThread::start()?;
        let inner = {
            let _entered = thread.enter().map_err(background::no_thread)?;
            self.build()?
        };
        let _ = thread.last_work.send(inner.health_events()); // the thread ends after the events
        Ok(Coordinator { inner, thread })
    }
}

impl coordinator::Coordinator {
    /// Returns a view of this coordinator for [code without async](crate::blocking). The view and
    /// the coordinator share everything: the connections, the waiters and [`close`](Self::close).
    ///
    /// The connections stay on the runtime of this coordinator. That runtime must run while the
    /// view is used. Each view has a thread of its own for time limits, and the clones of the view
    /// share that thread. So make one view and clone it. The thread ends after the view, its
    /// clones, and all that they made are dropped.
    ///
    /// # Errors
    ///
    /// [`NoThread`](ConfigError::NoThread): the thread could not be started.
    pub fn blocking(&self) -> Result<Coordinator, ConfigError> {
        Ok(BackgroundThread::start()?.view(self.clone()))
    }
}
