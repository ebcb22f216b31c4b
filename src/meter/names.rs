//! The names of the metrics. They are part of the API: dashboards and alerts use them. The page
//! `docs/operations.md` lists them with their labels.

/// The labels of a metric, with their values.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

pub(crate) const LOSSES: &str = "quorlock_losses_total";
pub(crate) const QUARANTINES: &str = "quorlock_quarantines_total";
pub(crate) const RECONNECTS: &str = "quorlock_reconnects_total";
pub(crate) const RENEWALS: &str = "quorlock_renewals_total";
pub(crate) const ROUNDS: &str = "quorlock_rounds_total";
pub(crate) const VOTES: &str = "quorlock_votes_total";

pub(crate) const CAN_VOTE: &str = "quorlock_master_can_vote";
pub(crate) const GUARDS: &str = "quorlock_guards";
pub(crate) const WAITERS: &str = "quorlock_waiters";

pub(crate) const HOLD: &str = "quorlock_hold_seconds";
pub(crate) const ROUND: &str = "quorlock_round_seconds";
pub(crate) const WAIT: &str = "quorlock_wait_seconds";

/// The counters, with their descriptions for the recorder.
#[cfg(feature = "metrics")]
pub(super) const COUNTERS: &[(&str, &str)] = &[
    (LOSSES, "Locks that were lost while a guard lived"),
    (
        QUARANTINES,
        "Times that a master may have forgotten locks, and lost its vote for a while",
    ),
    (RECONNECTS, "Connections to a master after the first one"),
    (RENEWALS, "Renewals of held locks in the background"),
    (ROUNDS, "Questions to all masters, by outcome"),
    (
        VOTES,
        "Answers of a master, or the reasons for their absence",
    ),
];

#[cfg(feature = "metrics")]
pub(super) const GAUGES: &[(&str, &str)] = &[
    (
        CAN_VOTE,
        "1 if the master is connected, has a vote and takes locks",
    ),
    (GUARDS, "Guards that exist"),
    (WAITERS, "Calls that wait for a lock"),
];

/// The histograms. Their unit is the second.
#[cfg(feature = "metrics")]
pub(super) const HISTOGRAMS: &[(&str, &str)] = &[
    (HOLD, "Time for which a lock was held"),
    (ROUND, "Time from the start of a round to its decision"),
    (WAIT, "Time from the call for a lock to its result"),
];
