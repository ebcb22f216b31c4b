//! Metrics, recorded through the facade of the `metrics` crate. Without the feature `metrics`,
//! nothing here does anything.

use std::{fmt, sync::Arc};

use crate::user_code::shielded;

pub(crate) mod names;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod on;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Counter, Gauge, Histogram, counter, describe, gauge, histogram};
#[cfg(feature = "metrics")]
pub(crate) use on::{Counter, Gauge, Histogram, counter, describe, gauge, histogram};

/// A flag that is `true` if metrics are recorded.
pub(crate) const IS_ON: bool = cfg!(feature = "metrics");

/// A set of metrics, which its clones share. `None` if metrics are not recorded, or if the recorder
/// panicked when it was asked for them.
///
/// The metrics belong to the recorder that is installed when the set is made. A recorder is code of
/// the program: it may panic, and it may call this crate. So the caller of a method must hold no
/// mutex that protects the state of this crate.
pub(crate) struct Meter<T>(Option<Arc<T>>);

impl<T> Meter<T> {
    pub(crate) fn new(make: impl FnOnce() -> T) -> Self {
        let mut made = None;
        if IS_ON {
            shielded(|| made = Some(Arc::new(make())));
        }
        Self(made)
    }

    /// Records something in the metrics of the set. Returns the result of `record`, or `None` if it
    /// panicked or if there are no metrics.
    pub(crate) fn record<R>(&self, record: impl FnOnce(&T) -> R) -> Option<R> {
        let metrics = self.0.as_ref().filter(|_| IS_ON)?;
        let mut result = None;
        shielded(|| result = Some(record(metrics)));
        result
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

/// One metric with a series for each value of a label.
pub(crate) struct ByValue<M>(Box<[(&'static str, M)]>);

impl<M> ByValue<M> {
    pub(crate) fn new(values: &[&'static str], make: impl Fn(&'static str) -> M) -> Self {
        let series = values.iter().map(|value| (*value, make(value)));
        Self(series.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, value: &str) -> Option<&M> {
        let mut series = self.0.iter();
        let series = series.find(|(known, _)| *known == value);
        series.map(|(_, metric)| metric)
    }
}

impl<M> Default for ByValue<M> {
    fn default() -> Self {
        Self(Box::default())
    }
}

/// An increment of a gauge, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn new(gauge: Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        shielded(|| self.0.decrement(1.0));
    }
}
