//! Metrics, recorded through the facade of the `metrics` crate. Without the feature `metrics`,
//! nothing here does anything.

use std::{fmt, sync::Arc};

pub(crate) mod names;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{
    Off as Counter, Off as Gauge, Off as Histogram, describe, register as counter,
    register as gauge, register as histogram,
};
#[cfg(feature = "metrics")]
pub(crate) use on::{Counter, Gauge, Histogram, counter, describe, gauge, histogram};

/// A flag that is `true` if metrics are recorded.
pub(crate) const IS_ON: bool = cfg!(feature = "metrics");

/// A set of metrics, which its clones share. `None` if metrics are not recorded.
///
/// The metrics belong to the recorder that is installed when the set is made. A recorder is code of
/// the program: it may panic, and it may call this crate. So the caller of a method must hold no
/// mutex that protects the state of this crate.
pub(crate) struct Meter<T>(Option<Arc<T>>);

impl<T> Meter<T> {
    pub(crate) fn new(make: impl FnOnce() -> T) -> Self {
        Self(IS_ON.then(|| Arc::new(make())))
    }

    /// Records something in the metrics of the set. Returns the result of `record`, or `None` if
    /// there are no metrics.
    pub(crate) fn record<R>(&self, record: impl FnOnce(&T) -> R) -> Option<R> {
        let metrics = self.0.as_ref().filter(|_| IS_ON)?;
        Some(record(metrics))
    }
}

impl<T> Clone for Meter<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Meter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

/// The series of a metric, one for each value of a label.
pub(crate) struct By<M>(Vec<(&'static str, M)>);

impl<M> By<M> {
    /// Makes the series of each of these `values`, so that a new metric begins at 0.
    pub(crate) fn new(values: &[&'static str], series: impl Fn(&'static str) -> M) -> Self {
        let all = values.iter().map(|&value| (value, series(value)));
        Self(all.collect())
    }

    /// Returns the series of `value`, if that is one of the values.
    pub(crate) fn at(&self, value: &str) -> Option<&M> {
        let mut all = self.0.iter();
        all.find(|(known, _)| *known == value)
            .map(|(_, series)| series)
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
