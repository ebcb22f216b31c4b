//! Metrics, recorded through the facade of the `metrics` crate. Without the feature `metrics`,
//! nothing here does anything.

use std::{fmt, sync::Arc};

use crate::user_code::shielded;
use names::Labels;

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

/// One metric, with a series for each combination of the values of its labels.
pub(crate) struct Family<M> {
    name: &'static str,
    register: fn(&'static str, Labels<'_>) -> M,
    labels: Vec<&'static str>,
    /// The series whose values are known in advance. Every other series is looked up when it is
    /// needed.
    known: Vec<(Vec<String>, M)>,
}

impl<M: Clone> Family<M> {
    /// Registers the series for all combinations of `labels`, each with its values. If the values
    /// of a label are not known in advance, registers none.
    pub(crate) fn register(
        register: fn(&'static str, Labels<'_>) -> M,
        name: &'static str,
        labels: &[(&'static str, &[&str])],
    ) -> Self {
        let mut combinations = vec![Vec::new()];
        for (_, values) in labels {
            let longer = combinations.iter().flat_map(|one: &Vec<_>| {
                let values = values.iter();
                values.map(|value| [&one[..], &[*value]].concat())
            });
            combinations = longer.collect();
        }
        let mut family = Self {
            name,
            register,
            labels: labels.iter().map(|(label, _)| *label).collect(),
            known: Vec::new(),
        };
        let owned = |values: &Vec<&str>| values.iter().map(|value| (*value).to_owned()).collect();
        let known = combinations.iter();
        family.known = known
            .map(|values| (owned(values), family.at(values)))
            .collect();
        family
    }

    /// Returns whether all series are registered, because their values are known in advance.
    pub(crate) fn is_registered(&self) -> bool {
        !self.known.is_empty()
    }

    /// Returns the series with these `values` of the labels. Ignores values without a label.
    pub(crate) fn at(&self, values: &[&str]) -> M {
        let mut known = self.known.iter();
        let series =
            known.find(|(known, _)| known.iter().zip(values).all(|(one, other)| one == other));
        series.map_or_else(|| self.look_up(values), |(_, metric)| metric.clone())
    }

    fn look_up(&self, values: &[&str]) -> M {
        let labels = self.labels.iter().copied().zip(values.iter().copied());
        (self.register)(self.name, &labels.collect::<Vec<_>>())
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
