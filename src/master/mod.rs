//! One master: how it is reached, and how its replies become votes.
//!
//! This floor knows commands and votes. It does not know what a majority is.

mod config;
#[cfg(all(test, feature = "redis"))]
#[path = "../../tests/conformance/mod.rs"]
mod conformance;
mod connection;
mod in_flight;
mod known_origins;
mod liveness;
mod mailbox;
#[cfg(feature = "test-util")]
mod memory;
mod outage;
mod owed;
#[cfg(feature = "redis")]
mod redis;
mod request;
mod restart;
mod spec;
mod subscriptions;
mod supervisor;
mod task;
mod unanswered;

pub(crate) use config::MasterConfig;
pub(crate) use mailbox::Mailbox;
#[cfg(feature = "test-util")]
pub use memory::{Fault, MemoryMaster};
#[cfg(feature = "__internals")]
pub(crate) use redis::encode_command;
pub(crate) use request::{CountVotes, Request};
pub(crate) use restart::RestartTracker;
pub use spec::MasterSpec;
pub(crate) use spec::Supervisor;
pub(crate) use subscriptions::{ChannelEvent, Subscriber};
