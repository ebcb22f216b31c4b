//! Spans, metrics and logs about locks and rounds.

pub(crate) mod metrics;
pub(crate) mod observer;
