//! The outages of one master, and what the log says about them.

use std::{sync::Arc, time::Duration};

use super::in_flight::InFlight;
use crate::user_code::shielded;

/// The failures of a master since it last worked. The log has one warning about an outage, and one
/// message when it is over or seems to be.
///
/// An outage is over when a connection worked for a while. A master that accepts connections and
/// answers nothing, or that comes and goes, is one outage, however often it is dialled.
#[derive(Debug)]
pub(super) struct Outage<'a> {
    master: &'a Arc<str>,
    /// The dials that failed and the connections that broke.
    failures: u32,
    /// The last connection was given up because the master was silent.
    is_silent: bool,
    /// The last connection broke before it was of any use.
    was_useless: bool,
    /// The log has said that the outage seems to be over.
    is_end_logged: bool,
}

/// How a connection ended.
pub(super) struct Ended {
    pub(super) why: Arc<str>,
    /// The master was silent for too long.
    pub(super) was_given_up: bool,
    pub(super) has_answered: bool,
    pub(super) lasted: Duration,
}

impl<'a> Outage<'a> {
    /// Returns an outage without failures.
    pub(super) fn new(master: &'a Arc<str>) -> Self {
        Self {
            master,
            failures: 0,
            is_silent: false,
            was_useless: false,
            is_end_logged: false,
        }
    }

    /// Notes that there is a connection.
    pub(super) fn connected(&mut self) {
        let master = self.master;
        if self.is_end_logged || self.was_useless {
            shielded(|| tracing::debug!(%master, "connected"));
        } else {
            self.is_end_logged = true;
            shielded(|| tracing::info!(%master, "connected"));
        }
    }

    /// Notes whether the master has answered a command on this connection.
    pub(super) fn polled(&mut self, has_answered: bool) {
        if self.was_useless && !self.is_end_logged && has_answered {
            self.is_end_logged = true;
            let master = self.master;
            shielded(|| tracing::info!(%master, "master answers again"));
        }
    }

    /// Returns how many commands may be unanswered on the next connection. A master that did not
    /// answer on the last one is sent only a few until it does.
    pub(super) fn window(&self) -> usize {
        if self.is_silent {
            InFlight::CAREFUL_WINDOW
        } else {
            InFlight::WINDOW
        }
    }

    /// Notes how the connection ended.
    pub(super) fn disconnected(&mut self, ended: &Ended) {
        const A_WHILE: Duration = Duration::from_secs(1);
        self.is_silent = ended.was_given_up;
        let has_worked = ended.has_answered || !ended.was_given_up;
        self.was_useless = !has_worked || ended.lasted < A_WHILE;
        if !self.was_useless {
            self.failures = 0;
        }
    }

    /// Notes a failure. Returns how many there were before it in this outage.
    pub(super) fn failed(&mut self, why: &Arc<str>) -> u32 {
        let (before, master) = (self.failures, self.master);
        self.failures = before.saturating_add(1);
        if before == 0 {
            self.is_end_logged = false;
            shielded(|| tracing::warn!(%master, %why, "master down"));
        } else {
            shielded(|| tracing::debug!(%master, %why, "master still down"));
        }
        before
    }
}
