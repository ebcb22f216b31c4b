//! Runs the real program against real masters.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

mod acquire;
mod all_locks;
mod break_lock;
mod crowd;
mod denied;
mod doctor;
mod exits;
mod job_control;
mod json;
mod killed;
mod lost;
mod mistakes;
mod nested;
mod old_masters;
mod output;
mod passwords;
mod plan;
mod read_write;
mod recipes;
mod screen;
mod semaphore;
#[cfg(feature = "sentinel")]
mod sentinel;
mod several;
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
