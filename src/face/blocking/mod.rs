//! The coordinator, the lock and the guard for code without async.
//!
//! Each type of this module wraps the async type of the same name in a [`Blocking`]. The methods of
//! the async type that do not wait can be called on the wrapper. A method of the wrapper hides the
//! async method of the same name. The method of the wrapper has the same effect, errors and
//! guarantees, but blocks the calling thread until it is done.
//!
//! ```
//! use std::{io, time::Duration};
//! use quorlock::{MemoryMaster, blocking::Coordinator};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In production: ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
//! let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
//! locks.ready(Duration::from_secs(5))?;
//!
//! let lock = locks.mutex("orders/42");
//! let guard = lock.acquire_within(Duration::from_secs(1))?;
//! // Work. The guard is renewed in the background.
//! guard.ensure_held()?;
//! guard.release()?;
//!
//! let sum = lock.run(|_guard| Ok::<_, io::Error>(40 + 2))?;
//! assert_eq!(sum, 42);
//! locks.close_within(Duration::from_secs(2))?;
//! # Ok(()) }
//! ```
//!
//! # The background thread
//!
//! [`Builder::build_blocking`](crate::Builder::build_blocking) starts one thread, with a runtime of
//! its own. This thread serves the connections and renews the locks, even while all other threads
//! of the program work or sleep. Host names are looked up by further threads.
//!
//! The thread ends when the last [`Blocking`] is dropped and everything that was posted is
//! delivered or has expired. Dropping a `Blocking` never blocks and never panics, also in async
//! code.
//!
//! **The end of the program does not wait for the thread.** Dropping a guard posts the release and
//! returns at once. If `main` returns before the thread has sent that release, the lock ends with
//! its TTL. So call [`close_within`](Coordinator::close_within) at the end of `main`, or
//! [`release`](Guard::release) each guard. `std::process::exit` and a panic of the main thread do
//! not wait either.
//!
//! A `fork` does not copy the thread. Create the coordinator after the fork, in each process that
//! uses it: in the child, calls of an older one fail at once. The parent keeps its locks.
//!
//! # In async programs
//!
//! A program with a runtime builds an async coordinator, and calls
//! [`blocking`](crate::Coordinator::blocking) to get a view of it for code without async. The view
//! and the coordinator share the connections and the waiters. The calls of the view work only while
//! the runtime of the coordinator runs.
//!
//! ```
//! # use quorlock::{Coordinator, MemoryMaster};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
//! let blocking = locks.blocking()?;
//! let job = move || blocking.mutex("orders/42").try_acquire().map(drop);
//! tokio::task::spawn_blocking(job).await??;
//! # Ok(()) }
//! ```
//!
//! With [groups of masters](crate::Groups), make one view of the coordinator of any group. The
//! method [`with`](Coordinator::with) of this view wraps the locks of all groups. A program without
//! async starts a runtime for the groups, and closes the groups in that runtime.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use quorlock::{Coordinator, Group, Groups, MemoryMaster};
//!
//! let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! let _inside = runtime.enter();
//! let groups = ["a", "b"].map(|id| Group::new(id, [MemoryMaster::new()]));
//! let locks = Groups::new(Coordinator::builder(), groups)?;
//! let view = locks.of("").blocking()?;
//! let guard = view.with(locks.mutex("orders/42")).acquire()?;
//! guard.release()?;
//! runtime.block_on(locks.close());
//! # Ok(()) }
//! ```
//!
//! In an async task of tokio, a method that blocks would stop the other tasks of the thread. So the
//! method returns a [`BlockingError`](crate::BlockingError), or an error that contains one, before
//! it sends anything. Methods that block work in `spawn_blocking`, in `block_in_place`, and in
//! threads that have merely entered a runtime.
//!
//! This module does not notice a task inside `tokio::task::unconstrained`, or a task of an executor
//! other than tokio. In such a task, a method of this module blocks the executor. If this executor
//! also runs the async coordinator of a view, the method may wait forever.

pub use self::{
    background::Blocking,
    coordinator::{Coordinator, HealthEvents},
    lock::{Guard, Lock, ReadWriteLock},
};

mod background;
mod coordinator;
mod lock;
