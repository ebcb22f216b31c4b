//! The report of a drill.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use quorlock::Kind;

use crate::availability::{Outage, Waiter};
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::episode::{Counts, Outcome, of_kind};
use crate::locks::KINDS;
use crate::plan::{CLIENTS, Class, Fault, MASTERS};
use crate::spans::Span;

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
        f.write_str(&self.outages())?;
        f.write_str(&self.waits())?;
        f.write_str(&self.probes())?;
        f.write_str(&self.violations())
    }
}

impl Report<'_> {
    /// A row for each number, and a column for each class of episodes.
    fn numbers(&self) -> String {
        let classes = [Class::InModel, Class::LateWriters, Class::OutOfModel];
        let of_class = |class: Class| {
            let outcomes = self.outcomes.iter().filter(move |one| one.class == class);
            outcomes.fold(
                (Counts::default(), [0; KINDS.len()], 0),
                |(mut counts, mut kinds, faults), one| {
                    counts.add(&one.counts);
                    for (sum, count) in kinds.iter_mut().zip(of_kind(&one.grants)) {
                        *sum += count;
                    }
                    (counts, kinds, faults + one.done.len())
                },
            )
        };
        let all = classes.map(of_class);
        let mut text = String::new();
        let mut row = |name: &str, numbers: [usize; 3]| {
            let [a, b, c] = numbers;
            let _ = writeln!(text, "{name:<56} {a:>9} {b:>12} {c:>12}");
        };
        for (index, kind) in KINDS.iter().enumerate() {
            row(
                &format!("acquisitions, {kind}"),
                all.each_ref().map(|one| one.1[index]),
            );
        }
        let calls = |one: &Counts| one.calls.values().sum();
        row(
            "attempts, also failed and cancelled ones",
            all.each_ref().map(|one| calls(&one.0)),
        );
        row("faults", all.each_ref().map(|one| one.2));
        for (name, count) in ROWS {
            row(name, all.each_ref().map(|one| count(&one.0)));
        }
        let heading = format!(
            "{:<56} {:>9} {:>12} {:>12}\n",
            "", classes[0], classes[1], classes[2]
        );
        heading
            + &text
            + "(l): expected of late writers. (o): expected of faults outside the model.\n\n"
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

    /// The longest outage of each kind in each class, with the faults around it.
    fn outages(&self) -> String {
        let mut text = "longest time for which a lock was free and wanted by a client that could \
             reach a majority of voting masters,\nfrom 2 s after each fault on, when clients have \
             reconnected, and without that allowance:\n"
            .to_owned();
        for class in [Class::InModel, Class::LateWriters, Class::OutOfModel] {
            for kind in KINDS {
                text += &self.longest(class, kind);
            }
        }
        text + "\n"
    }

    fn longest(&self, class: Class, kind: Kind) -> String {
        let outcomes = self.outcomes.iter().enumerate();
        let of_class = outcomes.filter(|(_, one)| one.class == class);
        let longest = |outages: fn(&Outcome) -> &[Outage]| {
            let all = of_class.clone().flat_map(move |(number, outcome)| {
                outages(outcome)
                    .iter()
                    .map(move |outage| (number, outcome, outage))
            });
            let of_kind = all.filter(|(.., outage)| outage.kind == kind);
            of_kind.max_by_key(|(.., outage)| outage.span.length())
        };
        let length = |found: Option<(usize, &Outcome, &Outage)>| {
            found.map_or(0.0, |(.., one)| one.span.length() as f64 / SECOND as f64)
        };
        let (found, any) = (
            longest(|one| &one.outages),
            longest(|one| &one.outages_with_reconnects),
        );
        let head = format!(
            "  {:>6.3} s {:>6.3} s  {class}, {kind}",
            length(found),
            length(any)
        );
        found.map_or(format!("{head}\n"), |(number, outcome, outage)| {
            head + &around(number, outcome, outage)
        })
    }

    /// The longest wait of each waiter in each class.
    fn waits(&self) -> String {
        let mut text = "longest wait, in vain or not, while the client could reach a majority of \
             voting masters,\nfrom 2 s after each fault on:\n"
            .to_owned();
        for class in [Class::InModel, Class::LateWriters, Class::OutOfModel] {
            for waiter in Waiter::ALL {
                let outcomes = self.outcomes.iter().enumerate();
                let of_class = outcomes.filter(|(_, one)| one.class == class);
                let waits = of_class
                    .flat_map(|(number, one)| one.waits.iter().map(move |wait| (number, wait)));
                let longest = waits
                    .filter(|(_, wait)| wait.waiter == waiter)
                    .max_by_key(|(_, wait)| wait.span.length());
                if let Some((number, wait)) = longest {
                    let seconds = wait.span.length() as f64 / SECOND as f64;
                    let (waiter, lock) = (waiter.name(), wait.lock.name());
                    let _ = writeln!(
                        text,
                        "  {seconds:>6.3} s  {class}, {waiter}: {lock}, episode {number}"
                    );
                }
            }
        }
        text + "\n"
    }

    /// The longest time without a lock that no one else uses, in each class.
    fn probes(&self) -> String {
        let mut text = "longest time for which a client that could do so did not get a lock that \
             no one else uses,\nfrom 2 s after each fault on, without stalls of the machine:\n"
            .to_owned();
        for class in [Class::InModel, Class::LateWriters, Class::OutOfModel] {
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

/// Describes an outage and the faults around it.
fn around(number: usize, outcome: &Outcome, outage: &Outage) -> String {
    let start = (outage.span.from - outcome.whole.from) as f64 / SECOND as f64;
    let mut text = format!(
        ": {}, episode {number} at {start:.1} s\n",
        outage.lock.name()
    );
    let around = Span::new(outage.span.from.saturating_sub(3 * SECOND), outage.span.to);
    for done in outcome.done.iter().filter(|done| done.span.meets(around)) {
        let after = |at: Nanos| (at as i64 - outage.span.from as i64) / MILLISECOND as i64;
        let _ = write!(
            text,
            "            {:>6} to {:>5} ms: {}",
            after(done.span.from),
            after(done.span.to),
            done.event.fault.name(),
        );
        if !done.event.masters.is_empty() {
            let _ = write!(text, ", masters {:?}", done.event.masters);
        }
        match done.event.clients.len() {
            0 => {}
            CLIENTS => text += ", all clients",
            _ => {
                let _ = write!(text, ", clients {:?}", done.event.clients);
            }
        }
        text += "\n";
    }
    let stalls = outcome
        .stalls
        .iter()
        .filter(|stall| stall.meets(outage.span));
    let stalled: Nanos = stalls.map(|stall| stall.length()).sum();
    let failures = outcome.failures.iter().filter(|failure| {
        failure.lock == outage.lock && outage.span.from < failure.at && failure.at <= outage.span.to
    });
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for failure in failures {
        *reasons.entry(&failure.why).or_default() += 1;
    }
    let _ = writeln!(
        text,
        "            failed meanwhile: {reasons:?}; the drill itself stood still for {} ms",
        stalled / MILLISECOND
    );
    text
}

type Row = (&'static str, fn(&Counts) -> usize);

const ROWS: [Row; 13] = [
    ("commands run by quorlock run", |one| one.commands),
    ("acknowledged writes", |one| one.writes),
    ("lost updates, fenced", |one| one.lost_fenced),
    (
        "lost updates, not fenced, between valid holders (o)",
        |one| one.lost_in_time,
    ),
    ("lost updates, not fenced, by late writers (l, o)", |one| {
        one.lost_late
    }),
    (
        "writes after the end of the validity, not refused (l)",
        |one| one.late_writes,
    ),
    ("accesses refused by the fence", |one| one.refused_by_fence),
    ("overlaps of validity (o)", |one| one.overlaps),
    ("tokens compared", |one| one.tokens),
    ("tokens out of order, or twice", |one| one.tokens_wrong),
    ("... within 9 s around a loss of counters (o)", |one| {
        one.tokens_excused
    }),
    ("fair grants compared with queues", |one| one.fair_compared),
    ("fair inversions (o)", |one| one.fair_wrong),
];
