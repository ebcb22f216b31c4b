//! Keeps the states of all masters of a coordinator, and tells tasks of their changes.

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::metrics::HealthMetrics;
use crate::{
    core::health::{MasterHealth, MasterState},
    meter::Meter,
    user_code::shielded,
};

/// The states of all masters. Each supervisor writes the entry of its master.
#[derive(Clone, Debug)]
pub(crate) struct HealthBoard {
    now: fn() -> Instant,
    entries: Arc<watch::Sender<Box<[Entry]>>>,
    /// The metrics of each master.
    metrics: Arc<[Meter<HealthMetrics>]>,
}

/// The state of one master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    master: Arc<str>,
    state: MasterState,
    /// The time at which this state began.
    since: Instant,
    round_trip: Option<Duration>,
    failures: u32,
    quarantined_until: Option<Instant>,
}

impl Entry {
    pub(crate) fn at(&self, now: Instant) -> MasterHealth {
        let left = self.quarantined_until;
        let left = left.map(|until| until.saturating_duration_since(now));
        MasterHealth {
            master: self.master.clone(),
            state: self.state.clone(),
            age: now.saturating_duration_since(self.since),
            round_trip: self.round_trip,
            failures: self.failures,
            quarantine: left.filter(|left| !left.is_zero()),
        }
    }

    /// Returns whether a watcher that has been told of `before` should be told of this entry. The
    /// failures of one outage are one event.
    pub(crate) fn is_news(&self, before: &Self) -> bool {
        let kind = |entry: &Self| {
            let is_quarantined = entry.quarantined_until.is_some();
            (mem::discriminant(&entry.state), entry.since, is_quarantined)
        };
        kind(self) != kind(before)
    }
}

impl HealthBoard {
    pub(crate) fn new(masters: &[Arc<str>], now: fn() -> Instant) -> Self {
        let since = now();
        let entry = |master: &Arc<str>| Entry {
            master: master.clone(),
            state: MasterState::Connecting,
            since,
            round_trip: None,
            failures: 0,
            quarantined_until: None,
        };
        let entries = masters.iter().map(entry).collect();
        let metrics = masters
            .iter()
            .map(|address| HealthMetrics::register(address));
        Self {
            now,
            entries: Arc::new(watch::Sender::new(entries)),
            metrics: metrics.collect(),
        }
    }

    /// Returns the states of all masters, in the order in which the masters were configured.
    pub(crate) fn read(&self) -> Vec<MasterHealth> {
        let now = (self.now)();
        let entries = self.entries.borrow();
        entries.iter().map(|entry| entry.at(now)).collect()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Box<[Entry]>> {
        self.entries.subscribe()
    }

    /// Notes that a dial succeeded. If `quarantined_until` is set, the master has no vote until
    /// then.
    pub(super) fn connected(
        &self,
        master: usize,
        round_trip: Duration,
        quarantined_until: Option<Instant>,
    ) {
        let mut is_first = false;
        self.change(master, MasterState::Connected, |entry| {
            is_first = entry.round_trip.is_none();
            entry.round_trip = Some(round_trip);
            entry.quarantined_until = quarantined_until;
        });
        if !is_first {
            self.record(master, HealthMetrics::reconnected);
        }
    }

    /// Notes that the master may have forgotten locks.
    pub(super) fn quarantined(&self, master: usize) {
        self.record(master, HealthMetrics::quarantined);
    }

    /// Notes that a quarantine has ended.
    pub(super) fn votes_again(&self, master: usize) {
        self.update(master, |entry| entry.quarantined_until = None);
    }

    /// Notes that a dial failed or that a connection broke.
    pub(super) fn down(&self, master: usize, why: &Arc<str>, failures: u32) {
        self.change(master, MasterState::Down(why.clone()), |entry| {
            entry.failures = failures;
        });
    }

    pub(super) fn closed(&self, master: usize) {
        self.change(master, MasterState::Closed, |_| ());
    }

    fn change(&self, master: usize, state: MasterState, more: impl FnOnce(&mut Entry)) {
        let now = (self.now)();
        self.update(master, |entry| {
            if mem::discriminant(&entry.state) != mem::discriminant(&state) {
                entry.since = now;
            }
            entry.state = state;
            more(entry);
        });
    }

    fn update(&self, master: usize, change: impl FnOnce(&mut Entry)) {
        let mut can_vote = false;
        shielded(|| {
            self.entries.send_modify(|entries| {
                if let Some(entry) = entries.get_mut(master) {
                    change(entry);
                    can_vote = entry.at((self.now)()).can_vote();
                }
            });
        });
        self.record(master, |metrics| metrics.set_can_vote(can_vote));
    }

    fn record(&self, master: usize, record: impl FnOnce(&HealthMetrics)) {
        if let Some(metrics) = self.metrics.get(master) {
            metrics.record(record);
        }
    }
}
