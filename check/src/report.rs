//! The findings of a check, and how they are shown.

use std::{fmt, sync::Arc};

use crate::programs::MasterPrograms;

/// The severity of a finding: `Info` < `Unknown` < `Warn` < `Critical`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// The finding is for information only.
    Info,
    /// The check could not find out whether there is a problem.
    Unknown,
    /// Locks may be lost or refused if something else goes wrong.
    Warn,
    /// Locks are not safe, or cannot be acquired.
    Critical,
}

/// Shows one word, such as `warn`.
impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Critical => "critical",
        })
    }
}

/// One result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The severity of the finding.
    pub severity: Severity,
    /// The setting, field or condition that the finding is about. Settings and fields of a server
    /// have the server's own names. A name never changes, so a program can use it to ignore
    /// findings that it expects.
    pub setting: &'static str,
    /// The addresses of the masters with this finding. Empty if it is about the lists.
    pub masters: Vec<Arc<str>>,
    /// The value that was found.
    pub value: String,
    /// The reason why the value matters.
    pub why: &'static str,
    /// The fix, for example a command. It shows the user as `<user>`.
    pub fix: String,
}

impl Finding {
    pub(crate) fn on(self, masters: impl IntoIterator<Item = Arc<str>>) -> Self {
        let masters = masters.into_iter().collect();
        Self { masters, ..self }
    }

    pub(crate) fn fixed_by(self, fix: impl Into<String>) -> Self {
        let fix = fix.into();
        Self { fix, ..self }
    }

    /// Returns whether both findings say the same, perhaps about different masters.
    fn is_like(&self, other: &Self) -> bool {
        let masters = self.masters.clone();
        *self
            == Self {
                masters,
                ..other.clone()
            }
    }
}

/// Shows one line, such as `warn: 10.0.0.1:6379: timeout: 300: it closes ..`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            severity,
            setting,
            masters,
            value,
            why,
            fix,
        } = self;
        write!(f, "{severity}: ")?;
        if !masters.is_empty() {
            write!(f, "{}: ", masters.join(", "))?;
        }
        write!(f, "{setting}: {value}: {why}; {fix}")
    }
}

/// The result of a [`check`](crate::check()). `Display` shows one line for each finding, or `no
/// findings`.
///
/// A restart of the server undoes a fix by `CONFIG SET` or `ACL SETUSER`. To keep the fix, also
/// write it into the configuration file or the ACL file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The findings, the worst first. What is the same on several masters is one finding.
    pub findings: Vec<Finding>,
    /// The programs that are connected with each master, in the order in which the masters are
    /// listed, each master once.
    pub programs: Vec<MasterPrograms>,
    /// The number of masters that can vote now, of all lists together.
    pub voters: usize,
}

impl Report {
    /// Returns the severity of the worst finding, if there is any.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.first().map(|finding| finding.severity)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return f.write_str("no findings");
        }
        for (number, finding) in self.findings.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n" })?;
            finding.fmt(f)?;
        }
        Ok(())
    }
}

/// Joins findings that differ only in their masters.
pub(crate) fn join(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut joined = Vec::<Finding>::new();
    for finding in findings {
        match joined.iter_mut().find(|one| one.is_like(&finding)) {
            Some(one) => one.masters.extend(finding.masters),
            None => joined.push(finding),
        }
    }
    joined
}
