//! Masters in this process. They do in Rust what servers do with the Lua scripts, and tests can
//! inject faults.

pub(super) mod connection;
mod fair;
mod fault;
mod fence;
mod inspect;
pub(super) mod keys;
mod master;
pub(super) mod probe;
mod scripts;
pub(super) mod server;

pub use fault::Fault;
pub use master::MemoryMaster;
