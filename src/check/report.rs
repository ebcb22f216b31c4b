//! The findings of a check, and how they are shown.

use std::{cmp::Reverse, fmt, sync::Arc};

use super::setting::Setting;

/// The severity of a finding: `Info` < `Unknown` < `Warn` < `Refuse`.
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
    Refuse,
}

/// Shows one word, such as `warn`.
impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Refuse => "refuse",
        })
    }
}

/// One result of a check, about the masters or the settings of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The severity of the finding.
    pub severity: Severity,
    /// The ID of the [group](crate::Builder::groups) that was checked. `None` if there are no
    /// groups.
    pub group: Option<Arc<str>>,
    /// The address of the master. `None` if the finding is about all masters, about the masters
    /// that `value` names, or about this program.
    pub master: Option<Arc<str>>,
    /// The setting or condition that the finding is about.
    pub setting: Setting,
    /// The value that was found.
    pub value: String,
    /// The reason why the value matters.
    pub why: &'static str,
    /// The fix, for example a command.
    pub fix: &'static str,
    /// The subject of the finding if `master` is `None`. Empty if `value` names the subject.
    pub(super) subject: &'static str,
}

impl Finding {
    /// Returns the setting and its value, such as `timeout is 300`.
    pub fn what(&self) -> String {
        let is = if self.setting.has_value() {
            " is "
        } else {
            ": "
        };
        format!("{}{is}{}", self.setting, self.value)
    }

    /// Returns whether the finding is about all masters, each of them for itself.
    pub fn is_about_all(&self) -> bool {
        self.master.is_none() && self.subject == ALL
    }

    /// Returns the address of the master, `all masters` or `this program`. Empty if the value names
    /// the masters.
    pub fn who(&self) -> &str {
        self.master.as_deref().unwrap_or(self.subject)
    }

    fn of_all(&self) -> Self {
        Self {
            master: None,
            subject: ALL,
            ..self.clone()
        }
    }

    fn show(&self, who: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if who.is_empty() { "" } else { ": " };
        let (severity, what, why, fix) = (self.severity, self.what(), self.why, self.fix);
        write!(f, "{severity}: ")?;
        if let Some(group) = &self.group {
            write!(f, "group {group}: ")?;
        }
        write!(f, "{who}{colon}{what}: {why}; {fix}")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(self.who(), f)
    }
}

const ALL: &str = "all masters";

/// The findings of [`Coordinator::check`](crate::Coordinator::check). `Display` shows one line for
/// each finding. Findings that are the same on several masters share one line.
///
/// A restart of the server undoes a fix by `CONFIG SET` or `ACL SETUSER`. To keep the fix, also
/// write it into the configuration file or the ACL file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Returns the findings of all groups, each with the ID of its group.
    pub(crate) fn of_groups(reports: impl IntoIterator<Item = (Option<Arc<str>>, Self)>) -> Self {
        let findings = reports.into_iter().flat_map(|(group, report)| {
            let findings = report.findings.into_iter();
            findings.map(move |finding| Finding {
                group: group.clone(),
                ..finding
            })
        });
        let mut findings: Vec<_> = findings.collect();
        findings.sort_by_key(|finding| Reverse(finding.severity));
        Self { findings }
    }

    /// Returns the severity of the worst finding, if there is any.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.first().map(|finding| finding.severity)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (finding, same)) in groups(&self.findings).iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n" })?;
            let who: Vec<_> = same.iter().map(|finding| finding.who()).collect();
            finding.show(&who.join(", "), f)?;
        }
        Ok(())
    }
}

/// Joins findings that are the same on all masters into one finding, if there are several masters.
pub(super) fn join(findings: &[Finding], masters: usize) -> Vec<Finding> {
    let groups = groups(findings).into_iter();
    let joined = groups.flat_map(|(of_all, same)| {
        if masters > 1 && same.len() == masters {
            vec![of_all]
        } else {
            same.into_iter().cloned().collect()
        }
    });
    joined.collect()
}

/// Groups the findings that differ only in their masters.
fn groups(findings: &[Finding]) -> Vec<(Finding, Vec<&Finding>)> {
    let mut groups: Vec<(Finding, Vec<&Finding>)> = Vec::new();
    for finding in findings {
        let of_all = finding.of_all();
        match groups.iter_mut().find(|(other, _)| *other == of_all) {
            Some((_, same)) => same.push(finding),
            None => groups.push((of_all, vec![finding])),
        }
    }
    groups
}
