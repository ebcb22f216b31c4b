//! Rounds, claims, renewals and waiters, which use all masters together. This floor also reads the
//! clock, draws random numbers and spawns the background tasks.

pub(crate) mod acquire;
pub(crate) mod claim;
pub(crate) mod context;
pub(crate) mod live_round;
pub(crate) mod masters;
pub(crate) mod questions;
pub(crate) mod renewer;
pub(crate) mod rights;
pub(crate) mod time;
mod timestamps;
pub(crate) mod waiting;
