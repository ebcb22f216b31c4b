//! The waiters of this coordinator, and what wakes them.

pub(in crate::driver) mod called_waiter;
pub(in crate::driver) mod events;
pub(in crate::driver) mod local_waiters;
