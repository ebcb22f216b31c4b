//! Masters in this process. They do in Rust what servers do with the Lua scripts, and tests can
//! inject faults.

mod commands;
pub(super) mod connection;
mod fair;
mod fault;
mod fence;
mod inspect;
pub(super) mod keys;
mod lua;
mod master;
mod patches;
pub(super) mod probe;
mod scripts;
pub(super) mod server;

pub use fault::Fault;
pub use master::MemoryMaster;
