//! What one master says of itself.

use std::{collections::BTreeMap, time::Duration};

use crate::core::quorum::Failure;

/// What a server is asked for by `CONFIG GET`, one by one: patterns would bring passwords along, and several at once
/// are for Redis 7 and later.
pub(crate) const SETTINGS: [&str; 9] = [
    "active-replica",
    "appendfsync",
    "lua-time-limit",
    "maxclients",
    "min-replicas-to-write",
    "no-appendfsync-on-rewrite",
    "stop-writes-on-bgsave-error",
    "tcp-keepalive",
    "timeout",
];

/// What one master says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Fields of `INFO`, the settings, and what else `lua/shared/check.lua` has to say.
    said: BTreeMap<String, String>,
    pub(super) clock: Option<Reading>,
    pub(super) stands_still: bool,
    /// Why it does not tell its settings.
    pub(super) withheld: Option<Failure>,
}

/// A master's clock, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    theirs: u64,
    /// Ours at the same time, about.
    ours: u64,
    /// How far that may be off: half of the round trip.
    slack: u64,
}

impl Reading {
    /// By how much its clock is ahead of ours.
    pub(super) fn ahead(self) -> i64 {
        self.theirs
            .cast_signed()
            .wrapping_sub(self.ours.cast_signed())
    }

    /// How far its clock is from one that is so much ahead of ours, at least.
    pub(super) fn apart(self, ahead: i64) -> Duration {
        let apart = self.ahead().abs_diff(ahead);
        Duration::from_micros(apart.saturating_sub(self.slack))
    }
}

impl Facts {
    /// See `lua/shared/check.lua`. `asked` is our clock when it was asked, `now` when the answer was there, both in
    /// microseconds since 1970.
    pub(crate) fn parse(text: &str, asked: u64, now: u64) -> Self {
        let mut facts = Self::default();
        for (field, value) in text.lines().filter_map(|line| line.split_once(':')) {
            facts.said.insert(field.to_owned(), value.trim().to_owned());
        }
        facts.clock = facts.number("time").map(|theirs| Reading {
            theirs,
            ours: asked.midpoint(now),
            slack: now.saturating_sub(asked) / 2,
        });
        facts
    }

    /// What it answered to `CONFIG GET`; nothing where it does not know the setting.
    pub(crate) fn add(&mut self, setting: &str, answer: Result<Option<String>, Failure>) {
        match answer {
            Ok(Some(value)) => {
                self.said.insert(setting.to_owned(), value);
            }
            Ok(None) => {}
            Err(failure) => self.withheld = Some(failure),
        }
    }

    /// Looks at its clock once more.
    pub(crate) fn compare(&mut self, later: &Self) {
        /// As fine as any clock is.
        const TICK: u64 = 1_000;
        if let (Some(first), Some(later)) = (self.clock, later.clock) {
            let passed = later.ours.saturating_sub(first.ours);
            self.stands_still = passed >= TICK && later.theirs <= first.theirs;
        }
    }

    pub(super) fn get(&self, field: &str) -> Option<&str> {
        self.said.get(field).map(String::as_str)
    }

    pub(super) fn said(&self, field: &str) -> String {
        self.get(field).unwrap_or("unknown").to_owned()
    }

    pub(super) fn is(&self, field: &str, value: &str) -> bool {
        self.get(field) == Some(value)
    }

    pub(super) fn is_above_zero(&self, field: &str) -> bool {
        self.number(field).unwrap_or(0) > 0
    }

    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }

    /// Whether it says anything of itself, or its user must not ask.
    pub(super) fn has_info(&self) -> bool {
        self.get("try.INFO").is_none()
    }
}
