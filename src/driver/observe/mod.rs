//! Spans, metrics and logs about locks and rounds.

pub(in crate::driver) mod metrics;
pub(in crate::driver) mod observer;
