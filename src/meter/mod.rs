//! Metrics, recorded through the facade of the `metrics` crate. Without the feature `metrics`,
//! nothing here does anything.
//!
//! A metric belongs to the recorder that is installed when it is registered. A recorder is code of
//! the program: it may panic, and it may call this crate. So whoever records something must hold no
//! mutex that protects the state of this crate.

pub(crate) mod names;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{
    Off as Counter, Off as Gauge, Off as Histogram, register as counter, register as gauge,
    register as histogram,
};
#[cfg(feature = "metrics")]
pub(crate) use on::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// A flag that is `true` if metrics are recorded.
pub(crate) const IS_ON: bool = cfg!(feature = "metrics");

/// The series of a metric, one for each value of a label. There are none without the feature.
#[derive(Debug)]
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
    /// Returns the series of two values, if they are values of their labels.
    pub(crate) fn at_both(&self, first: &str, second: &str) -> Option<&M> {
        self.at(first)?.at(second)
    }
}

/// An increment of a gauge, until this value is dropped.
#[derive(Debug)]
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
