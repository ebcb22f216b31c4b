//! Clocks, timers and timestamps.

pub(crate) mod clock;
pub(crate) mod timers;
pub(in crate::driver) mod timestamps;
