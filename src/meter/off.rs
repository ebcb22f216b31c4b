//! Metrics that record nothing, for builds without the feature `metrics`.

use super::names::Labels;

pub(crate) fn describe() {}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter;

impl Counter {
    pub(crate) fn increment(self, _by: u64) {}
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauge;

impl Gauge {
    pub(crate) fn increment(self, _by: f64) {}
    pub(crate) fn decrement(self, _by: f64) {}
    pub(crate) fn set(self, _to: f64) {}
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Histogram;

impl Histogram {
    pub(crate) fn record(self, _value: f64) {}
}

pub(crate) fn counter(_name: &'static str, _labels: Labels<'_>) -> Counter {
    Counter
}

pub(crate) fn gauge(_name: &'static str, _labels: Labels<'_>) -> Gauge {
    Gauge
}

pub(crate) fn histogram(_name: &'static str, _labels: Labels<'_>) -> Histogram {
    Histogram
}
