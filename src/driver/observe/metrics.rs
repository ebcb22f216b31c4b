//! The metrics of a coordinator about its locks and rounds.

use std::time::Duration;

use crate::{
    core::{
        kind::{
            command::Verb,
            name::{Kind, Resource},
        },
        view::lock_state::LostReason,
        vote::round::Outcome,
    },
    meter::{
        ByValue, Counted, Counter, Gauge, Histogram, Meter, counter, describe, gauge, histogram,
        names::{self, Labels},
    },
};

/// The metrics of a coordinator about its locks and rounds.
pub(crate) struct LockMetrics {
    waits: Family<Histogram>,
    holds: Family<Histogram>,
    losses: Family<Counter>,
    waiters: Family<Gauge>,
    guards: Family<Gauge>,
    /// One entry for each value of the label `round`.
    rounds: ByValue<RoundMetrics>,
    renewals: ByValue<Counter>,
}

/// The reasons for losses.
const REASONS: [&str; 3] = ["disowned", "expired", "renewal_limit"];

/// The metrics of the rounds that have the same verb.
struct RoundMetrics {
    time: Histogram,
    outcomes: ByValue<Counter>,
}

/// A metric of locks, with a series for each kind of lock and for each value of one more label.
struct Family<M> {
    name: &'static str,
    register: fn(&'static str, Labels<'_>) -> M,
    /// The label beside `kind`. Empty if there is none.
    label: &'static str,
    /// The series by kind and value. Empty if the names of locks are a label as well. Then there
    /// may be very many series, and each is looked up when it is needed.
    series: ByValue<ByValue<M>>,
}

impl LockMetrics {
    /// Registers the metrics. `shows_names` says whether the names of locks are a label.
    pub(crate) fn register(shows_names: bool) -> Meter<Self> {
        Meter::new(|| {
            describe();
            let outcomes = [
                "acquired",
                "closed",
                "contended",
                "dropped",
                "no_quorum",
                "other_kind",
                "quarantined",
                "too_slow",
            ];
            let renewal = |outcome| counter(names::RENEWALS, &[("outcome", outcome)]);
            let kinds: &[_] = if shows_names { &[] } else { &Kind::ALL };
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.word()).collect();
            let kinds = &*kinds;
            let ends = ["left", "lost", "released"];
            Self {
                waits: Family::new(names::WAIT, histogram, kinds, ("outcome", &outcomes)),
                holds: Family::new(names::HOLD, histogram, kinds, ("end", &ends)),
                losses: Family::new(names::LOSSES, counter, kinds, ("reason", &REASONS)),
                waiters: Family::new(names::WAITERS, gauge, kinds, ("", &[""])),
                guards: Family::new(names::GUARDS, gauge, kinds, ("", &[""])),
                rounds: ByValue::new(&["acquire", "extend", "release"], RoundMetrics::register),
                renewals: ByValue::new(&["confirmed", "failed"], renewal),
            }
        })
    }

    /// Records that a call for `lock` took `time`.
    pub(in crate::driver) fn waited(&self, lock: &Resource, outcome: &str, time: Duration) {
        self.waits.at(lock, outcome).record(time.as_secs_f64());
    }

    /// Counts a waiter for `lock`.
    pub(in crate::driver) fn waiter(&self, lock: &Resource) -> Counted {
        Counted::new(self.waiters.at(lock, ""))
    }

    /// Counts a guard of `lock`.
    pub(in crate::driver) fn guard(&self, lock: &Resource) -> Counted {
        // Registers the losses, so that those of a new name begin at zero. An alert on an increase
        // would otherwise miss the first one.
        for reason in REASONS.iter().filter(|_| self.losses.series.is_empty()) {
            let _ = self.losses.at(lock, reason);
        }
        Counted::new(self.guards.at(lock, ""))
    }

    /// Records that a round was over after `time`. A round that is over while it is pending was cut
    /// short: it asked one master only, and that master refused.
    pub(in crate::driver) fn round(&self, verb: Verb, outcome: Outcome, time: Duration) {
        let outcome = match outcome {
            Outcome::Lost => "lost",
            Outcome::Pending => "cut_short",
            Outcome::TooLate => "too_late",
            Outcome::Won => "won",
        };
        let verb = match verb {
            Verb::Acquire => "acquire",
            Verb::Extend => "extend",
            Verb::Release => "release",
            Verb::Break | Verb::Heal | Verb::Inspect | Verb::Probe | Verb::Yield => return,
        };
        let Some(rounds) = self.rounds.get(verb) else {
            return;
        };
        rounds.time.record(time.as_secs_f64());
        if let Some(outcomes) = rounds.outcomes.get(outcome) {
            outcomes.increment(1);
        }
    }

    pub(in crate::driver) fn renewed(&self, is_confirmed: bool) {
        let outcome = if is_confirmed { "confirmed" } else { "failed" };
        if let Some(renewals) = self.renewals.get(outcome) {
            renewals.increment(1);
        }
    }

    /// Records that `lock` was held for `time`, and how this ended.
    pub(in crate::driver) fn held(&self, lock: &Resource, end: &str, time: Duration) {
        self.holds.at(lock, end).record(time.as_secs_f64());
    }

    pub(in crate::driver) fn lost(&self, lock: &Resource, reason: LostReason) {
        let reason = match reason {
            LostReason::Disowned => "disowned",
            LostReason::Expired => "expired",
            LostReason::RenewalLimit => "renewal_limit",
        };
        self.losses.at(lock, reason).increment(1);
    }
}

impl RoundMetrics {
    fn register(round: &'static str) -> Self {
        let outcomes = ["cut_short", "lost", "too_late", "won"];
        Self {
            time: histogram(names::ROUND, &[("round", round)]),
            outcomes: ByValue::new(&outcomes, |outcome| {
                counter(names::ROUNDS, &[("round", round), ("outcome", outcome)])
            }),
        }
    }
}

impl<M: Clone> Family<M> {
    fn new(
        name: &'static str,
        register: fn(&'static str, Labels<'_>) -> M,
        kinds: &[&'static str],
        (label, values): (&'static str, &[&'static str]),
    ) -> Self {
        let mut family = Self {
            name,
            register,
            label,
            series: ByValue::default(),
        };
        let of_kind = |kind| ByValue::new(values, |value| family.one(kind, value, None));
        family.series = ByValue::new(kinds, of_kind);
        family
    }

    /// Returns the series for the kind of `lock` and for `value`, the value of the second label.
    fn at(&self, lock: &Resource, value: &str) -> M {
        let kind = lock.kind().word();
        let series = self.series.get(kind);
        let known = series.and_then(|series| series.get(value)).cloned();
        known.unwrap_or_else(|| self.one(kind, value, Some(lock.name())))
    }

    fn one(&self, kind: &str, value: &str, lock: Option<&str>) -> M {
        let value = (!self.label.is_empty()).then_some(value);
        let labels = [("kind", Some(kind)), (self.label, value), ("lock", lock)];
        let labels = labels.into_iter();
        let labels: Vec<_> = labels
            .filter_map(|(label, value)| Some((label, value?)))
            .collect();
        (self.register)(self.name, &labels)
    }
}
