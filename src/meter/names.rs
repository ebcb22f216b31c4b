//! The names of the metrics. They are part of the API: dashboards and alerts use them. The page
//! `docs/operations.md` lists them with their labels.

/// The labels of a metric, with their values.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

/// The name of a metric, and its description for the recorder.
pub(crate) type Name = (&'static str, &'static str);

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
