//! Distributed locks held by a majority of N independent Redis or Valkey masters, by the
//! [Redlock](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/) algorithm.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use quorlock::{Coordinator, MemoryMaster};
//!
//! // In production: ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]
//! let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
//!
//! let guard = locks.mutex("orders/42").acquire_within(Duration::from_secs(1)).await?;
//! let work = async { /* meanwhile, the guard is renewed in the background */ };
//! guard.run(work).await?; // a loss stops the work, because another program may hold the lock then
//! drop(guard); // releases the lock
//! locks.close().await; // waits until all releases have arrived
//! # Ok(()) }
//! ```
//!
//! # Where to start
//!
//! [`Coordinator`] is a set of masters, [`Lock`] is a named lock on all of them, and [`Guard`] is a
//! lock that is held. [`docs`] has the longer texts: recipes, settings, the guarantees, operations,
//! the algorithm, fencing tokens, a comparison with other libraries, and the architecture.
//!
//! | lock | for | order of waiters | round trips | [`Owner`] |
//! |---|---|---|---|---|
//! | [`mutex`](Coordinator::mutex) | one guard at a time | by chance | 1 | none |
//! | [`reentrant`](Coordinator::reentrant) | code that may hold the lock already | by chance | 1 | needs one |
//! | [`fair`](Coordinator::fair) | waiters that must keep their order | as they came | 1 | optional |
//! | [`read_write`](Coordinator::read_write) | many readers, or one writer | as they came | 1 | optional |
//! | [`semaphore`](Coordinator::semaphore) | a limited number of guards | about as they came | 1 or 2 | none |
//! | [`multi_mutex`](Coordinator::multi_mutex) | several names, all or none | by chance | 1 | none |
//!
//! The round trips are those of a free lock. An optional owner makes the lock
//! [reentrant](Lock::owner). [Which lock](crate::docs::recipes#which-lock) says more. Use each name
//! with one kind of lock. The use of a second kind is detected only while the lock is held.
//!
//! A lock may outlive its process: [`Guard::detach`] gives a text, with which another process can
//! [attach](Coordinator::attach) the lock and release it.
//!
//! # Runtime
//!
//! The crate needs tokio. Build a coordinator inside a runtime with time and I/O enabled, and keep
//! that runtime alive while locks are used: see [`Coordinator`]. A program [without
//! async](crate::docs::recipes#without-async) makes a runtime with a worker thread.
//!
//! # Errors
//!
//! Three questions sort the errors of an acquisition: [`is_busy`](AcquireError::is_busy), another
//! client has the lock; [`is_unavailable`](AcquireError::is_unavailable), too few masters can vote;
//! and [`is_mistake`](AcquireError::is_mistake), another attempt fails as well. A loop asks
//! [`is_final`](AcquireError::is_final). The [`Reason`] in the error says more.
//!
//! # What is not promised
//!
//! A holder can be paused by the scheduler, by a page fault or by a migration of its virtual
//! machine. After the pause it can act although the validity of its lock has ended. No lock with a
//! TTL can prevent that. A resource that checks [fencing tokens](Lock::fenced) can refuse the late
//! action. See [`docs::guarantees`].
//!
//! # Logs and spans
//!
//! Connections, outages of masters and lost locks are reported to [`tracing`]. Each outage and each
//! lost lock is logged at WARN. Attempts to reconnect are logged at DEBUG. Fencing tokens are
//! logged. User names, passwords and the random values on the masters are never logged.
//!
//! There are three spans at DEBUG, with the target `quorlock::lock` and the lock's name as `lock`.
//! `acquire` covers a call that asks for a lock. `hold` begins when that call succeeds, and ends
//! with the release or the loss. Inside `hold`, each renewal in the background has a span `renew`.
//!
//! # Features
//!
//! - `sentinel` adds `redis+sentinel://` URLs: see [`MasterSpec`]. **A failover forgets locks.**
//!   The quarantine therefore takes the new master's vote away for a while: see
//!   [`docs::operations`](crate::docs::operations#masters-behind-sentinel).
//! - `tls` adds `rediss://` URLs. It re-exports the TLS crate as
//!   [`quorlock::rustls`](crate::rustls), because [`Builder::tls`] accepts a configuration of that
//!   crate. It uses the crypto provider `ring`. In a program with a second provider, such as
//!   `aws-lc-rs`, rustls has no default any more: call `CryptoProvider::install_default` first.
//! - `metrics` counts rounds, votes, waits and losses through the facade of the
//!   [`metrics`](https://docs.rs/metrics) crate: see
//!   [`docs::operations`](crate::docs::operations#metrics).
//! - `serde` adds [`SharedSettings`] and [`Builder::from_env`]: settings from environment variables
//!   and configuration files. It makes [`MasterSpec`] deserializable. It serializes and deserializes
//!   [`FencingToken`] as a number.
//! - `test-util` adds [`MemoryMaster`] of the crate `quorlock-memory`, for your tests. A memory
//!   master is a small Redis in the process, with fault injection. This feature needs a C compiler,
//!   because it builds the Lua interpreter that runs the crate's scripts. The examples on these
//!   pages use this feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The pages link to items of all features. Without one of the features, some links are broken.
#![cfg_attr(
    not(all(feature = "serde", feature = "test-util", feature = "tls")),
    allow(rustdoc::broken_intra_doc_links)
)]

