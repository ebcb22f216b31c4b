//! The rules for waiting: which waiter's turn it is, and when that waiter asks for the lock.
//!
//! | Part | Answers |
//! |---|---|
//! | `wait_order` | which waiter of a process has its turn, if the lock is a mutex or a reentrant lock |
//! | `contest` | which masters a waiter asks in its turn, when it gives way, and when it asks again |
//! | `pauses` | how long a waiter waits after an attempt that failed, and the random delays |
//! | `queued` | when a waiter in the queues of a lock asks, with which ticket, and whether it steps aside |
//! | `history` | what a process remembers of a lock, and when and how long it gives way to other processes |
//!
//! `src/machine/waiters.rs` has the waiters themselves, and what wakes them.

pub(crate) mod contest;
pub(crate) mod history;
pub(crate) mod pauses;
pub(crate) mod queued;
pub(crate) mod wait_order;
