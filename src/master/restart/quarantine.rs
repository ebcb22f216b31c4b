//! The time for which a master has no vote, because it may have forgotten locks.

use std::time::Instant;

use crate::{
    core::restart::{Loss, Sign},
    master::{config::MasterConfig, observer::MasterEvent, session::mailbox::Mailbox},
};

/// Quarantines the master until the locks that it may have forgotten have expired. The first dial
/// after a loss finds its sign. Later dials find only the record, and say nothing new.
pub(in crate::master) fn begin(mailbox: &Mailbox, config: &MasterConfig, loss: Loss) {
    let left = config.quarantine.saturating_sub(loss.age);
    if left.is_zero() {
        return;
    }
    let is_known = loss.sign == Sign::Earlier && mailbox.quarantined_until().is_some();
    if !is_known {
        let why = loss.sign.text();
        let observer = mailbox.observer();
        observer.on(MasterEvent::Quarantined { left, why });
        config.health.quarantined(mailbox.master(), why);
    }
    mailbox.quarantine((config.now)() + left);
}

/// The quarantine of a master that is connected. The supervisor reports its end.
pub(in crate::master) struct Quarantine {
    until: Option<Instant>,
}

impl Quarantine {
    pub(in crate::master) fn of(mailbox: &Mailbox) -> Self {
        Self {
            until: mailbox.quarantined_until(),
        }
    }

    /// Returns the end of the quarantine, or `at` if that is earlier.
    pub(in crate::master) fn or_earlier(&self, at: Option<Instant>) -> Option<Instant> {
        self.until.into_iter().chain(at).min()
    }

    /// If the quarantine ends at `now`, reports this, and returns `true`.
    pub(in crate::master) fn ends(
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
}
