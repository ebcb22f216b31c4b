//! What is known of the state of a master.

use std::{mem, sync::Arc, time::Duration};

use super::{Cx, Session};
use crate::{
    core::{
        restart::{DataLoss, Sign},
        time::{OutageLog, Tick},
        view::{DialRefusal, MasterHealth, MasterState},
    },
    machine::{Machine, out::MasterEvent},
};

/// What a session knows of the state of its master.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    /// The part that does not depend on the present time.
    pub(super) known: MasterHealth,
    /// The time at which the state in `known` began.
    since: Tick,
    pub(super) quarantined_until: Option<Tick>,
    errors: OutageLog,
    /// The time when bytes last came from the master.
    pub(crate) last_heard: Option<Tick>,
}

impl Health {
    pub(super) fn new(known: MasterHealth, since: Tick) -> Self {
        Self {
            known,
            since,
            quarantined_until: None,
            errors: OutageLog::default(),
            last_heard: None,
        }
    }

    /// Notes how many dials failed and connections broke in this outage, and whether all dials will
    /// fail.
    pub(crate) fn note_outage(&mut self, failures: u32, refusal: Option<DialRefusal>) {
        (self.known.failures, self.known.refusal) = (failures, refusal);
    }

    pub(super) fn change(&mut self, state: MasterState, now: Tick) {
        if mem::discriminant(&self.known.state) != mem::discriminant(&state) {
            self.since = now;
        }
        self.known.state = state;
        self.known.refusal = None;
    }

    pub(crate) fn at(&self, now: Tick) -> MasterHealth {
        let quarantine = self.quarantine_left(now);
        MasterHealth {
            age: now.since(self.since),
            quarantine,
            quarantine_reason: quarantine.and(self.known.quarantine_reason),
            last_heard: self.last_heard.map(|heard| now.since(heard)),
            ..self.known.clone()
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.known.state == MasterState::Connected
    }

    pub(super) fn is_dialled(&self) -> bool {
        self.known.state != MasterState::Connecting
    }

    pub(crate) fn has_connected(&self) -> bool {
        self.known.round_trip.is_some()
    }

    /// Returns how long after `now` the quarantine ends, if it has not ended.
    pub(crate) fn quarantine_left(&self, now: Tick) -> Option<Duration> {
        let left = self.quarantined_until?.since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Returns whether a watcher that has been told of `before` should be told of this state. A
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

impl Session {
    pub(super) fn change_state(&mut self, cx: &mut Cx<'_>, state: MasterState) {
        self.health.change(state, cx.now.monotonic);
        cx.tell(MasterEvent::Changes);
    }

    /// Notes that the master answered a command with `error`.
    pub(super) fn takes_no_locks(&mut self, cx: &mut Cx<'_>, error: &Arc<str>) {
        self.health.known.error = Some(error.clone());
        let why = error.clone();
        let is_news = self.health.errors.fails(cx.now.monotonic);
        cx.tell(MasterEvent::TakesNoLocks { is_news, why });
    }

    /// Notes that the cause of the last error has gone.
    pub(super) fn takes_locks(&mut self, cx: &mut Cx<'_>) {
        self.health.known.error = None;
        let is_news = self.health.errors.works();
        cx.tell(MasterEvent::TakesLocks { is_news });
    }
}

/// The quarantine of a master that may have forgotten locks: its beginning and its end. It goes on
/// while the master is down.
impl Session {
    /// Ends the quarantine, if it is over at `at`, and reports this. Returns whether it ended now.
    pub(crate) fn end_quarantine(&mut self, cx: &mut Cx<'_>, at: Tick) -> bool {
        let end = self.health.quarantined_until.take_if(|until| *until <= at);
        if end.is_some() {
            cx.tell(MasterEvent::VotesAgain);
        }
        end.is_some()
    }

    /// Begins a quarantine that lasts until the locks that the master may have forgotten have
    /// expired. The first dial after a loss of data finds a sign of it, such as a new run id. Later
    /// dials find only the record of the loss, which is no news.
    pub(super) fn begin_quarantine(&mut self, cx: &mut Cx<'_>, loss: DataLoss) {
        let left = self.config.quarantine_length().saturating_sub(loss.age);
        if left.is_zero() {
            return;
        }
        let is_known = loss.sign == Sign::Earlier && self.health.quarantined_until.is_some();
        if !is_known {
            let why = loss.sign.text();
            self.health.known.quarantine_reason = Some(why);
            cx.tell(MasterEvent::Quarantined { left, why });
        }
        self.health.quarantined_until = Some(cx.now.monotonic + left);
    }
}

impl Machine {
    /// Notes that a dial to `master` has reached the server with `run_id`. If another master is the
    /// same server, fails with the number of that master, because no server may vote as two
    /// masters.
    ///
    /// The server of `master` is then not known. So if the servers of two masters have swapped
    /// addresses, only the first dial is refused: the second master may then take its server.
    pub(crate) fn meet(&mut self, master: usize, run_id: &str) -> Result<(), usize> {
        self.sessions[master].server = None;
        let is_same = |session: &Session| session.server.as_deref() == Some(run_id);
        if let Some(other) = self.sessions.iter().position(is_same) {
            return Err(other);
        }
        self.sessions[master].server = Some(run_id.to_owned());
        Ok(())
    }

    pub(crate) fn health(&self) -> Box<[Health]> {
        let sessions = self.sessions.iter();
        sessions.map(|session| session.health.clone()).collect()
    }
}
