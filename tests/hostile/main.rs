//! The crate beside hostile, slow and broken masters: every call returns, and the load stays
//! bounded.
//!
//! Each test runs in a process of its own, one after the other, so that what a process is measured
//! by (its memory, its log, its panics, its tasks) is the test's alone. `./dev bench hostile` has
//! the long forms.

#![allow(
    clippy::disallowed_methods,
    reason = "real servers live in real time, and tests spawn tasks"
)]
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests fail like tests, and clippy only knows tests by their attribute"
)]

mod all_calls;
mod close;
mod first_attempt;
mod flood;
mod own_process;
mod releases;
mod replies;
#[path = "../support/server.rs"]
mod servers;
mod slow_master;
mod stall;
#[path = "../support/hostile/mod.rs"]
mod support;
mod tiny_pieces;
