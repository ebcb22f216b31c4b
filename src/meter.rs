//! Metrics, recorded through the facade of the `metrics` crate. Without the feature `metrics`, this
//! module does nothing.
//!
//! A metric belongs to the recorder that is installed when the metric is registered. A recorder is
//! code of the program: it may panic, and it may call this crate. So whoever records something must
//! hold no mutex that protects the state of this crate.

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{
    Off as Counter, Off as Gauge, Off as Histogram, register as counter, register as gauge,
    register as histogram,
};
#[cfg(feature = "metrics")]
pub(crate) use on::{Counter, Gauge, Histogram, counter, gauge, histogram};

pub(crate) const IS_ON: bool = cfg!(feature = "metrics");

/// The series of a metric, one for each value of a label. Without the feature `metrics`, there are
/// no series.
pub(crate) struct By<M>(Vec<(&'static str, M)>);

impl<M> By<M> {
    /// Makes the series of each of these `values`, so that a new metric begins at 0.
    pub(crate) fn new(values: &[&'static str], series: impl Fn(&'static str) -> M) -> Self {
        let values = values.iter().filter(|_| IS_ON);
        let all = values.map(|&value| (value, series(value)));
        Self(all.collect())
    }

    /// Returns the series of `value`, if that is one of the values.
    pub(crate) fn at(&self, value: &str) -> Option<&M> {
        let mut all = self.0.iter();
        all.find(|(known, _)| *known == value)
            .map(|(_, series)| series)
    }
}

impl<M> By<By<M>> {
    /// Registers the series of each pair of values of two labels. Each label comes with its values.
    pub(crate) fn of_both(
        register: impl Fn(Name, Labels<'_>) -> M,
        name: Name,
        (first, firsts): (&'static str, &[&'static str]),
        (second, seconds): (&'static str, &[&'static str]),
    ) -> Self {
        let of = |one, other| register(name, &[(first, one), (second, other)]);
        Self::new(firsts, |one| By::new(seconds, |other| of(one, other)))
    }

    /// Returns the series for a value of the first label and a value of the second, if both are
    /// known.
    pub(crate) fn at_both(&self, first: &str, second: &str) -> Option<&M> {
        self.at(first)?.at(second)
    }
}

/// Adds 1 to a gauge until this value is dropped.
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// The labels of a metric, with their values.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

/// The name of a metric, and its description for the recorder.
pub(crate) type Name = (&'static str, &'static str);

/// The metrics. Their names are part of the API: dashboards and alerts use them. The page
/// `docs/operations.md` lists them with their labels.
pub(crate) mod names {
    use super::Name;

    pub(crate) const LOSSES: Name = (
        "quorlock_losses_total",
        "Locks that were lost while a guard lived",
    );
    pub(crate) const QUARANTINES: Name = (
        "quorlock_quarantines_total",
        "Times that a master may have forgotten locks, and lost its vote for a while",
    );
    pub(crate) const RECONNECTS: Name = (
        "quorlock_reconnects_total",
        "Connections to a master after the first one",
    );
    pub(crate) const RENEWALS: Name = (
        "quorlock_renewals_total",
        "Renewals of held locks in the background",
    );
    pub(crate) const ROUNDS: Name = (
        "quorlock_rounds_total",
        "Questions to all masters, by outcome",
    );
    pub(crate) const VOTES: Name = (
        "quorlock_votes_total",
        "Answers of a master, or the reasons for their absence",
    );

    pub(crate) const CAN_VOTE: Name = (
        "quorlock_master_can_vote",
        "1 if the master is connected, has a vote and takes locks",
    );
    pub(crate) const GUARDS: Name = ("quorlock_guards", "Guards that exist");
    pub(crate) const WAITERS: Name = ("quorlock_waiters", "Calls that wait for a lock");

    pub(crate) const HOLD: Name = ("quorlock_hold_seconds", "Time for which a lock was held");
    pub(crate) const ROUND: Name = (
        "quorlock_round_seconds",
        "Time from the start of a round to its decision",
    );
    pub(crate) const WAIT: Name = (
        "quorlock_wait_seconds",
        "Time from the call for a lock to its result",
    );
}

/// The metrics of the `metrics` crate.
#[cfg(feature = "metrics")]
mod on {
    pub(crate) use metrics::{Counter, Gauge, Histogram};
    use metrics::{Label, Unit, describe_counter, describe_gauge, describe_histogram};

    use super::{Labels, Name};

    pub(crate) fn counter((name, text): Name, labels: Labels<'_>) -> Counter {
        describe_counter!(name, text);
        metrics::counter!(name, owned(labels))
    }

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
}

/// Metrics that record nothing, for builds without the feature `metrics`.
#[cfg(not(feature = "metrics"))]
mod off {
    use super::{Labels, Name};

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
}