mod clock;
mod core;
mod driver;
mod face;
mod home;
mod machine;
mod master;
mod meter;
mod observe;
mod panics;

#[cfg(test)]
#[path = "../tests/conformance/mod.rs"]
mod conformance;

#[cfg(test)]
#[path = "../tests/explore/mod.rs"]
mod explore;

#[cfg(test)]
#[path = "../tests/scripts/mod.rs"]
mod scripts;

#[cfg(test)]
#[path = "../tests/sim/mod.rs"]
mod sim;

#[cfg(feature = "serde")]
pub use crate::face::builder::shared_settings::SharedSettings;
pub use crate::{
    core::{
        config_error::ConfigError,
        error::{AcquireError, AskError, ExtendError, LostError, QuorumError},
        kind::LockKind,
        protocol::detached::Detached,
        reason::Reason,
        restart::Quarantine,
        time::lease::Renewal,
        view::{
            LockState, LostReason,
            inspection::{Holder, Inspection},
        },
    },
    face::{
        builder::Builder,
        coordinator::Coordinator,
        detach::DetachError,
        fence::FencingToken,
        groups::{Groups, group::Group},
        guard::{FencedGuard, Guard, MultiGuard, PermitGuard, ReadGuard, WriteGuard},
        lock::{Lock, Owner, shared::ReadWriteLock},
    },
    master::MasterSpec,
};

/// What each master answered in a round, to find out why a lock was not acquired or was lost.
pub mod votes {
    pub use crate::core::vote::{
        Failure, Refusal, Vote,
        votes::{VoteRow, Votes},
    };
}

/// The states of the masters.
pub mod health {
    pub use crate::core::view::{MasterHealth, MasterState};
}

/// The traits of the types of guards, for generic functions.
pub mod guards {
    pub use crate::face::guard::{AnyGuard, Fenceable, OneName};
}

/// What only the command line and the crate `quorlock-check` need. It may change in any version.
#[doc(hidden)]
pub mod tools {
    pub use crate::{
        core::{
            protocol::{
                connection_name::{ConnectionName, ListsId},
                name::{ExampleKey, example_keys},
            },
            view::{DialRefusal, inspection::MasterView},
            vote::quorum::{MasterList, Membership, Tally},
            vote::server_error::{ServerError, without_user},
        },
        face::builder::open::distinct,
        master::{ConnectError, ConnectStep, MasterStream},
    };

    #[cfg(feature = "serde")]
    pub use crate::face::builder::environment::{SETTINGS, variables};
}

#[cfg(feature = "test-util")]
pub use quorlock_memory::{Fault, MemoryMaster};

#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;

#[cfg(feature = "__internals")]
#[doc(hidden)]
#[path = "internals.rs"]
pub mod __internals;

