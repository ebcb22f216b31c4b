//! Logs that acquisitions find no quorum, and that they find one again.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::{
    core::{
        time::episode::Episode,
        view::health::MasterHealth,
        vote::{
            refused::Refused,
            round::{Outcome, Round},
        },
    },
    driver::{acquire::denied::Denied, masters::Masters, time::clock},
    log,
    user_code::shielded,
};

/// The times without a quorum. All acquisitions of a coordinator share them, so that the log gets
/// one warning for each such time, and not one for each lock.
#[derive(Debug, Default)]
pub(in crate::driver) struct QuorumLog {
    episode: Mutex<Episode>,
    /// Set from a failure to the next success. Read without the lock, because most attempts find a
    /// quorum.
    lacks_quorum: AtomicBool,
}

impl QuorumLog {
    /// Notes that an attempt at the lock `name` failed.
    pub(in crate::driver) fn denied(&self, name: &str, denied: &Denied, masters: &Masters) {
        let Some(round) = &denied.round else {
            return;
        };
        match &denied.refused {
            Refused::NoQuorum | Refused::Quarantined(_) | Refused::TooSlow(_) => {}
            _ if round.read(Round::outcome) == Outcome::Pending => return, // asked one master only
            _ => return self.found_quorum(),
        }
        self.fails(name, &denied.refused, || masters.votes(round).to_string());
    }

    /// Notes that too few masters answered for an attempt at the lock `name`, so that there was
    /// none. Waiters make no attempts in a long outage, which may have begun too soon after the
    /// last one to be logged.
    pub(in crate::driver) fn lacks_masters(&self, name: &str, masters: &Masters) {
        self.fails(name, &Refused::NoQuorum, || {
            let health = masters.health.read();
            let states: Vec<_> = health.iter().map(MasterHealth::to_string).collect();
            states.join(", ")
        });
    }

    fn fails(&self, name: &str, reason: &Refused, votes: impl FnOnce() -> String) {
        self.lacks_quorum.store(true, Ordering::Relaxed);
        if self.episode.lock().fails(clock::monotonic()) {
            let votes = votes();
            shielded(
                || tracing::warn!(target: log::LOCK, %name, %reason, %votes, "no quorum: no lock can be acquired"),
            );
        }
    }

    /// Notes that an attempt found a quorum, which may have refused the lock.
    pub(in crate::driver) fn found_quorum(&self) {
        if !self.lacks_quorum.load(Ordering::Relaxed) {
            return;
        }
        self.lacks_quorum.store(false, Ordering::Relaxed);
        if self.episode.lock().works() {
            shielded(|| tracing::info!(target: log::LOCK, "quorum again: locks can be acquired"));
        }
    }
}
