//! Tests of the public API, on memory masters and with a paused clock. The clock advances whenever
//! all tasks wait.
//!
//! Times are exact: many tests assert the millisecond at which something happens.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests read the clock, spawn tasks, let time pass, and end when something is wrong"
)]

mod acquire;
mod break_held;
mod client_name;
mod close;
mod config;
mod connection;
mod crowd;
mod detach;
mod errors;
mod executors;
mod extend;
mod fair;
mod faults;
mod fenced;
mod groups;
mod heal;
mod health;
mod hopeless_waiters;
mod latency;
mod links;
mod log;
mod loss;
#[cfg(feature = "metrics")]
mod metrics;
mod min_hold;
mod old_masters;
mod owners;
mod pending_releases;
mod quarantine;
mod read_write;
#[cfg(feature = "metrics")]
mod recorder;
mod renewal;
mod retry;
mod run;
mod semaphore;
mod several;
mod shares;
mod slots;
mod spans;
mod storm;
mod tuning;
mod unpolled_futures;
mod user_code;
mod waiting;
mod world;
