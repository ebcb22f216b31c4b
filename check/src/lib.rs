//! Checks whether Redis or Valkey masters are fit for [`quorlock`], reports the dangers that it
//! finds, the reasons for them, and how to fix them. Also finds the programs that use the masters.
//!
//! The check covers the servers, their settings, the rights of their user, and the other programs.
//! It finds, for example, eviction, replicas, a server that is listed twice, several servers behind
//! one address, missing rights, clocks that differ, and programs with other lists of masters. A
//! fact that the check cannot find out is a finding, too. The README of this crate lists all
//! findings, and what the check never finds. [`docs::operations`] says how to use it.
//!
//! [`docs::operations`]: quorlock::docs::operations#before-the-start
//!
//! Run the check when a program starts, or in a test of a deployment. It needs the rights
//! `+config|get`, `+client|list` and `+client|setname` in addition to those that locks need.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use quorlock::SharedSettings;
//! use quorlock_check::{Severity, CheckSettings, check};
//!
//! let settings = SharedSettings::from_env()?.read_files()?;
//! let shared = CheckSettings::from(&settings); // and what else the program gives to its `Builder`
//! let report = check(&settings.masters, &settings.old_masters, &shared).await?;
//! if report.worst() >= Some(Severity::Unknown) {
//!     eprintln!("{report}");
//! }
//! // A `Warn` should not stop the program. For example, one master may be in quarantine.
//! assert!(report.worst() < Some(Severity::Critical));
//! # Ok(()) }
//! ```

mod ask;
mod cure;
mod facts;
mod link;
mod locks;
mod programs;
mod report;
mod rights;
mod rules;
mod table;
#[cfg(test)]
mod tests;
mod together;

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use quorlock::{
    ConfigError, Coordinator, MasterSpec, Quarantine, SharedSettings,
    tools::{ConnectionName, ListsId, Membership, distinct, example_keys},
};

#[doc(hidden)] // only the command line needs them
pub use crate::locks::{MasterLocks, find_locks};
use crate::{facts::Master, programs::Expected, report::join, together::List};
pub use crate::{
    programs::{MasterPrograms, Program},
    report::{Finding, Report, Severity},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The settings that all programs with the same locks share. The default is that of
/// [`Builder`](quorlock::Builder).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckSettings {
    /// The template of keys: see [`Builder::key_template`](quorlock::Builder::key_template).
    pub key_template: String,
    /// The longest TTL of all programs: see [`Builder::max_ttl`](quorlock::Builder::max_ttl).
    pub max_ttl: Duration,
    /// The drift allowance: see [`Builder::drift_ppm`](quorlock::Builder::drift_ppm).
    pub drift_ppm: u32,
    /// The protection against masters that may have lost locks.
    pub quarantine: Quarantine,
    /// The time that a master has to answer.
    pub response_timeout: Duration,
    /// The time that connecting may take.
    pub connect_timeout: Duration,
    /// The lists that programs may use, if they are not those that are checked.
    lists: Vec<ListsId>,
}

impl CheckSettings {
    /// Allows programs to use the lists of masters of `locks` instead of those that are checked.
    /// For [groups](quorlock::Groups), give any of their coordinators: the lists of all groups count
    /// as one.
    pub fn allow_lists_of(&mut self, locks: &Coordinator) {
        self.lists.push(locks.lists_id());
    }
}

impl Default for CheckSettings {
    fn default() -> Self {
        Self {
            key_template: "{name}".to_owned(),
            max_ttl: Duration::from_secs(60),
            drift_ppm: 10_000,
            quarantine: Quarantine::default(),
            response_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            lists: Vec::new(),
        }
    }
}

impl From<&SharedSettings> for CheckSettings {
    fn from(settings: &SharedSettings) -> Self {
        let usual = Self::default();
        let template = settings.key_template.clone();
        Self {
            key_template: template.unwrap_or(usual.key_template),
            max_ttl: settings.max_ttl.unwrap_or(usual.max_ttl),
            quarantine: settings.quarantine.unwrap_or(usual.quarantine),
            response_timeout: settings.response_timeout.unwrap_or(usual.response_timeout),
            connect_timeout: settings.connect_timeout.unwrap_or(usual.connect_timeout),
            ..usual
        }
    }
}

impl CheckSettings {
    /// Returns the length of a quarantine, as
    /// [`Coordinator::quarantine_length`](quorlock::Coordinator::quarantine_length) does.
    pub fn quarantine_length(&self) -> Duration {
        const GRANULARITY: Duration = Duration::from_millis(2);
        const LEAST: Duration = Duration::from_secs(3);
        let drift = self.max_ttl.as_secs_f64() * (f64::from(self.drift_ppm) / 1e6);
        let drift = Duration::try_from_secs_f64(drift).unwrap_or(Duration::MAX);
        let length = self.max_ttl.saturating_add(drift);
        length.saturating_add(GRANULARITY).max(LEAST)
    }
}

