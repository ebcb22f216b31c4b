//! Connects to masters, and has the machine behind its mutex.
//!
//! This floor knows commands and replies. It decides only when to dial again.

pub(crate) mod connect_error;
mod observer;
mod redis;
pub(crate) mod restart;
pub(crate) mod shared;
mod spec;
mod supervisor;

pub use connect_error::{ConnectError, ConnectStep};
pub use redis::MasterStream;
#[cfg(test)]
pub(crate) use redis::wire::{Stream, Wire};
#[cfg(test)]
pub(crate) use redis::{ScriptAs, encode_command, reply};
#[cfg(feature = "__internals")]
pub use redis::{read_reply, reply_lengths};
pub(crate) use shared::Shared;
pub use spec::MasterSpec;
pub(crate) use spec::Supervisor;
