//! The crate as users see it, on memory masters and with a paused clock, which advances whenever
//! all tasks wait.
//!
//! So times are exact: a test asserts after how many milliseconds something happens, not within how
//! many.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests read the clock, spawn tasks, let time pass, and end when something is wrong"
)]

mod acquire;
mod aside;
mod attempts;
mod cancel;
mod close;
mod config;
mod connection;
mod contention;
mod errors;
mod extend;
mod fair;
mod faults;
mod fenced;
mod guard;
mod heal;
mod log;
mod loss;
mod owed;
mod owners;
mod preflight;
mod random;
mod retry;
mod rollback;
mod run;
#[path = "../support/log.rs"]
mod said;
mod unpolled;
mod user_code;
mod waiting;
mod watchdog;
mod world;
