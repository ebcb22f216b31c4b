//! The time for which a master has no vote, because it may have forgotten locks.

use std::time::{Duration, Instant};

use super::Session;
use crate::{
    core::restart::{Loss, Sign},
    master::observer::MasterEvent,
};

/// The quarantine of the master: its beginning, its end and the time that is left. It goes on while
/// the master is down.
impl Session {
    /// Notes that there is a connection, after a dial that found this `loss`.
    pub(super) fn quarantine(&mut self, loss: Option<Loss>) {
        let now = (self.config.now)();
        self.quarantined_until.take_if(|until| *until <= now);
        if let Some(loss) = loss {
            self.begin_quarantine(loss, now);
        }
    }

    /// If the quarantine ends at `now`, reports this, and returns `true`.
    pub(crate) fn ends_quarantine(&mut self, now: Instant) -> bool {
        let end = self.quarantined_until.take_if(|until| *until <= now);
        if end.is_some() {
            self.mailbox.observer().on(MasterEvent::VotesAgain);
            self.config.health.votes_again(self.mailbox.master());
        }
        end.is_some()
    }

    /// Returns how long after `now` the quarantine ends, if it has not ended.
    pub(super) fn quarantine_left(&self, now: Instant) -> Option<Duration> {
        let left = self.quarantined_until?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Begins a quarantine that lasts until the locks that the master may have forgotten have
    /// expired. The first dial after a loss finds its sign. Later dials find only the record, and
    /// say nothing new.
    fn begin_quarantine(&mut self, loss: Loss, now: Instant) {
        let left = self.config.quarantine_length.saturating_sub(loss.age);
        if left.is_zero() {
            return;
        }
        let is_known = loss.sign == Sign::Earlier && self.quarantined_until.is_some();
        if !is_known {
            let why = loss.sign.text();
            let observer = self.mailbox.observer();
            observer.on(MasterEvent::Quarantined { left, why });
            self.config.health.quarantined(self.mailbox.master(), why);
        }
        self.quarantined_until = Some(now + left);
    }
}
