//! Drives all masters: rounds, claims, renewal, waiting. The only floor that reads a clock or
//! spawns tasks.

mod acquire;
mod aside;
pub(crate) mod claim;
pub(crate) mod clock;
mod deadline;
pub(crate) mod engine;
mod fair;
mod fair_waiters;
mod inspect;
pub(crate) mod live_round;
mod local_waiters;
pub(crate) mod owned_lock;
mod renewer;
pub(crate) mod select;
mod timestamps;
