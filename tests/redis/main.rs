//! The crate end to end, on real servers. Each test starts its own servers.

#![allow(
    clippy::disallowed_methods,
    reason = "tests with real servers run in real time and spawn tasks"
)]
#![allow(
    clippy::unwrap_used,
    reason = "test helpers fail like tests, but clippy recognizes only tests themselves"
)]

mod aside;
mod basics;
mod cancel;
mod common;
mod contention;
mod crowd;
mod durable;
mod fair;
mod fenced;
mod guard;
mod hang;
mod holding;
mod impostors;
mod login;
mod minority;
mod names;
mod oom;
mod order;
mod patience;
mod preflight;
mod process;
mod proxy;
mod redisson;
mod reentrant;
mod restart;
mod rights;
mod runtimes;
#[path = "../support/log.rs"]
mod said;
mod scripts;
#[path = "../support/mod.rs"]
mod support;
mod suspend;
mod tenures;
mod tokens;
mod waiting;
