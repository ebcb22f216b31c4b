//! The report of a drill.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::episode::Outcome;
use crate::plan::{CLIENTS, Class, Fault, MASTERS};
use crate::verdict::Counts;

pub struct Report<'a> {
    pub seed: u64,
    pub outcomes: &'a [Outcome],
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcomes = || self.outcomes.iter();
        let length: Nanos = outcomes().map(|one| one.whole.length()).sum();
        let minutes = length as f64 / (60 * SECOND) as f64;
        let (seed, episodes) = (self.seed, self.outcomes.len());
        writeln!(
            f,
            "seed {seed}: {episodes} episodes, {minutes:.1} min, {MASTERS} masters, {CLIENTS} client processes"
        )?;
        let programs: BTreeSet<_> = outcomes().flat_map(|one| &one.programs).collect();
        writeln!(f, "servers: {programs:?}")?;
        let stalls = outcomes().flat_map(|one| &one.stalls);
        let stalls: Vec<_> = stalls.map(|stall| stall.length() / MILLISECOND).collect();
        let (sum, most) = (stalls.iter().sum::<u64>(), stalls.iter().max());
        let count = stalls.len();
        writeln!(
            f,
            "the machine was busy: the drill itself stood still {count} times, {sum} ms in all, {:?} ms at most",
            most.unwrap_or(&0)
        )?;
        for class in [Class::InModel, Class::LateWriters, Class::OutOfModel] {
            self.class(class, f)?;
        }
        writeln!(
            f,
            "\n(l): expected of late writers. (o): expected of faults outside the model.\n"
        )?;
        let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
        for done in outcomes().flat_map(|one| &one.done) {
            *counts.entry(done.event.fault).or_default() += 1;
        }
        writeln!(f, "faults of {} kinds: {counts:?}", counts.len())?;
        for (fault, why) in outcomes().flat_map(|one| &one.failed).take(5) {
            writeln!(f, "not done: {fault:?}: {why}")?;
        }
        for (number, outcome) in outcomes().enumerate() {
            for violation in &outcome.violations {
                writeln!(f, "VIOLATION in episode {number}: {violation}")?;
            }
        }
        match outcomes().all(|one| one.violations.is_empty()) {
            true => writeln!(f, "no violation"),
            false => Ok(()),
        }
    }
}

impl Report<'_> {
    /// The numbers of the episodes of a class, and the longest time without a lock that no one else
    /// uses.
    fn class(&self, class: Class, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcomes = self.outcomes.iter().enumerate();
        let outcomes = || outcomes.clone().filter(|(_, one)| one.class == class);
        let mut sum = Counts::default();
        for (_, outcome) in outcomes() {
            sum.add("faults", outcome.done.len());
            let counts = &outcome.counts.0;
            counts
                .iter()
                .for_each(|(name, count)| sum.add(name, *count));
        }
        write!(f, "\nepisodes {class}: {}\n{sum}", outcomes().count())?;
        let gaps = outcomes().filter_map(|(number, one)| Some((number, one.probe.as_ref()?)));
        let Some((number, gap)) = gaps.max_by_key(|(_, gap)| gap.length) else {
            return Ok(());
        };
        let (place, span, ms) = (gap.place, gap.span, gap.length / MILLISECOND);
        writeln!(
            f,
            "{ms:>6} ms  longest time for which a client that could do so did not get a lock that no \
             one else uses, from 2 s after each fault on, without stalls: client {place}, episode {number}, {span:?}"
        )
    }
}
