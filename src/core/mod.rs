//! The rules of the algorithm. The code here uses no I/O, no clock, no async code and no global
//! randomness.
//!
//! Functions get the time as `now`, randomness as a number, and a master's answer as a
//! [`Vote`](vote::Vote). Each function depends only on its arguments. So tables and
//! property tests can check it.
//!
//! ```text
//!   name ──┐
//!   lease ─┴─> command ──> (one master) ──> Reply ──> Vote
//!                                                      │
//!   claim <── effect <── round <── quorum <─────────────┘
//! ```
//!
//! | Part | Contents |
//! |---|---|
//! | `kind` | what differs between the kinds of locks |
//! | `protocol` | names and identities, commands to masters, and the votes in replies |
//! | `vote` | votes, majorities and rounds |
//! | `time` | TTL, drift and validity, the times of renewals, timeouts, and outages |
//! | `wait` | the wait before another attempt, the order of waiters, and whether a waiter can win |
//! | `view` | what programs see of locks, of their waiters and of masters |
//! | `restart` | when a master that may have lost locks may vote again |
//! | `hash` | a hash of texts that is the same in all programs |
//! | `config` | the settings of a coordinator |
//! | `config_error` | why a setting or a name is refused |
//! | `error` | the errors of calls |
//! | `reason` | why a lock was not acquired |

pub(crate) mod config;
pub(crate) mod config_error;
pub(crate) mod error;
pub(crate) mod hash;
pub(crate) mod kind;
pub(crate) mod protocol;
pub(crate) mod reason;
pub(crate) mod restart;
pub(crate) mod time;
pub(crate) mod view;
pub(crate) mod vote;
pub(crate) mod wait;
