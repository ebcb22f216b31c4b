//! Runs the real program against real masters.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

#[path = "../../../examples/support/server.rs"]
mod server;

mod bench;
mod break_lock;
#[cfg(feature = "tls")]
#[path = "../../../tests/support/certificates.rs"]
mod certificates;
mod crowd;
mod doctor;
mod exits;
mod job_control;
mod json;
mod killed;
mod lost;
mod output;
mod passwords;
mod recipes;
mod screen;
#[cfg(feature = "sentinel")]
mod sentinel;
#[cfg(feature = "sentinel")]
#[path = "../../../tests/support/sentinels.rs"]
mod sentinels;
mod signals;
mod sources;
mod starts;
mod startup;
mod status;
mod support;
mod terminal;
mod texts;
#[cfg(feature = "tls")]
mod tls;
