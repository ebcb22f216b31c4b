//! The answers of one master, and the settings of this program that the answers are judged by.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{counters::Counters, unanswered::why};
use crate::{
    core::{
        config::Config,
        restart::{Quarantine, quarantine_length},
        vote::quorum::Quorum,
    },
    master::{probe::ProbeError, question::Answer, server_error::ServerError},
};

/// The settings to ask for. Each setting has its own `CONFIG GET`, because a pattern would also
/// return passwords, and only Redis 7 and later take several names at once.
pub(super) const SETTINGS: [&str; 10] = [
    "active-replica",
    "appendfsync",
    "lua-time-limit",
    "maxclients",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
    "stop-writes-on-bgsave-error",
    "tcp-keepalive",
    "timeout",
    "tracking-table-max-keys",
];

/// The settings of this program that masters are judged by.
pub(super) struct Ours<'a> {
    pub(super) config: &'a Config,
    pub(super) quorum: &'a Quorum,
    pub(super) node_timeout: Duration,
}

impl Ours<'_> {
    pub(super) fn has_quarantine(&self) -> bool {
        self.config.quarantine != Quarantine::Off
    }
}

/// A master, and either its answers or the reason why it did not answer.
#[derive(Debug)]
pub(super) struct MasterAnswer {
    pub(super) address: Arc<str>,
    pub(super) facts: Result<Facts, ProbeError>,
}

/// The answers of one master.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Fields of `INFO`, settings, and the fields that `lua/shared/check.lua` adds.
    fields: BTreeMap<String, String>,
    pub(super) clock: Option<Reading>,
    pub(super) stands_still: bool,
    /// The reason why the master could not be asked whether it restarted, so that it has no vote.
    pub(super) restart_unknown: Option<String>,
    pub(super) counters: Counters,
    /// The reason why the master does not tell its settings.
    pub(super) withheld: Option<String>,
}

/// A master's wall clock, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    theirs: u64,
    /// Our wall clock in the middle of the round trip.
    ours: u64,
    /// The largest error of `ours`, which is half of the round trip.
    slack: u64,
}

impl Reading {
    /// Returns how far the master's clock is ahead of ours.
    pub(super) fn ahead(self) -> i64 {
        self.theirs
            .cast_signed()
            .wrapping_sub(self.ours.cast_signed())
    }

    /// Returns the smallest possible difference between the master's clock and a second clock. The
    /// second clock is `ahead` microseconds ahead of our clock.
    pub(super) fn apart(self, ahead: i64) -> Duration {
        let apart = self.ahead().abs_diff(ahead);
        Duration::from_micros(apart.saturating_sub(self.slack))
    }
}

impl Facts {
    /// Reads the reply of `lua/shared/check.lua`. Our wall clock showed `sent` when the question
    /// was sent, and `received` when the answer arrived.
    pub(super) fn parse(text: &str, sent: u64, received: u64) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let fields = lines.map(|(field, value)| (field.to_owned(), value.trim().to_owned()));
        let mut facts = Self {
            fields: fields.collect(),
            ..Self::default()
        };
        facts.clock = facts.number("time").map(|theirs| Reading {
            theirs,
            ours: sent.midpoint(received),
            slack: received.saturating_sub(sent) / 2,
        });
        facts
    }

    /// Adds an answer to `CONFIG GET`.
    pub(super) fn add(&mut self, setting: &str, answer: Answer) {
        match answer {
            Ok(value) => {
                let field = value.map(|value| (setting.to_owned(), value));
                self.fields.extend(field);
            }
            Err(failure) => self.withheld = Some(why(&failure)),
        }
    }

    /// Compares the master's clock with the clock in the answer `earlier`. Notes whether the clock
    /// stands still.
    pub(super) fn compare(&mut self, earlier: &Self) {
        /// The resolution of the coarsest clock, in microseconds.
        const TICK: u64 = 1_000;
        if let (Some(earlier), Some(now)) = (earlier.clock, self.clock) {
            let passed = now.ours.saturating_sub(earlier.ours);
            self.stands_still = passed >= TICK && now.theirs <= earlier.theirs;
        }
    }

    pub(super) fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }

    pub(super) fn is(&self, field: &str, value: &str) -> bool {
        self.get(field) == Some(value)
    }

    /// Returns whether the user may ask for `INFO`.
    pub(super) fn has_info(&self) -> bool {
        self.get("try.INFO").is_none()
    }

    /// Returns the error that the check got when it tried a command or a key, if there was one.
    pub(super) fn error(&self, tried: &str) -> Option<ServerError> {
        self.get(&format!("try.{tried}")).map(ServerError::of)
    }

    /// Returns the code of the error if the master refuses writes now.
    pub(super) fn write_error(&self) -> Option<&'static str> {
        let errors = ["SET", "HSET"].into_iter();
        let mut errors = errors.filter_map(|command| self.error(command));
        errors.find_map(|error| {
            let ServerError::WritesRefused(code) = error else {
                return None;
            };
            Some(code)
        })
    }

    /// Returns how much longer the master has no vote because it may have forgotten locks.
    pub(super) fn quarantine_left(&self, ours: &Ours<'_>) -> Duration {
        let config = ours.config;
        let age = match config.quarantine {
            Quarantine::Off => None,
            // With `Strict`, the quarantine starts when the master was first seen.
            Quarantine::Strict if self.is("origin_age", "never") => self.number("origin_seen"),
            Quarantine::Observed | Quarantine::Strict => self.number("origin_age"),
        };
        let over = age.map_or(Duration::MAX, Duration::from_millis);
        quarantine_length(config.max_ttl, config.drift).saturating_sub(over)
    }
}
