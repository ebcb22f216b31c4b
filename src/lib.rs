//! Distributed locks held by a majority of N independent Redis or Valkey masters.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use quorlock::{Coordinator, MemoryMaster};
//!
//! // With real masters: Coordinator::new(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])?
//! let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
//!
//! let guard = locks.mutex("orders/42").acquire_within(Duration::from_secs(1)).await?;
//! assert!(guard.validity() > Duration::from_secs(9)); // of the default ttl of 10 s
//! // ... work: the guard is renewed meanwhile, and guard.lost() tells when that did not help ...
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Kinds
//!
//! - [`mutex`](Coordinator::mutex): held once. The common Redlock format.
//! - [`reentrant`](Coordinator::reentrant): held by an [`Owner`], who may acquire it again. The format of
//!   Redisson's plain lock.
//! - [`fair`](Coordinator::fair): reentrant, and waiters are served in the order in which they came, across all
//!   processes.
//!
//! Use a name as one kind only: that it is not is found only while it is held.
//!
//! # What is not promised
//!
//! A holder that is paused, by its scheduler, a page fault or a virtual machine that moves, can act after its
//! validity has ended. No lock that expires can stop that. See [`docs::guarantees`].
//!
//! # Events
//!
//! Connections, outages of masters (a WARN for each, its redials at DEBUG) and lost locks go to [`tracing`]; nobody
//! sees them without a subscriber. No token, user name or password is in them.
//!
//! # Where to read on
//!
//! - [`Coordinator`]: a set of masters. [`Lock`]: a name on it. [`Guard`]: held. [`Votes`]: by whom.
//! - [`Owner`]: who holds reentrant and fair locks. [`Inspection`]: who holds a lock, and who waits.
//! - [`AcquireError`], [`ExtendError`], [`LostError`], [`ReleaseError`], [`RunError`], [`InspectError`],
//!   [`ConfigError`]: what can go wrong.
//! - [`MemoryMaster`]: masters in your tests, with faults to order.
//! - [`docs`]: the algorithm, the guarantees, fencing tokens, the architecture, how to operate it, other libraries.
//!
//! # Features
//!
//! - `redis` (default): real masters, over TCP and unix sockets.
//! - `tls`: `rediss://` URLs, through rustls.
mod check;
mod coordinator;
mod core;
mod driver;
mod error;
mod fence;
mod guard;
mod lock;
mod master;
mod owner;
mod user_code;

pub use crate::{
    check::{Finding, Preflight, Setting, Severity},
    coordinator::{Builder, Coordinator},
    core::{
        inspection::{Holding, Inspection},
        lock_state::{LockState, LostReason},
        name::Kind,
        quorum::{Failure, Holder, Refusal, Vote},
        renewal::Renewal,
        restart::RestartGuard,
        votes::{VoteRow, Votes},
    },
    error::{
        AcquireError, ConfigError, ExtendError, InspectError, LostError, ReleaseError, RunError,
    },
    fence::{Fence, StaleToken},
    guard::Guard,
    lock::Lock,
    master::{Fault, MasterSpec, MemoryMaster},
    owner::Owner,
};

#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;

#[cfg(feature = "__internals")]
#[doc(hidden)]
#[path = "internals.rs"]
pub mod __internals;

/// A page. Where it links to another it does so by a label, which the file defines for who reads it as one: here the first
/// definition counts.
macro_rules! page {
    ($file:literal) => {
        concat!(
            "[fencing]: crate::docs::fencing\n",
            "[guarantees]: crate::docs::guarantees\n",
            "[masters that keep everything]: crate::docs::guarantees#masters-that-keep-everything\n",
            "[rights]: crate::docs::operations#rights\n",
            "[rolling restarts]: crate::docs::operations#rolling-restarts\n",
            "[why it holds]: crate::docs::guarantees#why-it-holds\n\n",
            include_str!($file)
        )
    };
}

/// The longer texts, compiled with the crate so that their examples stay true.
pub mod docs {
    #[doc = page!("../docs/algorithm.md")]
    pub mod algorithm {}
    #[doc = page!("../docs/architecture.md")]
    pub mod architecture {}
    #[doc = page!("../docs/comparison.md")]
    pub mod comparison {}
    #[doc = page!("../docs/fencing.md")]
    pub mod fencing {}
    #[doc = page!("../docs/guarantees.md")]
    pub mod guarantees {}
    #[doc = page!("../docs/operations.md")]
    pub mod operations {}
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
