//! The metrics of a coordinator about its locks and rounds.

use crate::{
    core::kind::Kind,
    machine::{
        claim::{LEFT, LOST, RELEASED},
        round::{CONFIRMED, CONFIRMED_LATE, FAILED},
    },
    meter::{By, Counter, Gauge, Histogram, counter, gauge, histogram, names},
};

/// The metrics of a coordinator about its locks and rounds. If a metric is about locks, its first
/// label is the kind of lock.
#[derive(Debug)]
pub(super) struct LockMetrics {
    pub(super) waits: By<By<Histogram>>,
    pub(super) holds: By<By<Histogram>>,
    pub(super) losses: By<By<Counter>>,
    pub(super) waiters: By<Gauge>,
    pub(super) guards: By<Gauge>,
    pub(super) round_times: By<Histogram>,
    pub(super) rounds: By<By<Counter>>,
    pub(super) renewals: By<Counter>,
}

impl LockMetrics {
    pub(super) fn register() -> Self {
        let kinds = &Kind::ALL.map(Kind::word);
        Self {
            waits: By::new(kinds, |kind| {
                By::new(WAITS, |outcome| {
                    histogram(names::WAIT, &[("kind", kind), ("outcome", outcome)])
                })
            }),
            holds: By::new(kinds, |kind| {
                By::new(ENDS, |end| {
                    histogram(names::HOLD, &[("kind", kind), ("end", end)])
                })
            }),
            losses: By::new(kinds, |kind| {
                By::new(REASONS, |reason| {
                    counter(names::LOSSES, &[("kind", kind), ("reason", reason)])
                })
            }),
            waiters: By::new(kinds, |kind| gauge(names::WAITERS, &[("kind", kind)])),
            guards: By::new(kinds, |kind| gauge(names::GUARDS, &[("kind", kind)])),
            round_times: By::new(VERBS, |verb| histogram(names::ROUND, &[("round", verb)])),
            rounds: By::new(VERBS, |verb| {
                By::new(ROUNDS, |outcome| {
                    counter(names::ROUNDS, &[("round", verb), ("outcome", outcome)])
                })
            }),
            renewals: By::new(RENEWALS, |outcome| {
                counter(names::RENEWALS, &[("outcome", outcome)])
            }),
        }
    }
}

const ENDS: &[&str] = &[LEFT, LOST, RELEASED];
const REASONS: &[&str] = &["disowned", "expired", "renewal_limit"];
const RENEWALS: &[&str] = &[CONFIRMED, CONFIRMED_LATE, FAILED];
const ROUNDS: &[&str] = &["cut_short", "no_majority", "too_late", "won"];
const VERBS: &[&str] = &["acquire", "extend", "release"];
const WAITS: &[&str] = &[
    "acquired",
    "closed",
    "contended",
    "dropped",
    "no_quorum",
    "other_kind",
    "quarantined",
    "too_slow",
];
