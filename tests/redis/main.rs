//! The crate end to end, on real servers: each test starts its own.

#![allow(
    clippy::disallowed_methods,
    reason = "real servers live in real time, and tests spawn tasks"
)]
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests fail like tests, and clippy only knows tests by their attribute"
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