/// Includes a page of `docs/`. The pages link to each other by labels. Each file defines its labels
/// for readers outside rustdoc. This macro puts definitions for rustdoc before those of the file.
/// Rustdoc uses the first definition of a label.
///
/// Pictures have labels, too. Rustdoc copies no files, so this macro defines the label of a picture
/// as a `data:` URI that contains the picture.
macro_rules! page {
    ($file:literal $(, $picture:literal)*) => {
        concat!(
            $(
                "[", $picture, " picture]: ",
                include_str!(concat!("../docs/pictures/", $picture, ".uri")),
            )*
            "[change the groups]: crate::docs::operations#change-the-groups\n",
            "[change the masters]: crate::docs::operations#change-the-masters\n",
            "[check]: crate::docs::operations#before-the-start\n",
            "[command line]: crate::docs::recipes#the-command-line\n",
            "[comparison]: crate::docs::comparison\n",
            "[compatibility]: crate::docs::compatibility\n",
            "[fencing]: crate::docs::fencing\n",
            "[groups]: crate::docs::algorithm#groups\n",
            "[guarantees]: crate::docs::guarantees\n",
            "[interop]: crate::docs::interop\n",
            "[left]: crate::docs::guarantees#what-is-left-on-the-masters\n",
            "[masters behind sentinel]: crate::docs::operations#masters-behind-sentinel\n",
            "[masters that forget]: crate::docs::guarantees#masters-that-forget\n",
            "[metrics]: crate::docs::operations#metrics\n",
            "[next to each other]: crate::docs::comparison#next-to-each-other\n",
            "[one kind]: crate::docs::guarantees#one-name-one-kind\n",
            "[plain threads]: crate::docs::recipes#without-async\n",
            "[quarantine]: crate::docs::settings#quarantine\n",
            "[recipes]: crate::docs::recipes\n",
            "[reentrant]: crate::docs::guarantees#reentrant-locks\n",
            "[rights]: crate::docs::operations#rights\n",
            "[rolling restarts]: crate::docs::operations#rolling-restarts\n",
            "[settings]: crate::docs::settings\n",
            "[shared settings]: crate::docs::settings#the-environment-and-files\n",
            "[tls]: crate::docs::operations#tls\n",
            "[pauses]: crate::docs::algorithm#waiting\n",
            "[why it holds]: crate::docs::algorithm#why-it-holds\n",
            "[`Reason::NotFenced`]: crate::Reason::NotFenced\n",
            "[`FencedGuard::token`]: crate::FencedGuard::token\n",
            "[`Lock::fenced`]: crate::Lock::fenced\n",
            "[`Quarantine`]: crate::Quarantine\n\n",
            include_str!($file)
        )
    };
}

/// The longer texts. Their examples are tested. Read them in this order:
/// [`recipes`](docs::recipes), [`settings`](docs::settings), [`guarantees`](docs::guarantees),
/// [`operations`](docs::operations), [`algorithm`](docs::algorithm), [`fencing`](docs::fencing),
/// [`proof`](docs::proof), [`comparison`](docs::comparison), [`interop`](docs::interop),
/// [`compatibility`](docs::compatibility). To change the crate, also read
/// [`architecture`](docs::architecture).
pub mod docs {
    // The examples of this page are parts of the programs in `recipes/`.
    #[cfg_attr(not(doctest), doc = page!("../docs/recipes.md"))]
    pub mod recipes {}
    #[doc = page!("../docs/settings.md")]
    pub mod settings {}
    #[doc = page!("../docs/guarantees.md")]
    pub mod guarantees {}
    #[doc = page!("../docs/operations.md", "restart")]
    pub mod operations {}
    #[doc = page!("../docs/algorithm.md", "hand-over", "round")]
    pub mod algorithm {}
    // The examples of this page are tested in `recipes/`, because one of them needs SQLite.
    #[cfg_attr(not(doctest), doc = page!("../docs/fencing.md"))]
    pub mod fencing {}
    #[doc = page!("../docs/proof.md")]
    pub mod proof {}
    #[doc = page!("../docs/comparison.md")]
    pub mod comparison {}
    #[doc = page!("../docs/interop.md")]
    pub mod interop {}
    #[doc = page!("../docs/compatibility.md")]
    pub mod compatibility {}
    #[doc = page!("../docs/architecture.md")]
    pub mod architecture {}
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
