//! The answers of one master.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use quorlock::{Quarantine, tools::ServerError};

use crate::{
    CheckSettings,
    programs::{EarlierProgram, Program},
    report::Finding,
    rights,
};

/// A master, and either its answers or the finding that says why there are none.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    pub(crate) address: Arc<str>,
    pub(crate) answer: Result<Facts, Finding>,
}

impl Master {
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.answer.as_ref().ok()
    }

    /// Returns an ID, if the master shows one.
    pub(crate) fn id(&self, field: &str) -> Option<&str> {
        let id = self.facts()?.get(field)?;
        // A server that never had another id shows zeros in `master_replid2`.
        Some(id).filter(|id| id.bytes().any(|digit| digit != b'0'))
    }
}

/// The answers of one master.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Fields of `INFO`, settings, and the fields that `lua/check.lua` adds.
    fields: BTreeMap<String, String>,
    pub(crate) clock: Option<Reading>,
    /// The reason why the master does not tell its settings.
    pub(crate) withheld: Option<String>,
    /// The reason why `EVALSHA` is denied.
    pub(crate) evalsha: Option<String>,
    /// The reason why the master reports no changes of keys.
    pub(crate) untracked: Option<String>,
    /// The number of the database that we use.
    pub(crate) database: i64,
    /// The programs that are connected.
    pub(crate) programs: Vec<Program>,
    /// The reason why the master does not show its programs.
    pub(crate) unseen: Option<String>,
    /// Whether another connection to the address met a server with another run id.
    pub(crate) is_one_of_several: bool,
    /// The reason why that is unknown.
    pub(crate) uncompared: Option<String>,
    /// The key of each counter that is too far ahead of the master's clock, and how far. Or the
    /// reason why the master does not show its counters. `None` if the master was not asked.
    pub(crate) counters: Option<Result<BTreeMap<String, Duration>, String>>,
}

/// A master's wall clock, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    theirs: u64,
    /// Our wall clock in the middle of the round trip.
    ours: u64,
    /// The largest error of `ours`, which is half of the round trip.
    slack: u64,
}

impl Reading {
    /// Returns by how much, at least, the master's clock differs from ours, if that is too much for
    /// tickets and for candidates for fencing tokens. Other locks do not depend on the time of day,
    /// because a TTL is a length of time.
    pub(crate) fn off(self) -> Option<Duration> {
        let micros = self.theirs.abs_diff(self.ours).saturating_sub(self.slack);
        Some(Duration::from_micros(micros)).filter(|off| *off > CLOCK_WINDOW)
    }
}

/// The most by which the clocks of a majority and of a program may be apart.
pub(crate) const CLOCK_WINDOW: Duration = Duration::from_secs(1);

impl Facts {
    /// Reads the reply of `lua/check.lua`. Our wall clock showed `sent` when the question was sent,
    /// and `received` when the answer arrived.
    pub(crate) fn parse(text: &str, sent: u64, received: u64) -> Self {
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

    pub(crate) fn add(&mut self, setting: &str, value: String) {
        self.fields.insert(setting.to_owned(), value);
    }

    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }

    pub(crate) fn is(&self, field: &str, value: &str) -> bool {
        self.get(field) == Some(value)
    }

    /// Returns whether the user may ask for `INFO`.
    pub(crate) fn has_info(&self) -> bool {
        self.get("try.INFO").is_none()
    }

    /// Returns the programs in the origin key.
    pub(crate) fn earlier(&self) -> impl Iterator<Item = EarlierProgram> {
        let entries = (0..32).filter_map(|at| self.get(&format!("earlier.{at}")));
        entries.filter_map(EarlierProgram::parse)
    }

    /// Returns what the user lacks for a command or a key that the check has tried.
    pub(crate) fn denial(&self, tried: &str) -> Option<ServerError> {
        let error = self.get(&format!("try.{tried}"))?;
        Some(ServerError::of(error)).filter(|kind| kind.is_denial())
    }

    /// Returns the code of the error if the master refuses writes now.
    pub(crate) fn write_error(&self) -> Option<&'static str> {
        let errors = ["try.key", "try.SET", "try.HSET"].into_iter();
        let mut errors = errors.filter_map(|tried| self.get(tried));
        errors.find_map(|error| match ServerError::of(error) {
            ServerError::WritesRefused(code) => Some(code),
            _ => None,
        })
    }

    /// Returns the error that says that another server of a cluster has a key.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        let tried = self.fields.range("try.".to_owned()..);
        let tried = tried.take_while(|(field, _)| field.starts_with("try."));
        let first = self.get("try.key").into_iter();
        let mut errors = first.chain(tried.map(|(_, error)| &**error));
        // Old servers say the same in a script if nobody has the key.
        let is_down = self.write_error() == Some("CLUSTERDOWN");
        errors.find(|error| ServerError::of(error) == ServerError::Moved && !is_down)
    }

    /// Returns how much longer the master gives no vote to a program that starts now, because it
    /// may have forgotten locks. `None` if it gives no vote until something else changes.
    pub(crate) fn no_vote_for(&self, shared: &CheckSettings) -> Option<Duration> {
        if self.evalsha.is_some() || !rights::may_lock(self) {
            return None;
        }
        let length = shared.quarantine_length();
        let is_strict = shared.quarantine == Quarantine::Strict;
        let age = match self.get("origin_age") {
            _ if shared.quarantine == Quarantine::Off => return Some(Duration::ZERO),
            // The program warns, and uses the master all the same.
            None => return (!is_strict).then_some(Duration::ZERO),
            // The quarantine starts when the master was first seen.
            Some("never") if is_strict => self.number("origin_seen").unwrap_or(u64::MAX),
            Some("never") => return Some(Duration::ZERO),
            Some("none") if !is_strict => return Some(Duration::ZERO),
            Some(age) => age.parse().unwrap_or_default(),
        };
        Some(length.saturating_sub(Duration::from_millis(age)))
    }
}
