//! Whether masters are fit to hold locks, by what they say of themselves.

mod durability;
mod facts;
mod rights;
mod server;
mod silent;
#[cfg(test)]
mod tests;
mod together;
mod votes;

use std::{cmp::Reverse, fmt, sync::Arc, time::Duration};

use crate::core::{lease::Drift, quorum::Failure, restart::RestartGuard};

pub(crate) use facts::{Facts, SETTINGS};

/// How bad a finding is: `Info` < `Unknown` < `Warn` < `Refuse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Good to know.
    Info,
    /// It could not be found out.
    Unknown,
    /// Locks may be lost or refused when something else goes wrong.
    Warn,
    /// Locks are not safe with this.
    Refuse,
}

/// One thing about the masters that one should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Which master; `None` for what is about all of them, about those that `value` names, or about this program.
    pub master: Option<Arc<str>>,
    /// What it is about, such as a setting of the server's. These names do not change.
    pub setting: &'static str,
    /// What was found.
    pub value: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do, such as the command that mends it.
    pub fix: &'static str,
    /// Whom it is about where that is not one master; empty where the value says so.
    whom: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(self.master.as_deref().unwrap_or(self.whom), f)
    }
}

impl Finding {
    fn show(&self, whom: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.severity {
            Severity::Info => "info",
            Severity::Unknown => "unknown",
            Severity::Warn => "warn",
            Severity::Refuse => "refuse",
        };
        let colon = if whom.is_empty() { "" } else { ": " };
        let (setting, value) = (self.setting, &self.value);
        let (why, fix) = (self.why, self.fix);
        write!(
            f,
            "{level}: {whom}{colon}{setting} is {value}: {why}; {fix}"
        )
    }

    /// The same of all masters.
    fn of_all(&self) -> Self {
        Self {
            master: None,
            whom: "all masters",
            ..self.clone()
        }
    }
}

/// What [`Coordinator::check`](crate::Coordinator::check) found. Shows itself a line each; what is the same on several
/// masters is one line.
///
/// What `CONFIG SET` or `ACL SETUSER` mends is back after a restart, unless it is in the configuration file or the ACL
/// file, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preflight {
    /// The worst first.
    pub findings: Vec<Finding>,
}

impl Preflight {
    /// The level of the worst finding, if there is any.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.first().map(|finding| finding.severity)
    }
}

impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(Finding, Vec<&str>)> = Vec::new();
        for finding in &self.findings {
            let whom = finding.master.as_deref().unwrap_or(finding.whom);
            let one = finding.of_all();
            match lines.iter_mut().find(|(other, _)| *other == one) {
                Some((_, all)) => all.push(whom),
                None => lines.push((one, vec![whom])),
            }
        }
        for (number, (finding, all)) in lines.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n" })?;
            finding.show(&all.join(", "), f)?;
        }
        Ok(())
    }
}

/// What of our own settings matters.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    pub(crate) guard: RestartGuard,
    /// Whether masters are said to forget nothing.
    pub(crate) is_durable: bool,
    pub(crate) quarantine: Duration,
    pub(crate) ttl: Duration,
    pub(crate) node_timeout: Duration,
    pub(crate) drift: Drift,
}

/// A master, and what it said of itself, or why it did not.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) address: Arc<str>,
    pub(crate) facts: Result<Facts, Failure>,
}

/// What to say of all masters.
pub(crate) fn check(masters: &[Asked], ours: &Ours) -> Preflight {
    let mut findings = Vec::new();
    for master in masters {
        let mut notes = Notes {
            master: Some(&master.address),
            whom: "",
            findings: &mut findings,
        };
        each(master, ours, &mut notes);
    }
    let mut findings = join(&findings, masters.len());
    let mut notes = Notes {
        master: None,
        whom: "",
        findings: &mut findings,
    };
    votes::check(masters, ours, &mut notes);
    together::check(masters, ours, &mut notes);
    notes.whom = "this program";
    together::our_own(ours, &mut notes);
    findings.sort_by_key(|finding| Reverse(finding.severity));
    Preflight { findings }
}

fn each(master: &Asked, ours: &Ours, notes: &mut Notes<'_>) {
    match &master.facts {
        Ok(facts) => {
            server::check(facts, ours, notes);
            durability::check(facts, ours, notes);
            rights::check(facts, notes);
        }
        Err(failure) => silent::check(failure, notes),
    }
}

/// Makes one of what is the same on all masters.
fn join(findings: &[Finding], masters: usize) -> Vec<Finding> {
    let mut joined = Vec::new();
    for finding in findings {
        let one = finding.of_all();
        let count = findings.iter().filter(|other| other.of_all() == one);
        let count = count.count();
        if masters == 1 || count < masters {
            joined.push(finding.clone());
        } else if !joined.contains(&one) {
            joined.push(one);
        }
    }
    joined
}

/// Where findings go.
struct Notes<'a> {
    master: Option<&'a Arc<str>>,
    whom: &'static str,
    findings: &'a mut Vec<Finding>,
}

impl Notes<'_> {
    fn add(
        &mut self,
        level: Severity,
        setting: &'static str,
        value: impl Into<String>,
        why: &'static str,
        fix: &'static str,
    ) {
        self.findings.push(Finding {
            severity: level,
            master: self.master.cloned(),
            setting,
            value: value.into(),
            why,
            fix,
            whom: self.whom,
        });
    }
}
