//! The metrics of the `metrics` crate.

pub(crate) use metrics::{Counter, Gauge, Histogram};
use metrics::{Label, Unit, describe_counter, describe_gauge, describe_histogram};

use super::names::{Labels, Name};

/// Returns the series of a counter with `labels`, and registers it.
pub(crate) fn counter((name, text): Name, labels: Labels<'_>) -> Counter {
    describe_counter!(name, text);
    metrics::counter!(name, owned(labels))
}

/// Returns the series of a gauge with `labels`, and registers it.
pub(crate) fn gauge((name, text): Name, labels: Labels<'_>) -> Gauge {
    describe_gauge!(name, text);
    metrics::gauge!(name, owned(labels))
}

/// Returns the series of a histogram of times in seconds with `labels`, and registers it.
pub(crate) fn histogram((name, text): Name, labels: Labels<'_>) -> Histogram {
    describe_histogram!(name, Unit::Seconds, text);
    metrics::histogram!(name, owned(labels))
}

fn owned(labels: Labels<'_>) -> Vec<Label> {
    let labels = labels.iter();
    let labels = labels.map(|(label, value)| Label::new(*label, (*value).to_owned()));
    labels.collect()
}
