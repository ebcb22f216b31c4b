//! The rules for waiting: who asks when, and who gives way.
//!
//! | Part | Answers |
//! |---|---|
//! | `wait_order` | whose turn it is among the waiters of a process for a mutex or reentrant lock |
//! | `contender` | when the waiter whose turn it is asks, which master first, when it gives way |
//! | `queued` | when a waiter in the queues of a fair lock asks, and with which ticket |
//! | `chances` | whether a waiter can win, or steps aside |
//! | `rivals`, `polling_rivals` | what is known of clients of other processes |
//! | `false_reports` | which reports of changes to distrust |
//! | `agreed_master` | which master all clients ask first |
//! | `retry` | how long the delays are |
//!
//! `src/driver/waiting/` has the waiters themselves: what wakes them, and their timers.

pub(crate) mod agreed_master;
pub(crate) mod chances;
pub(crate) mod contender;
pub(crate) mod false_reports;
pub(crate) mod polling_rivals;
pub(crate) mod queued;
pub(crate) mod retry;
pub(crate) mod rivals;
pub(crate) mod wait_order;
