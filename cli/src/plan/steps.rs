//! The steps of a change.

use quorlock_check::{Finding, Report, Severity};

use super::change::{Change, Part};
use crate::{masters::ToCheck, style::Style, times::rounded};

/// The step that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// All programs that are seen use other lists.
    Unknown,
    Begin,
    EndOld,
    LeaveOld,
    EndBoth,
    StopOld,
    /// Programs share no list.
    Unsafe,
}

pub(super) const LEAVE_OLD: &str = "\
Go on with the marked step if none lives, as step 2 says, and if the wait is over. No master can \
tell.";

impl Step {
    /// Returns the findings that stand in the way of this step.
    pub(super) fn findings(self, checked: &Report) -> Vec<&Finding> {
        let is_change = |finding: &&Finding| {
            let is_setting = matches!(finding.setting, "quorlock:fence:*" | "votes");
            let is_earlier = finding.setting == "lists" && finding.severity != Severity::Unknown;
            finding.severity == Severity::Critical || is_setting || is_earlier
        };
        // Later, nothing needs the old masters.
        let findings = checked.findings.iter();
        let findings = findings.filter(|one| self <= Self::LeaveOld || one.setting == "lists");
        findings.filter(is_change).collect()
    }
}

/// Returns the five steps, with what to do.
pub(super) fn steps(change: &Change, subject: &ToCheck) -> [(Step, String); 5] {
    let wait = rounded(subject.locks.quarantine_length());
    let quarantine = match subject.has_quarantine() {
        true => format!(" (a quarantine takes {wait})"),
        false => String::new(),
    };
    let (old, size) = (Part::Old.word(), change.old.len());
    let barred = size - size / 2; // so that the others are no majority
    let stop = match &*change.left().join(", ") {
        "" => "the change is done".to_owned(),
        left => format!("stop {left}"),
    };
    [
        (
            Step::Begin,
            format!(
                "When a majority of the new masters can vote{quarantine}, set masters to the new \
                 list and old_masters to the old list in all programs. No other wait is needed."
            ),
        ),
        (
            Step::EndOld,
            format!(
                "Wait until all programs with {old} have ended, also those that cannot reach a \
                 master, and until none can start again: a job that comes and goes shows only when \
                 it comes. If one may live, delete its user (ACL \
                 DELUSER) on all old masters, and at least on {barred} of the {size}."
            ),
        ),
        (
            Step::LeaveOld,
            format!(
                "After step 2, wait for {wait} (the longest max_ttl of all programs, and 1 %), which ends \
                 detached locks, too. If a minimum hold (--min-hold) lasts longer, wait for it. Then set \
                 masters to the new list in all programs, without old_masters."
            ),
        ),
        (
            Step::EndBoth,
            "Wait until all programs with both lists have ended.".to_owned(),
        ),
        (Step::StopOld, format!("Then {stop}.")),
    ]
}

/// Returns the steps as text, with a mark at the next one.
pub(super) fn text(steps: &[(Step, String)], step: Step, style: Style) -> String {
    let lines = steps.iter().zip(1..).map(|((at, text), number)| {
        let mark = if *at == step { "->" } else { "  " };
        format!("  {mark} {number}  {}", style.indented(text, 8))
    });
    lines.collect()
}
