//! What the log of the clients and the resources show, whatever the drill was.

use std::fmt;

use crate::check;
use crate::history::History;
use crate::locks::LockNumber;
use crate::store::Resource;

/// Numbers by their names, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Counts(pub Vec<(String, usize)>);

impl Counts {
    pub fn add(&mut self, name: &str, count: usize) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += count,
            None => self.0.push((name.to_owned(), count)),
        }
    }

    pub fn of(&self, name: &str) -> usize {
        let count = self.0.iter().find(|(known, _)| known == name);
        count.map_or(0, |(_, count)| *count)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = self.0.iter();
        counts.try_for_each(|(name, count)| writeln!(f, "{count:>9}  {name}"))
    }
}

pub struct Verdict {
    pub counts: Counts,
    /// A line for each violation.
    pub violations: Vec<String>,
}

const FENCED: &str = "lost updates, fenced";
const IN_TIME: &str = "lost updates, not fenced, between valid holders (o)";

impl Verdict {
    /// Makes the checks that hold in all drills. If not `is_strict`, exclusion may break.
    /// `forgotten` are the times at which masters lost their counters and voted at once.
    pub fn of(
        history: &History,
        resources: &[Resource],
        is_strict: bool,
        forgotten: &[u64],
    ) -> Self {
        let mut overlaps = check::overlaps(history);
        overlaps.extend(check::crowds(history));
        let tokens = check::tokens(history, forgotten);
        let mut counts = Counts::default();
        for lock in LockNumber::all() {
            let name = format!("acquisitions, {}", lock.kind());
            counts.add(&name, history.of_lock(lock).len());
        }
        let tenures = || history.tenures.iter();
        let commands = tenures().filter(|one| one.is_command()).count();
        counts.add(
            "attempts that failed or were cancelled",
            history.failures.len(),
        );
        counts.add("commands run by quorlock run", commands);
        count_writes(&mut counts, resources);
        counts.add("overlaps of validity (o)", overlaps.len());
        let compared = tenures().filter(|one| one.token.is_some()).count();
        counts.add("tokens compared", compared);
        counts.add("tokens out of order, or twice", tokens.wrong.len());
        counts.add(
            "... within 9 s around a loss of counters (o)",
            tokens.excused,
        );
        let mut violations = tokens.wrong;
        // The fence lets both holders write if their tokens are the same, or in the wrong order.
        let mut lost = match tokens.excused {
            0 => counts.of(FENCED),
            _ => 0,
        };
        if is_strict {
            violations.extend(overlaps);
            violations.extend(check::minimum_times(history));
            lost += counts.of(IN_TIME);
        }
        if lost > 0 {
            violations.push(format!("{lost} lost updates"));
        }
        Self { counts, violations }
    }
}

fn count_writes(counts: &mut Counts, resources: &[Resource]) {
    for (number, resource) in resources.iter().enumerate() {
        let lost = resource.lost();
        let (fenced, in_time, late) = match LockNumber::of_resource(number).is_fenced() {
            true => (lost.in_time + lost.by_late_writers, 0, 0),
            false => (0, lost.in_time, lost.by_late_writers),
        };
        counts.add("acknowledged writes", resource.writes());
        counts.add(FENCED, fenced);
        counts.add(IN_TIME, in_time);
        counts.add("lost updates, not fenced, by late writers (l, o)", late);
        let late = resource.late_writes();
        counts.add(
            "writes after the end of the validity, not refused (l)",
            late,
        );
        counts.add("accesses refused by the fence", resource.refused);
    }
}
