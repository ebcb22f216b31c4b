//! Spans, metrics and logs about locks and rounds.

mod metrics;
pub(in crate::driver) mod observed;
pub(in crate::driver) mod observer;
