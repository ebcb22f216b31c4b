//! Renews held locks.

pub(in crate::driver) mod renewer;
