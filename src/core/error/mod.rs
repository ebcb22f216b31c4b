//! The errors, one type for each operation.
//!
//! A message includes the message of its cause, so `source` returns `None`.

pub use self::{
    acquire::{AcquireError, Contention},
    held::{ExtendError, LostError, ReleaseError, RunError},
    query::{InspectError, ReadyError},
};
pub use crate::core::config_error::ConfigError;

mod acquire;
mod held;
mod query;
