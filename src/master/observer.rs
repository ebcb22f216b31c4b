//! Log messages and metrics about one master.

use std::{sync::Arc, time::Duration};

use tracing::{debug, info, warn};

use super::dial_error::origin_rights;
use crate::{
    core::vote::{Failure, Vote, lists::Membership},
    log::MASTER,
    meter::{Counter, Family, Gauge, Meter, counter, gauge, names},
    user_code::shielded,
};

/// Tells the program of the events of one master. Log subscribers and recorders are code of the
/// program, so the caller of a method must hold no mutex that protects the state of this crate.
#[derive(Clone, Debug)]
pub(crate) struct MasterObserver {
    address: Arc<str>,
    metrics: Meter<MasterMetrics>,
}

/// Something that happened to a master.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "few of these can happen to a memory master")
)]
pub(crate) enum MasterEvent<'a> {
    /// The first answer after an outage in which connections were of no use.
    AnswersAgain,
    /// The master refused a subscription.
    CallsNobody { error: &'a str },
    /// A dial succeeded. It is no news if the outage goes on.
    Connected { is_news: bool },
    /// The master lost its keys. A new connection finds out which locks are lost.
    ConnectsAgain { why: &'a str },
    /// A dial failed, or a connection broke. It is news if an outage begins.
    Down { is_news: bool, why: &'a str },
    /// A restart will begin a quarantine.
    NotDurable { why: &'a str },
    /// The user of this program may not read the key that shows restarts.
    OriginDenied { why: &'a str },
    /// The master may have forgotten locks.
    Quarantined { left: Duration, why: &'a str },
    /// Too many releases were owed.
    ReleasesGivenUp,
    /// The master refused to report releases.
    ReportsNothing { error: &'a str },
    /// The cause of an error has gone.
    TakesLocks,
    /// The master answers with an error.
    TakesNoLocks { why: &'a str },
    /// A quarantine has ended.
    VotesAgain,
}

impl MasterObserver {
    /// Registers the metrics of the master with this `address`.
    pub(crate) fn new(address: Arc<str>, membership: Membership) -> Self {
        Self {
            metrics: Meter::new(|| MasterMetrics::register(&address, membership)),
            address,
        }
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Logs `event`. Counts it, if it is a quarantine.
    pub(crate) fn on(&self, event: MasterEvent<'_>) {
        shielded(|| log(&self.address, event));
        if let MasterEvent::Quarantined { .. } = event {
            self.metrics
                .record(|metrics| metrics.quarantines.increment(1));
        }
    }

    /// Counts a connection after the first one.
    pub(super) fn reconnected(&self) {
        self.metrics
            .record(|metrics| metrics.reconnects.increment(1));
    }

    pub(super) fn set_can_vote(&self, can_vote: bool) {
        let value = f64::from(u8::from(can_vote));
        self.metrics.record(|metrics| metrics.can_vote.set(value));
    }

    /// Counts a vote.
    pub(super) fn voted(&self, vote: &Vote) {
        self.metrics.record(|metrics| {
            let votes = metrics.votes.at(&[&self.address, outcome(vote)]);
            votes.increment(1);
        });
    }
}

fn log(master: &str, event: MasterEvent<'_>) {
    match event {
        MasterEvent::AnswersAgain => info!(target: MASTER, %master, "master answers again"),
        MasterEvent::CallsNobody { error } => {
            warn!(target: MASTER, %master, %error, "the master calls no waiter of a fair lock: waiters poll");
        }
        MasterEvent::Connected { is_news: true } => info!(target: MASTER, %master, "connected"),
        MasterEvent::Connected { .. } => debug!(target: MASTER, %master, "connected"),
        MasterEvent::ConnectsAgain { why } => {
            info!(target: MASTER, %master, %why, "connecting again");
        }
        MasterEvent::Down { is_news: true, why } => {
            warn!(target: MASTER, %master, %why, "master down");
        }
        MasterEvent::Down { why, .. } => {
            debug!(target: MASTER, %master, %why, "master still down");
        }
        MasterEvent::OriginDenied { why } => {
            let rights = origin_rights!();
            warn!(target: MASTER, %master, %why, "no client would notice if it restarted empty: its user needs the rights {rights}");
        }
        MasterEvent::NotDurable { why } => {
            warn!(target: MASTER, %master, %why, "a restart will cost it its vote for a while: it is not durable");
        }
        MasterEvent::Quarantined { left, why } => {
            warn!(target: MASTER, %master, ?left, %why, "master may have forgotten locks: it has no vote until they have expired");
        }
        MasterEvent::ReleasesGivenUp => {
            warn!(target: MASTER, %master, "too many releases are owed: the oldest are given up, and their locks end with the TTL");
        }
        MasterEvent::ReportsNothing { error } => {
            warn!(target: MASTER, %master, %error, "the master tells no waiter of releases: waiters poll");
        }
        MasterEvent::TakesLocks => info!(target: MASTER, %master, "master takes locks again"),
        MasterEvent::TakesNoLocks { why } => {
            warn!(target: MASTER, %master, %why, "master takes no locks");
        }
        MasterEvent::VotesAgain => info!(target: MASTER, %master, "master votes again"),
    }
}

struct MasterMetrics {
    votes: Family<Counter>,
    reconnects: Counter,
    quarantines: Counter,
    can_vote: Gauge,
}

impl MasterMetrics {
    fn register(address: &str, membership: Membership) -> Self {
        let labels: [(_, &[_]); 2] = [("master", &[address]), ("outcome", &OUTCOMES)];
        let master = [("master", address)];
        Self {
            votes: Family::register(counter, names::VOTES, &labels),
            reconnects: counter(names::RECONNECTS, &master),
            quarantines: counter(names::QUARANTINES, &master),
            can_vote: gauge(
                names::CAN_VOTE,
                &[("master", address), ("membership", membership.word())],
            ),
        }
    }
}

/// The values of the label `outcome` of votes.
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

fn outcome(vote: &Vote) -> &'static str {
    match vote {
        Vote::Grant => "granted",
        Vote::Refuse(_) => "refused",
        Vote::Fail(Failure::Closed) => "closed",
        Vote::Fail(Failure::Disconnected(_)) => "disconnected",
        Vote::Fail(Failure::Quarantined { .. }) => "quarantined",
        Vote::Fail(Failure::Rejected(_)) => "rejected",
        Vote::Fail(Failure::TimedOut(_)) => "timed_out",
        Vote::Fail(Failure::Unreachable(_)) => "unreachable",
    }
}
