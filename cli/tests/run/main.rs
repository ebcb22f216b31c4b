//! Runs the real program against real masters.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

#[path = "../../../examples/support/server.rs"]
mod server;

#[cfg(feature = "tls")]
#[path = "../../../tests/support/certificates.rs"]
mod certificates;
mod crowd;
mod exits;
mod killed;
mod lost;
mod output;
mod passwords;
mod recipes;
#[cfg(feature = "sentinel")]
mod sentinel;
#[cfg(feature = "sentinel")]
#[path = "../../../tests/support/sentinels.rs"]
mod sentinels;
mod signals;
mod startup;
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
