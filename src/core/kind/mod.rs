//! The kinds of locks: what is particular to each of them.
//!
//! [`Kind`](super::protocol::kind::Kind) lists the kinds.

pub(crate) mod example;
pub(crate) mod fair;
mod mutex;
mod read_write;
mod reentrant;
mod semaphore;
pub(crate) mod spec;
pub(crate) mod table;
