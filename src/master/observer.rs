//! Log messages and metrics about one master.

use std::sync::Arc;

use tracing::{debug, info, warn};

use super::connect_error::ORIGIN_RIGHTS;
use crate::{
    core::{
        time::rounded,
        vote::{OUTCOMES, quorum::Membership},
    },
    machine::out::MasterEvent,
    meter::{By, Counter, Gauge, counter, gauge, names},
    observe::MASTER,
    panics::shielded,
};

/// Tells the program of the events of one master. Log subscribers and recorders are code of the
/// program, so the caller of a method must hold no mutex that protects the state of this crate.
pub(crate) struct MasterObserver {
    coordinator: Option<Arc<str>>,
    address: Arc<str>,
    votes: By<Counter>,
    reconnects: Counter,
    quarantines: Counter,
    can_vote: Gauge,
}

impl MasterObserver {
    /// Registers the metrics of the master with this `address`, of the coordinator with this
    /// `coordinator`.
    pub(crate) fn new(
        coordinator: Option<Arc<str>>,
        address: Arc<str>,
        membership: Membership,
    ) -> Self {
        let own = coordinator
            .as_deref()
            .map(|coordinator| ("coordinator", coordinator));
        let labels = |more: &[_]| [&[("master", &*address)], more, own.as_slice()].concat();
        let votes = |outcome| counter(names::VOTES, &labels(&[("outcome", outcome)]));
        Self {
            votes: By::new(OUTCOMES, votes),
            reconnects: counter(names::RECONNECTS, &labels(&[])),
            quarantines: counter(names::QUARANTINES, &labels(&[])),
            can_vote: gauge(
                names::CAN_VOTE,
                &labels(&[("membership", membership.as_str())]),
            ),
            coordinator,
            address,
        }
    }

    /// Logs `event`. Counts it, if it is a quarantine, or a connection after the first one. A panic
    /// of a subscriber harms nothing else.
    pub(crate) fn on(&self, event: &MasterEvent) {
        shielded(|| log(self.coordinator.as_deref(), &self.address, event));
        match event {
            MasterEvent::Connected { is_first, .. } if !is_first => self.reconnects.increment(1),
            MasterEvent::Quarantined { .. } => self.quarantines.increment(1),
            _ => {}
        }
    }

    pub(super) fn set_can_vote(&self, can_vote: bool) {
        self.can_vote.set(f64::from(u8::from(can_vote)));
    }

    pub(super) fn voted(&self, outcome: &str) {
        if let Some(votes) = self.votes.at(outcome) {
            votes.increment(1);
        }
    }
}

fn log(coordinator: Option<&str>, master: &str, event: &MasterEvent) {
    match event {
        MasterEvent::AnswersAgain => {
            info!(target: MASTER, coordinator, %master, "master answers again");
        }
        MasterEvent::CallsNobody { error } => {
            warn!(target: MASTER, coordinator, %master, reason = %error, "the master refuses SUBSCRIBE, so waiters of locks with queues poll");
        }
        MasterEvent::Connected { is_news: true, .. } => {
            info!(target: MASTER, coordinator, %master, "connected");
        }
        MasterEvent::Connected { .. } => debug!(target: MASTER, coordinator, %master, "connected"),
        MasterEvent::ConnectsAgain { why } => {
            info!(target: MASTER, coordinator, %master, reason = %why, "connecting again");
        }
        MasterEvent::Down { is_news: true, why } => {
            warn!(target: MASTER, coordinator, %master, reason = %why, "master down");
        }
        MasterEvent::Down { why, .. } => {
            debug!(target: MASTER, coordinator, %master, reason = %why, "master still down");
        }
        MasterEvent::OriginDenied { why } => {
            warn!(target: MASTER, coordinator, %master, reason = %why, "no client would notice if it restarted empty: its user needs the rights {ORIGIN_RIGHTS}, or the server forbids these in scripts");
        }
        MasterEvent::OtherLists { clients, ours } => {
            warn!(target: MASTER, coordinator, %master, %clients, %ours, "these programs have used other lists of masters in the last hour: they and this program may hold one lock at once, so give all programs the same masters under the same addresses (localhost is not 127.0.0.1); `quorlock doctor` tells more, and client names (QUORLOCK_CLIENT_NAME) tell which program it is");
        }
        MasterEvent::Quarantined { left, why } => {
            warn!(target: MASTER, coordinator, %master, remaining = ?rounded(*left), reason = %why, "master may have forgotten locks: it has no vote until they have expired");
        }
        MasterEvent::ReleasesGivenUp => {
            warn!(target: MASTER, coordinator, %master, "too many releases are owed: the oldest are given up, and their locks end with the TTL");
        }
        MasterEvent::ReportsNothing { error } => {
            warn!(target: MASTER, coordinator, %master, reason = %error, "the master refuses CLIENT TRACKING, so waiters poll");
        }
        MasterEvent::TakesLocks { is_news: true } => {
            info!(target: MASTER, coordinator, %master, "master takes locks again");
        }
        MasterEvent::TakesNoLocks { is_news: true, why } => {
            warn!(target: MASTER, coordinator, %master, reason = %why, "master takes no locks");
        }
        MasterEvent::VotesAgain => {
            info!(target: MASTER, coordinator, %master, "master votes again");
        }
        MasterEvent::Changes
        | MasterEvent::TakesLocks { .. }
        | MasterEvent::TakesNoLocks { .. } => {}
    }
}
