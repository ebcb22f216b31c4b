//! The metrics of a coordinator about its locks and rounds.

use crate::{
    core::protocol::kind::Kind,
    meter::{Counter, Family, Gauge, Histogram, Meter, counter, describe, gauge, histogram, names},
};

/// The metrics of a coordinator about its locks and rounds. The first label of a metric of locks is
/// the kind, and the last one may be the name.
pub(super) struct LockMetrics {
    pub(super) waits: Family<Histogram>,
    pub(super) holds: Family<Histogram>,
    pub(super) losses: Family<Counter>,
    pub(super) waiters: Family<Gauge>,
    pub(super) guards: Family<Gauge>,
    pub(super) round_times: Family<Histogram>,
    pub(super) rounds: Family<Counter>,
    pub(super) renewals: Family<Counter>,
}

impl LockMetrics {
    /// Registers the metrics. `shows_names` says whether the names of locks are a label. There may
    /// be very many names, so then the series of locks are registered when they are needed.
    pub(super) fn register(shows_names: bool) -> Meter<Self> {
        Meter::new(|| {
            describe();
            let kinds = Kind::ALL.map(Kind::word);
            let name: &[(_, &[_])] = if shows_names { &[("lock", &[])] } else { &[] };
            let of_locks = |more: &[_]| [&[("kind", &kinds[..])], more, name].concat();
            let (waits, holds) = ([("outcome", WAITS)], [("end", ENDS)]);
            let (waits, holds) = (of_locks(&waits), of_locks(&holds));
            let losses = of_locks(&[("reason", REASONS)]);
            let rounds = [("round", VERBS), ("outcome", ROUNDS)];
            Self {
                waits: Family::register(histogram, names::WAIT, &waits),
                holds: Family::register(histogram, names::HOLD, &holds),
                losses: Family::register(counter, names::LOSSES, &losses),
                waiters: Family::register(gauge, names::WAITERS, &of_locks(&[])),
                guards: Family::register(gauge, names::GUARDS, &of_locks(&[])),
                round_times: Family::register(histogram, names::ROUND, &rounds[..1]),
                rounds: Family::register(counter, names::ROUNDS, &rounds),
                renewals: Family::register(counter, names::RENEWALS, &[("outcome", RENEWALS)]),
            }
        })
    }
}

const ENDS: &[&str] = &["left", "lost", "released"];
pub(super) const REASONS: &[&str] = &["disowned", "expired", "renewal_limit"];
const RENEWALS: &[&str] = &["confirmed", "failed"];
const ROUNDS: &[&str] = &["cut_short", "lost", "too_late", "won"];
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
