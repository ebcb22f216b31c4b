//! The blocking API: where its calls may block, and what happens when its handles are dropped.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start threads and sleep, and end when something is wrong"
)]

mod common;
mod contexts;
mod ending;
mod threads;
mod views;
