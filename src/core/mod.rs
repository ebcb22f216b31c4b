//! The rules of the algorithm. The code here uses no I/O, no clock, no async code and no global
//! randomness.
//!
//! Functions get the time as `now`, randomness as a number, and a master's answer as a
//! [`Vote`](quorum::Vote). Each function depends only on its arguments. So tables and property
//! tests can check it.
//!
//! ```text
//!   name ──┐
//!   lease ─┼─> command ──> (one master) ──> Reply ──> Vote
//!   retry  │                                           │
//!          └─────────────── round <── quorum <─────────┘
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `config`, `config_error` | the settings of a coordinator, and why some are refused |
//! | `name` | kinds and names of locks, their keys, and the tokens of mutexes |
//! | `client_name` | the names under which coordinators show their locks |
//! | `identity` | the identities by which masters tell attempts apart |
//! | `lease`, `renewal` | TTL, drift and validity, and when a lock is renewed |
//! | `lock_state` | whether a lock that was won is still held |
//! | `command` | the commands that a master executes |
//! | `words`, `script` | the words of a command, and the texts of its script |
//! | `reply`, `refusal_text`, `held_report` | the vote that a reply means |
//! | `quorum`, `votes` | votes, majorities, and the table of who voted what |
//! | `round`, `master_set` | one command to all masters, and its outcome |
//! | `refused`, `wait` | why an attempt did not end in a lock, and how long to wait after it |
//! | `effect` | the consequences of a vote on an extension |
//! | `ballot` | fencing tokens |
//! | `retry`, `timeout` | the delay before the next attempt, and the time for a master's answer |
//! | `wait_order` | the order in which the waiters of one process contend |
//! | `chances` | whether a waiter can win |
//! | `inspection` | what masters say about a lock and its queue |
//! | `restart` | when a master that may have lost locks may vote again |

pub(crate) mod agreed_master;
pub(crate) mod ballot;
pub(crate) mod chances;
pub(crate) mod client_name;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod config_error;
pub(crate) mod effect;
pub(crate) mod episode;
pub(crate) mod false_reports;
pub(crate) mod health;
pub(crate) mod held_report;
pub(crate) mod identity;
pub(crate) mod inspection;
pub(crate) mod lease;
pub(crate) mod lock_state;
pub(crate) mod master_set;
pub(crate) mod name;
pub(crate) mod quorum;
mod refusal_text;
pub(crate) mod refused;
pub(crate) mod renewal;
mod reply;
pub(crate) mod restart;
pub(crate) mod retry;
pub(crate) mod rivalry;
pub(crate) mod round;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod timeout;
pub(crate) mod votes;
pub(crate) mod wait;
pub(crate) mod wait_order;
pub(crate) mod words;
