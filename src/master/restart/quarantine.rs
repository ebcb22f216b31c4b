//! The time for which a master has no vote, because it may have forgotten locks.

use std::time::{Duration, Instant};

use crate::{
    core::restart::{Loss, Sign},
    master::{config::MasterConfig, observer::MasterEvent, session::mailbox::Mailbox},
};

/// The quarantine of a master. It goes on while the master is down.
#[derive(Debug, Default)]
pub(in crate::master) struct QuarantineEnd {
    /// The end of the quarantine, if there is one.
    pub(in crate::master) until: Option<Instant>,
}

impl QuarantineEnd {
    /// Notes that there is a connection, after a dial that found this `loss`. Returns the end of
    /// the quarantine, if there is one.
    pub(in crate::master) fn connected(
        &mut self,
        loss: Option<Loss>,
        mailbox: &Mailbox,
        config: &MasterConfig,
    ) -> Option<Instant> {
        let now = (config.now)();
        self.until.take_if(|until| *until <= now);
        if let Some(loss) = loss {
            self.begin(loss, now, mailbox, config);
        }
        self.until
    }

    /// If the quarantine ends at `now`, reports this, and returns `true`.
    pub(in crate::master) fn end_if_over(
        &mut self,
        now: Instant,
        mailbox: &Mailbox,
        config: &MasterConfig,
    ) -> bool {
        let ends = self.until.take_if(|until| *until <= now).is_some();
        if ends {
            mailbox.observer().on(MasterEvent::VotesAgain);
            config.health.votes_again(mailbox.master());
        }
        ends
    }

    /// Returns how long after `now` the quarantine ends, if it has not ended.
    pub(in crate::master) fn remaining(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Begins a quarantine that lasts until the locks that the master may have forgotten have
    /// expired. The first dial after a loss finds its sign. Later dials find only the record, and
    /// say nothing new.
    fn begin(&mut self, loss: Loss, now: Instant, mailbox: &Mailbox, config: &MasterConfig) {
        let left = config.quarantine.saturating_sub(loss.age);
        if left.is_zero() {
            return;
        }
        let is_known = loss.sign == Sign::Earlier && self.until.is_some();
        if !is_known {
            let why = loss.sign.text();
            let observer = mailbox.observer();
            observer.on(MasterEvent::Quarantined { left, why });
            config.health.quarantined(mailbox.master(), why);
        }
        if !mutant!(IgnoresQuarantine) {
            self.until = Some(now + left);
        }
    }
}
