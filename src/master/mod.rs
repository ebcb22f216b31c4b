//! Connects to one master, and makes votes of its replies.
//!
//! This floor knows commands and votes. It does not know what a majority is.

mod config;
#[cfg(all(test, feature = "redis"))]
#[path = "../../tests/conformance/mod.rs"]
mod conformance;
mod connection;
pub(crate) mod dial_error;
mod health;
mod in_flight;
mod known_origins;
mod liveness;
mod mailbox;
#[cfg(feature = "test-util")]
mod memory;
mod metrics;
mod outage;
mod owed;
pub(crate) mod probe;
mod quarantine;
pub(crate) mod question;
mod queue;
#[cfg(feature = "redis")]
mod redis;
mod request;
mod restart;
pub(crate) mod server_error;
#[cfg(test)]
#[path = "../../tests/sim/mod.rs"]
pub(crate) mod sim;
mod spec;
mod subscriptions;
mod supervisor;
mod task;
mod unanswered;
mod watchers;

pub(crate) use config::MasterConfig;
pub(crate) use health::{Entry, HealthBoard};
pub(crate) use mailbox::Mailbox;
#[cfg(feature = "test-util")]
pub use memory::{Fault, MemoryMaster};
#[cfg(all(feature = "__internals", feature = "redis"))]
pub(crate) use redis::encode_command;
#[cfg(all(test, feature = "redis"))]
pub(crate) use redis::wire_error::WireError;
#[cfg(all(feature = "__internals", feature = "redis"))]
pub use redis::{read_reply, reply_lengths};
pub(crate) use request::{CountVotes, Request};
pub(crate) use restart::RestartTracker;
pub use spec::MasterSpec;
pub(crate) use spec::Supervisor;
#[cfg(all(feature = "__internals", feature = "redis"))]
pub use spec::in_process;
pub(crate) use subscriptions::{ChannelEvent, Subscriber};
pub(crate) use watchers::Watcher;
