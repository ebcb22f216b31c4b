//! The metrics of the `metrics` crate.

pub(crate) use metrics::{Counter, Gauge, Histogram};
use metrics::{Label, Unit, describe_counter, describe_gauge, describe_histogram};

use super::names::{COUNTERS, GAUGES, HISTOGRAMS, Labels};

/// Tells the recorder what each metric means.
pub(crate) fn describe() {
    for (name, text) in COUNTERS {
        describe_counter!(*name, *text);
    }
    for (name, text) in GAUGES {
        describe_gauge!(*name, *text);
    }
    for (name, text) in HISTOGRAMS {
        describe_histogram!(*name, Unit::Seconds, *text);
    }
}

/// Returns the series of the counter `name` with `labels`, and registers it.
pub(crate) fn counter(name: &'static str, labels: Labels<'_>) -> Counter {
    metrics::counter!(name, owned(labels))
}

/// Does the same for a gauge.
pub(crate) fn gauge(name: &'static str, labels: Labels<'_>) -> Gauge {
    metrics::gauge!(name, owned(labels))
}

/// Does the same for a histogram of times in seconds.
pub(crate) fn histogram(name: &'static str, labels: Labels<'_>) -> Histogram {
    metrics::histogram!(name, owned(labels))
}

fn owned(labels: Labels<'_>) -> Vec<Label> {
    let labels = labels.iter();
    let labels = labels.map(|(label, value)| Label::new(*label, (*value).to_owned()));
    labels.collect()
}
