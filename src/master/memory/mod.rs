//! Masters in this process: what the Lua scripts do, written in Rust, with faults to inject.

mod connection;
mod fair;
mod fault;
mod fence;
mod keys;
mod master;
mod scripts;
mod server;

pub use fault::Fault;
pub use master::MemoryMaster;
