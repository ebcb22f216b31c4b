//! The futures of attempts, waits, renewals and questions. Each takes turns of the machine. This
//! floor also spawns the background task.

pub(crate) mod acquire;
pub(crate) mod claim;
pub(crate) mod context;
pub(crate) mod masters;
pub(crate) mod questions;
pub(crate) mod renewer;
pub(crate) mod round_handle;
pub(crate) mod time;
mod timestamps;
pub(crate) mod waiter;