/// Checks `masters`, and the [old masters](quorlock::Builder::old_masters). Fails if a master or
/// the key template cannot be used, if one list names a server twice, and if the lists name no
/// master or too many, as [`Builder::build`](quorlock::Builder::build) does.
///
/// The check changes nothing on the masters: it does not even write the origin key, which the first
/// connection of a program writes. It opens five connections to each master. That takes at most
/// twice the connect timeout, and two round trips. While the masters are changed, it also looks at
/// all keys for counters of fencing tokens, about 1,000 with each command. For this it needs the
/// right `+scan`.
///
/// # Cancel safety
///
/// Dropping the future has no effect on the masters.
pub async fn check(
    masters: &[MasterSpec],
    old_masters: &[MasterSpec],
    shared: &CheckSettings,
) -> Result<Report, ConfigError> {
    let keys = example_keys(&shared.key_template)?;
    let distinct = distinct(masters, old_masters)?;
    let all_but = |other: Membership| -> BTreeSet<_> {
        let numbers = 0..distinct.len();
        numbers
            .filter(|number| distinct[*number].2 != other)
            .collect()
    };
    let mut lists = [Membership::Leaves, Membership::Joins].map(all_but);
    if old_masters.is_empty() {
        lists[1].clear();
    }
    let [ours, theirs] = lists
        .each_ref()
        .map(|list| list.iter().map(|number| &*distinct[*number].0));
    let expected = expected(&keys[0].key, ours.collect(), theirs.collect(), shared);
    let is_change = !lists[1].is_empty();
    let answers = distinct.iter().map(async |(address, spec, _)| Master {
        address: address.clone(),
        answer: ask::ask(spec, &keys, shared, is_change).await,
    });
    let masters = join_all(answers).await;
    let lists: Vec<List> = ["masters", "old masters"].into_iter().zip(lists).collect();
    let lists = &lists[..1 + usize::from(is_change)];
    Ok(judge(&masters, lists, &expected, shared))
}

/// Returns what the connections of programs with these addresses may show.
fn expected(
    key: &str,
    masters: Vec<&str>,
    old_masters: Vec<&str>,
    shared: &CheckSettings,
) -> Expected {
    let id = |masters: &[&str], old_masters: &[&str]| {
        ListsId::of(masters.iter().copied(), old_masters.iter().copied())
    };
    let ours = id(&masters, &old_masters);
    let mut lists = shared.lists.clone();
    if lists.is_empty() {
        lists.push(ours);
    }
    let [old, new] = [id(&old_masters, &[]), id(&masters, &[])];
    let is_change = !old_masters.is_empty();
    if is_change {
        // Before the change, after it, and on the way back.
        lists.extend([old, new, id(&old_masters, &masters)]);
    }
    Expected {
        ours: ConnectionName::new(ours, key, shared.max_ttl, None),
        has_quarantine: shared.quarantine != Quarantine::Off,
        lists,
        apart: (is_change && old != new).then_some([old, new]),
    }
}

fn judge(
    masters: &[Master],
    lists: &[List],
    expected: &Expected,
    shared: &CheckSettings,
) -> Report {
    let single = masters.iter().flat_map(|master| {
        let findings = match &master.answer {
            Ok(facts) => {
                let mut findings = rules::find(facts, shared, expected);
                findings.extend(programs::find(&facts.programs, facts.database, expected));
                findings
            }
            Err(finding) => vec![finding.clone()],
        };
        findings
            .into_iter()
            .map(|finding| finding.on([master.address.clone()]))
    });
    let mut findings = join(single);
    findings.extend(programs::apart(masters, expected));
    findings.extend(programs::earlier(masters, expected));
    let waits = together::waits(masters, shared);
    findings.extend(together::find(masters, lists, &waits, shared));
    findings.sort_by_key(|finding| Reverse(finding.severity));
    let programs = masters.iter().map(|master| MasterPrograms {
        master: master.address.clone(),
        programs: match &master.answer {
            Ok(facts) => facts
                .unseen
                .clone()
                .map_or_else(|| Ok(facts.programs.clone()), Err),
            Err(finding) => Err(finding.value.clone()),
        },
    });
    let now = waits.iter().filter(|wait| **wait == Some(Duration::ZERO));
    Report {
        findings,
        programs: programs.collect(),
        voters: now.count(),
    }
}
