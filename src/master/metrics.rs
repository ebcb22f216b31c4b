//! The metrics of one master.

use crate::{
    core::vote::quorum::{Failure, Vote},
    meter::{ByValue, Counter, Gauge, Meter, counter, gauge, names},
};

/// The votes of one master.
pub(super) struct VoteMetrics(ByValue<Counter>);

impl VoteMetrics {
    /// The values of the label `outcome`.
    const OUTCOMES: [&str; 8] = [
        "closed",
        "disconnected",
        "granted",
        "quarantined",
        "refused",
        "rejected",
        "timed_out",
        "unreachable",
    ];

    /// Registers the metrics of the master with this `address`.
    pub(super) fn register(address: &str) -> Meter<Self> {
        Meter::new(|| {
            let vote =
                |outcome| counter(names::VOTES, &[("master", address), ("outcome", outcome)]);
            Self(ByValue::new(&Self::OUTCOMES, vote))
        })
    }

    pub(super) fn voted(&self, vote: &Vote) {
        let outcome = match vote {
            Vote::Grant => "granted",
            Vote::Refuse(_) => "refused",
            Vote::Fail(Failure::Closed) => "closed",
            Vote::Fail(Failure::Disconnected(_)) => "disconnected",
            Vote::Fail(Failure::Quarantined { .. }) => "quarantined",
            Vote::Fail(Failure::Rejected(_)) => "rejected",
            Vote::Fail(Failure::TimedOut(_)) => "timed_out",
            Vote::Fail(Failure::Unreachable(_)) => "unreachable",
        };
        if let Some(votes) = self.0.get(outcome) {
            votes.increment(1);
        }
    }
}

/// The connections to one master, and its quarantines.
pub(super) struct HealthMetrics {
    reconnects: Counter,
    quarantines: Counter,
    can_vote: Gauge,
}

impl HealthMetrics {
    /// Registers the metrics of the master with this `address`.
    pub(super) fn register(address: &str) -> Meter<Self> {
        Meter::new(|| {
            let master = ("master", address);
            Self {
                reconnects: counter(names::RECONNECTS, &[master]),
                quarantines: counter(names::QUARANTINES, &[master]),
                can_vote: gauge(names::CAN_VOTE, &[master]),
            }
        })
    }

    pub(super) fn reconnected(&self) {
        self.reconnects.increment(1);
    }

    pub(super) fn quarantined(&self) {
        self.quarantines.increment(1);
    }

    pub(super) fn set_can_vote(&self, can_vote: bool) {
        self.can_vote.set(f64::from(u8::from(can_vote)));
    }
}
