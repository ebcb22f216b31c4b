//! Tests with hostile, slow and broken masters. Every call returns, and the load stays bounded.
//!
//! Each test runs in a process of its own, because the tests measure the memory, log, panics and
//! tasks of their process. Only one test runs at a time.

#![allow(
    clippy::disallowed_methods,
    reason = "tests with real servers run in real time and spawn tasks"
)]
#![allow(
    clippy::unwrap_used,
    reason = "test helpers fail like tests, but clippy recognizes only tests themselves"
)]

mod close;
mod flood;
mod own_process;
mod releases;
mod replies;
mod slow_master;
mod stall;
mod tiny_pieces;
