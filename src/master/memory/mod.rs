//! Masters in this process. They run the same scripts as servers, and tests can inject faults.

pub(super) mod connection;
mod fault;
pub(super) mod keys;
mod lua;
mod master;
pub(super) mod probe;
pub(super) mod server;

pub use fault::Fault;
pub use master::MemoryMaster;
