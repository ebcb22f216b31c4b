//! Keeps the states of all masters of a coordinator, and tells tasks of their changes.

use std::{mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::observer::MasterObserver;
use crate::{
    clock,
    core::{
        time::{OutageLog, tick::Tick},
        view::{DialRefusal, MasterHealth, MasterState},
        vote::{
            quorum::{Membership, Roster},
            server_error::ServerError,
        },
    },
    machine::out::MasterEvent,
    panics::shielded,
};

/// The states of the masters of a coordinator. Each supervisor writes the entry of its master.
#[derive(Debug)]
pub(crate) struct HealthBoard {
    entries: watch::Sender<Box<[Entry]>>,
    observers: Box<[MasterObserver]>,
}

/// The state of one master.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The part of the health that does not depend on the present time.
    known: MasterHealth,
    /// The time at which the state in `known` began.
    since: Tick,
    quarantined_until: Option<Tick>,
    errors: OutageLog,
    last_heard: LastHeard,
}

/// The time when bytes last came from a server. Clones share this time.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastHeard(Arc<Mutex<Option<Tick>>>);

impl LastHeard {
    /// Notes that bytes came at `now`. Connections may report this out of order.
    pub(super) fn hear(&self, now: Tick) {
        let mut last = self.0.lock();
        *last = (*last).max(Some(now));
    }

    pub(super) fn at(&self) -> Option<Tick> {
        *self.0.lock()
    }

    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Entry {
    pub(crate) fn at(&self, now: Tick) -> MasterHealth {
        let left = self.quarantined_until;
        let left = left.map(|until| until.since(now));
        let left = left.filter(|left| !left.is_zero());
        let last_heard = self.last_heard.at();
        MasterHealth {
            age: now.since(self.since),
            quarantine: left,
            quarantine_reason: left.and(self.known.quarantine_reason),
            last_heard: last_heard.map(|heard| now.since(heard)),
            ..self.known.clone()
        }
    }

    /// Returns whether a watcher that has been told of `before` should be told of this entry. A
    /// further failure in the same outage is no news, unless the refusal changes. A further error
    /// of a master that answers with errors is no news.
    pub(crate) fn is_news(&self, before: &Self) -> bool {
        self.known.error.is_some() != before.known.error.is_some()
            || self.known.refusal != before.known.refusal
            || self.connection() != before.connection()
    }

    /// Returns what changes when the state changes, or when a quarantine begins or ends.
    fn connection(&self) -> (mem::Discriminant<MasterState>, Tick, bool) {
        let state = mem::discriminant(&self.known.state);
        (state, self.since, self.quarantined_until.is_some())
    }
}

impl HealthBoard {
    /// Returns a board for the masters of the coordinator with this `label`.
    pub(crate) fn new(roster: &Roster, label: Option<&Arc<str>>) -> Self {
        let since = clock::monotonic();
        let entry = |known| Entry {
            known,
            since,
            quarantined_until: None,
            errors: OutageLog::default(),
            last_heard: LastHeard::default(),
        };
        let states = states(roster, label, &MasterState::Connecting);
        let entries = states.map(entry).collect();
        let observer = |(master, membership): (&Arc<str>, Membership)| {
            MasterObserver::new(label.cloned(), master.clone(), membership)
        };
        let observers = roster.members().map(observer);
        Self {
            observers: observers.collect(),
            entries: watch::Sender::new(entries),
        }
    }

    /// Returns the states of the masters of a coordinator whose tasks have ended.
    pub(crate) fn closed_states(roster: &Roster, label: Option<&Arc<str>>) -> Vec<MasterHealth> {
        states(roster, label, &MasterState::Closed).collect()
    }

    /// Returns the states of all masters, in the order in which the masters were configured.
    pub(crate) fn read(&self) -> Vec<MasterHealth> {
        let now = clock::monotonic();
        let entries = self.entries.borrow();
        entries.iter().map(|entry| entry.at(now)).collect()
    }

