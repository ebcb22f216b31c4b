//! Masters in this process: what the Lua scripts do, written in Rust, with faults to inject.

pub(super) mod connection;
mod fair;
mod fault;
mod fence;
mod keys;
mod master;
pub(super) mod probe;
mod scripts;
mod server;

pub use fault::Fault;
pub use master::MemoryMaster;
