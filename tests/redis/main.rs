//! The crate end to end, on real servers. Each test starts its own servers.

#![allow(
    clippy::disallowed_methods,
    reason = "tests with real servers run in real time and spawn tasks"
)]
#![allow(
    clippy::unwrap_used,
    reason = "test helpers fail like tests, but clippy recognizes only tests themselves"
)]

mod change;
mod check;
mod common;
mod connection_name;
mod cures;
mod demotion;
mod endpoints;
mod fenced;
mod foreign_keys;
mod fork;
mod given_streams;
mod idle;
mod impostors;
mod lock_names;
mod login;
mod native_release;
mod out_of_memory;
mod process;
mod programs;
mod quarantine;
mod redisson;
mod rights;
mod script_flush;
#[cfg(feature = "sentinel")]
mod sentinel;
mod suspend;
#[cfg(feature = "tls")]
mod tls;
mod unfit;
mod waiting;