    pub(super) fn observer(&self, master: usize) -> &MasterObserver {
        &self.observers[master]
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Box<[Entry]>> {
        self.entries.subscribe()
    }

    /// Notes, logs and counts what happened to a master.
    pub(super) fn tell(&self, master: usize, event: &MasterEvent) {
        match event {
            MasterEvent::Closes => self.change(master, MasterState::Closed, |_| ()),
            MasterEvent::Connects {
                round_trip,
                quarantined_until,
            } => self.connected(master, *round_trip, *quarantined_until),
            MasterEvent::Ends { why } => {
                self.change(master, MasterState::Down(why.clone()), |_| ());
            }
            MasterEvent::Quarantined { why, .. } => {
                self.update(master, |entry| entry.known.quarantine_reason = Some(why));
            }
            MasterEvent::TakesLocks => return self.takes_locks(master),
            MasterEvent::TakesNoLocks { error } => return self.takes_no_locks(master, error),
            MasterEvent::VotesAgain => self.update(master, |entry| entry.quarantined_until = None),
            _ => {}
        }
        self.observers[master].on(event);
    }

    /// Notes that a dial succeeded. If `quarantined_until` is set, the master has no vote until
    /// then.
    fn connected(&self, master: usize, round_trip: Duration, quarantined_until: Option<Tick>) {
        // A server that loads its data refuses dials, so it has loaded the data by now.
        let was_loading = |entry: &Entry| {
            let error = entry.known.error.as_deref();
            error.is_some_and(|error| ServerError::of(error) == ServerError::Loading)
        };
        if self.look(master, was_loading) {
            self.takes_locks(master);
        }
        let mut is_first = false;
        self.change(master, MasterState::Connected, |entry| {
            is_first = entry.known.round_trip.is_none();
            entry.known.round_trip = Some(round_trip);
            entry.last_heard.hear(clock::monotonic());
            entry.quarantined_until = quarantined_until;
        });
        if !is_first {
            self.observers[master].reconnected();
        }
    }

    /// Notes that the master answered a command with `error`.
    fn takes_no_locks(&self, master: usize, error: &Arc<str>) {
        let is_known = |entry: &Entry| entry.known.error.as_ref() == Some(error);
        if self.look(master, is_known) {
            return;
        }
        let now = clock::monotonic();
        let mut is_log_worthy = false;
        self.update(master, |entry| {
            entry.known.error = Some(error.clone());
            is_log_worthy = entry.errors.fails(now);
        });
        if is_log_worthy {
            let error = error.clone();
            self.observers[master].on(&MasterEvent::TakesNoLocks { error });
        }
    }

    /// Notes that the cause of the last error has gone.
    fn takes_locks(&self, master: usize) {
        let mut is_log_worthy = false;
        self.update(master, |entry| {
            entry.known.error = None;
            is_log_worthy = entry.errors.works();
        });
        if is_log_worthy {
            self.observers[master].on(&MasterEvent::TakesLocks);
        }
    }

    /// Returns the time when `master` was last heard. The connection to it updates this time.
    pub(super) fn last_heard(&self, master: usize) -> LastHeard {
        self.look(master, |entry| entry.last_heard.clone())
    }

    fn look<T>(&self, master: usize, look: impl FnOnce(&Entry) -> T) -> T {
        look(&self.entries.borrow()[master])
    }

    /// Notes that a dial failed or that a connection broke.
    pub(super) fn down(
        &self,
        master: usize,
        (why, refusal): (&Arc<str>, Option<DialRefusal>),
        failures: u32,
    ) {
        self.change(master, MasterState::Down(why.clone()), |entry| {
            entry.known.failures = failures;
            entry.known.refusal = refusal;
        });
    }

    fn change(&self, master: usize, state: MasterState, more: impl FnOnce(&mut Entry)) {
        let now = clock::monotonic();
        self.update(master, |entry| {
            if mem::discriminant(&entry.known.state) != mem::discriminant(&state) {
                entry.since = now;
            }
            entry.known.state = state;
            entry.known.refusal = None;
            more(entry);
        });
    }

    fn update(&self, master: usize, change: impl FnOnce(&mut Entry)) {
        let mut can_vote = false;
        let change = |entries: &mut Box<[Entry]>| {
            let entry = &mut entries[master];
            change(entry);
            can_vote = entry.at(clock::monotonic()).can_vote();
        };
        // The wakers of tasks that watch, and recorders, are code of the program.
        shielded(|| self.entries.send_modify(change));
        shielded(|| self.observers[master].set_can_vote(can_vote));
    }
}

/// Returns the health of masters in this state about which no more is known.
fn states(
    roster: &Roster,
    label: Option<&Arc<str>>,
    state: &MasterState,
) -> impl Iterator<Item = MasterHealth> {
    roster
        .members()
        .map(move |(master, membership)| MasterHealth {
            label: label.cloned(),
            master: master.clone(),
            membership,
            state: state.clone(),
            age: Duration::ZERO,
            round_trip: None,
            failures: 0,
            quarantine: None,
            quarantine_reason: None,
            error: None,
            last_heard: None,
            refusal: None,
        })
}
