//! The report of a drill.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

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
        let length: Nanos = self.outcomes.iter().map(|one| one.whole.length()).sum();
        writeln!(
            f,
            "seed {}: {} episodes, {:.1} min, {MASTERS} masters, {CLIENTS} client processes",
            self.seed,
            self.outcomes.len(),
            length as f64 / (60 * SECOND) as f64
        )?;
        let programs = self.outcomes.iter().flat_map(|one| &one.programs);
        let programs: BTreeSet<_> = programs.map(String::as_str).collect();
        let programs = programs.into_iter().collect::<Vec<_>>().join(", ");
        let stalls = self.outcomes.iter().flat_map(|one| &one.stalls);
        let stalls: Vec<_> = stalls.map(|stall| stall.length()).collect();
        let ms = |time: Nanos| time / MILLISECOND;
        writeln!(f, "servers: {programs}")?;
        writeln!(
            f,
            "the machine was busy: the drill itself stood still {} times, {} ms in all, {} ms at most\n",
            stalls.len(),
            ms(stalls.iter().sum()),
            ms(stalls.iter().copied().max().unwrap_or_default()),
        )?;
        f.write_str(&self.numbers())?;
        f.write_str(&self.faults())?;
        f.write_str(&self.probes())?;
        f.write_str(&self.violations())
    }
}

impl Report<'_> {
    /// A row for each number, and a column for each class of episodes.
    fn numbers(&self) -> String {
        let of_class = CLASSES.map(|class| {
            let mut sum = Counts::default();
            for outcome in self.outcomes.iter().filter(|one| one.class == class) {
                sum.add("faults", outcome.done.len());
                let counts = &outcome.counts.0;
                counts
                    .iter()
                    .for_each(|(name, count)| sum.add(name, *count));
            }
            sum
        });
        let [a, b, c] = CLASSES;
        let mut text = format!("{:<56} {a:>9} {b:>12} {c:>12}\n", "");
        let all = of_class.iter().max_by_key(|counts| counts.0.len());
        for (name, _) in all.into_iter().flat_map(|counts| &counts.0) {
            let [a, b, c] = of_class.each_ref().map(|counts| counts.of(name));
            let _ = writeln!(text, "{name:<56} {a:>9} {b:>12} {c:>12}");
        }
        text + "(l): expected of late writers. (o): expected of faults outside the model.\n\n"
    }

    fn faults(&self) -> String {
        let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
        for done in self.outcomes.iter().flat_map(|one| &one.done) {
            *counts.entry(done.event.fault).or_default() += 1;
        }
        let mut text = format!("faults of {} kinds:\n", counts.len());
        for (fault, count) in counts {
            let _ = writeln!(text, "  {count:>6}  {}", fault.name());
        }
        let failed = self.outcomes.iter().flat_map(|one| &one.failed);
        for (fault, why) in failed.take(5) {
            let _ = writeln!(text, "  not done: {}: {why}", fault.name());
        }
        text + "\n"
    }

    /// The longest time without a lock that no one else uses, in each class.
    fn probes(&self) -> String {
        let mut text = "longest time for which a client that could do so did not get a lock that \
             no one else uses,\nfrom 2 s after each fault on, without stalls of the machine:\n"
            .to_owned();
        for class in CLASSES {
            let outcomes = self.outcomes.iter().enumerate();
            let of_class = outcomes.filter(|(_, one)| one.class == class);
            let gaps =
                of_class.filter_map(|(number, one)| Some((number, one, one.probe.as_ref()?)));
            let Some((number, one, gap)) = gaps.max_by_key(|(.., gap)| gap.length) else {
                continue;
            };
            let (length, at) = (gap.length, gap.span.from - one.whole.from);
            let seconds = |time: Nanos| time as f64 / SECOND as f64;
            let _ = writeln!(
                text,
                "  {:>6.3} s  {class}: client {}, episode {number} at {:.1} s",
                seconds(length),
                gap.place,
                seconds(at)
            );
        }
        text + "\n"
    }

    fn violations(&self) -> String {
        let mut text = String::new();
        for (number, outcome) in self.outcomes.iter().enumerate() {
            for violation in &outcome.violations {
                let _ = writeln!(text, "VIOLATION in episode {number}: {violation}");
            }
        }
        if text.is_empty() {
            "no violation\n".to_owned()
        } else {
            text
        }
    }
}

const CLASSES: [Class; 3] = [Class::InModel, Class::LateWriters, Class::OutOfModel];
