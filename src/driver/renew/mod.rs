//! Renews held locks.

pub(in crate::driver) mod renewer;
pub(in crate::driver) mod schedule;
