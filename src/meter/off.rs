//! Metrics that record nothing, for builds without the feature `metrics`.

use super::names::{Labels, Name};

/// A counter, a gauge or a histogram.
#[derive(Clone, Debug)]
pub(crate) struct Off;

impl Off {
    pub(crate) fn increment<T>(&self, _by: T) {}
    pub(crate) fn decrement(&self, _by: f64) {}
    pub(crate) fn set(&self, _to: f64) {}
    pub(crate) fn record(&self, _value: f64) {}
}

pub(crate) fn register(_name: Name, _labels: Labels<'_>) -> Off {
    Off
}
