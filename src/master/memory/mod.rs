//! Masters in this process. They run the same scripts as servers, and tests can inject faults.

mod clock;
pub(super) mod connection;
pub(crate) mod connections;
mod fault;
pub(crate) mod keys;
mod lua;
mod master;
pub(crate) mod server;

pub use fault::Fault;
pub use master::MemoryMaster;
