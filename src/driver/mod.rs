//! Drives all masters: rounds, claims, renewal and waiting. This floor also reads the clock, draws
//! random numbers and spawns the background tasks.

mod acquire;
mod attempt;
pub(crate) mod claim;
pub(crate) mod clock;
mod contend;
pub(crate) mod context;
mod deadline;
pub(crate) mod denied;
pub(crate) mod engine;
mod fair;
mod fair_waiters;
pub(crate) mod health_events;
mod hold;
pub(crate) mod inspect;
pub(crate) mod live_round;
mod local_waiters;
pub(crate) mod masters;
mod metrics;
mod observed;
pub(crate) mod owned_lock;
mod pending_releases;
mod quorum_log;
mod reachability;
mod ready;
mod renewer;
mod schedule;
pub(crate) mod select;
mod shared;
mod signal;
mod span;
mod supervisors;
pub(crate) mod timers;
mod timestamps;
pub(crate) mod watched;
