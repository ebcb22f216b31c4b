//! Makes a report from the answers of all masters.

use std::cmp::Reverse;

use super::{
    change,
    facts::{MasterAnswer, Ours},
    report::{CheckReport, Finding, join},
    rules, together, unanswered,
};

pub(super) fn judge(masters: &[MasterAnswer], ours: &Ours<'_>) -> CheckReport {
    let single = masters.iter().flat_map(|master| {
        let findings = match &master.facts {
            Ok(facts) => {
                let mut findings = rules::find(facts, ours);
                let unknown = facts.restart_unknown.as_deref();
                findings.extend(unknown.map(unanswered::restart_unknown));
                findings.extend(change::unknown(facts));
                findings
            }
            Err(error) => vec![unanswered::find(error)],
        };
        findings.into_iter().map(|finding| Finding {
            master: Some(master.address.clone()),
            ..finding
        })
    });
    let mut findings = join(&single.collect::<Vec<_>>(), masters.len());
    findings.extend(together::find(masters, ours));
    findings.sort_by_key(|finding| Reverse(finding.severity));
    CheckReport { findings }
}
