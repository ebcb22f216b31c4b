//! The rules, and nothing else: no I/O, no clock, no async, no global randomness.
//!
//! Time comes in as `now`, randomness as a number, and what a master said as a [`Vote`](quorum::Vote). Everything
//! here is a total function of its arguments, so tables and laws can pin it down.
//!
//! ```text
//!   name ──┐
//!   lease ─┼─> command ──> (one master) ──> Reply ──> Vote
//!   retry  │                                           │
//!          └─────────────── round <── quorum <─────────┘
//! ```

pub(crate) mod ballot;
pub(crate) mod chances;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "only real masters are sent words")
)]
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod config_error;
pub(crate) mod effect;
pub(crate) mod held_report;
pub(crate) mod identity;
pub(crate) mod inspection;
pub(crate) mod lease;
pub(crate) mod lock_state;
pub(crate) mod master_set;
pub(crate) mod name;
pub(crate) mod quorum;
pub(crate) mod refused;
pub(crate) mod renewal;
mod reply;
mod report;
pub(crate) mod restart;
pub(crate) mod retry;
pub(crate) mod round;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "only real masters are sent words")
)]
pub(crate) mod script;
pub(crate) mod timeout;
pub(crate) mod votes;
pub(crate) mod wait;
pub(crate) mod wait_order;
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "only real masters are sent words")
)]
pub(crate) mod words;
