//! The time for which a master has no vote, because it may have forgotten locks.

use std::time::{Duration, Instant};

use super::{config::MasterConfig, mailbox::Mailbox};
use crate::{log, user_code::shielded};

/// Quarantines the master if it may have forgotten locks `age` ago. The quarantine lasts until
/// those locks have expired.
pub(super) fn begin(mailbox: &Mailbox, config: &MasterConfig, age: Option<Duration>) {
    let left = age.map(|age| config.quarantine.saturating_sub(age));
    if let Some(left) = left.filter(|left| !left.is_zero()) {
        let master = mailbox.address();
        shielded(|| {
            tracing::warn!(target: log::MASTER, %master, ?left, "master may have forgotten locks: it has no vote until they have expired");
        });
        config.health.quarantined(mailbox.master());
        mailbox.quarantine((config.now)() + left);
    }
}

/// The quarantine of a master that is connected. The supervisor reports its end.
pub(super) struct Quarantine {
    until: Option<Instant>,
}

impl Quarantine {
    pub(super) fn of(mailbox: &Mailbox) -> Self {
        Self {
            until: mailbox.quarantined_until(),
        }
    }

    /// Returns the end of the quarantine, or `at` if that is earlier.
    pub(super) fn or_earlier(&self, at: Option<Instant>) -> Option<Instant> {
        self.until.into_iter().chain(at).min()
    }

    /// If the quarantine ends at `now`, reports this, and returns `true`.
    pub(super) fn ends(&mut self, now: Instant, mailbox: &Mailbox, config: &MasterConfig) -> bool {
        let ends = self.until.take_if(|until| *until <= now).is_some();
        if ends {
            let master = mailbox.address();
            shielded(|| tracing::info!(target: log::MASTER, %master, "master votes again"));
            config.health.votes_again(mailbox.master());
        }
        ends
    }
}
