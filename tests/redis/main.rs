//! The crate end to end, on real servers. Each test starts its own servers.

#![allow(
    clippy::disallowed_methods,
    reason = "tests with real servers run in real time and spawn tasks"
)]
#![allow(
    clippy::unwrap_used,
    reason = "test helpers fail like tests, but clippy recognizes only tests themselves"
)]

mod basics;
mod cancel;
#[path = "../support/captured_log.rs"]
mod captured_log;
#[cfg(feature = "tls")]
#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/child_output.rs"]
mod child_output;
mod client_name;
mod common;
mod contention;
mod demotion;
mod durable;
mod endpoints;
mod fair;
mod fair_order;
mod fenced;
mod foreign_keys;
mod hang;
mod hopeless_waiters;
mod impostors;
mod lock_names;
mod login;
mod lost_wake_ups;
mod native_release;
#[path = "../support/on_event.rs"]
mod on_event;
mod out_of_memory;
#[path = "../support/polled.rs"]
mod polled;
mod preflight;
mod process;
#[path = "../support/proxy.rs"]
mod proxy;
mod redisson;
mod reentrant;
mod renewal;
mod restart;
mod restart_guard;
mod rights;
mod runtimes;
mod script_flush;
#[cfg(feature = "sentinel")]
mod sentinel;
#[cfg(feature = "sentinel")]
#[path = "../support/sentinels.rs"]
mod sentinels;
mod skewed_clocks;
#[path = "../support/mod.rs"]
mod support;
mod suspend;
#[cfg(feature = "tls")]
mod tls;
mod token_log;
mod unfit;
mod waiter_processes;
mod waiter_timeout;
mod waiting;

#[cfg(any(feature = "sentinel", feature = "tls"))]
use support::server;
