//! The errors, one type for each operation.
//!
//! A message includes the message of its cause, so `source` returns `None`.

pub use self::{
    acquire::{AcquireError, BlockingError, Contention},
    held::{DowngradeError, ExtendError, LostError, ReleaseError, RunError},
    questions::{InspectError, ReadyError},
};

mod acquire;
mod held;
mod questions;
