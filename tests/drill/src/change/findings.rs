//! What the log of the clients says after changes of the masters.

use std::fmt::{self, Write};

use crate::availability::{Outage, RECONNECT, longest_outages};
use crate::check;
use crate::clock::{self, MILLISECOND, Nanos, SECOND};
use crate::episode::Counts;
use crate::history::History;
use crate::spans::{Span, without};

/// The longest time for which no client may acquire any shared lock.
const LONGEST_PAUSE: Nanos = SECOND;

/// What the log of the clients says.
#[derive(Default)]
pub struct Findings {
    pub facts: String,
    length: Nanos,
    counts: Counts,
    overlaps: usize,
    tokens_wrong: usize,
    /// The longest time for which no client acquired any shared lock.
    pause: Nanos,
    /// The same for the locks that each client has for itself.
    probe_pause: Nanos,
    outages: Vec<Outage>,
    stalled: Nanos,
    pub violations: Vec<String>,
}

impl Findings {
    pub fn of(history: &History, work: Span, away: &[Vec<Span>], stalls: &[Span]) -> Self {
        let served = away.iter().map(|away| {
            let and_rest = |span: &Span| Span::new(span.from, span.to + RECONNECT);
            without(work, away.iter().map(and_rest).collect())
        });
        let grants = history.tenures.iter().map(|tenure| tenure.granted);
        let pause = longest_pause(grants, work);
        let probes = history.probes.iter().map(|(_, at)| *at);
        let in_pause = stalls.iter().filter(|stall| stall.meets(pause));
        let stalled: Nanos = in_pause.map(|stall| stall.length()).sum();
        let mut findings = Self {
            length: work.length(),
            pause: pause.length(),
            probe_pause: longest_pause(probes, work).length(),
            outages: longest_outages(history, work, &served.collect::<Vec<_>>(), away),
            stalled: stalls.iter().map(|stall| stall.length()).sum(),
            violations: check::overdue(history, away, stalls, clock::now()),
            ..Self::default()
        };
        if pause.length() > LONGEST_PAUSE + stalled {
            findings
                .violations
                .push(format!("no one acquired a lock for {pause:?}"));
        }
        findings
    }

    pub fn count(&mut self, history: &History, counts: Counts) {
        let mut overlaps = check::overlaps(history);
        overlaps.extend(check::crowds(history));
        self.overlaps = overlaps.len();
        self.violations.extend(overlaps);
        self.violations.extend(check::minimum_times(history));
        let tokens = check::tokens(history, &[]).wrong;
        self.tokens_wrong = tokens.len();
        self.violations.extend(tokens);
        if counts.lost_fenced + counts.lost_in_time > 0 {
            self.violations.push(format!("lost updates: {counts:?}"));
        }
        self.counts = counts;
    }
}

/// Returns the longest time during `work` in which there was no acquisition.
fn longest_pause(acquired: impl Iterator<Item = Nanos>, work: Span) -> Span {
    let within = acquired.filter(|at| (work.from..work.to).contains(at));
    let mut edges: Vec<_> = within.chain([work.from, work.to]).collect();
    edges.sort_unstable();
    let pauses = edges.windows(2).map(|pair| Span::new(pair[0], pair[1]));
    pauses.max_by_key(|pause| pause.length()).unwrap_or(work)
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        let acquired = counts.calls.get("acquired").copied().unwrap_or_default();
        writeln!(f, "{}", self.facts)?;
        writeln!(f, "{:>9}  s", self.length / SECOND)?;
        for (count, what) in [
            (acquired, "acquisitions"),
            (counts.writes, "acknowledged writes"),
            (counts.lost_fenced, "lost updates, fenced"),
            (counts.lost_in_time, "lost updates, not fenced"),
            (counts.lost_late, "lost updates, by late writers"),
            (self.overlaps, "overlaps of validity"),
            (counts.tokens, "tokens compared"),
            (self.tokens_wrong, "tokens out of order, or twice"),
        ] {
            writeln!(f, "{count:>9}  {what}")?;
        }
        let ms = |time: Nanos| time / MILLISECOND;
        for (pause, what) in [
            (self.pause, "any shared lock"),
            (self.probe_pause, "a lock that no one else uses"),
        ] {
            let pause = ms(pause);
            writeln!(
                f,
                "{pause:>6} ms  longest time for which no one acquired {what}"
            )?;
        }
        for outage in &self.outages {
            writeln!(
                f,
                "{:>6} ms  longest time for which a lock was free and wanted: {}",
                ms(outage.span.length()),
                outage.lock.name()
            )?;
        }
        writeln!(
            f,
            "{:>6} ms  in which the drill itself stood still",
            ms(self.stalled)
        )?;
        let mut text = String::new();
        for violation in &self.violations {
            writeln!(text, "VIOLATION: {violation}")?;
        }
        f.write_str(if text.is_empty() {
            "no violation\n"
        } else {
            &text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Client;
    use crate::locks::LockNumber;
    use crate::note::Note;

    /// Returns the history of a client that acquires a lock at these times.
    fn acquired(times: &[Nanos]) -> History {
        let client = Client { place: 0, life: 0 };
        let notes = times.iter().enumerate().flat_map(|(op, &at)| {
            let op = op as u64;
            let asked = Note::Asked {
                op,
                at,
                lock: LockNumber(0),
                came: 0,
                due: at,
                reads: false,
            };
            let got = Note::Got {
                op,
                at,
                asked: at,
                valid_until: at,
                hold_until: 0,
                token: None,
                slot: None,
                owner: String::new(),
            };
            [(client, asked), (client, got)]
        });
        History::of(&notes.collect())
    }

    #[test]
    fn the_longest_pause_is_found_also_at_the_ends() {
        for (times, from, to) in [
            (&[15, 20, 30, 34][..], 20, 30),
            (&[12, 31, 33], 12, 31),
            (&[35, 38], 10, 35),
            (&[11, 12, 50], 12, 40),
            (&[], 10, 40),
        ] {
            let pause = longest_pause(times.iter().copied(), Span::new(10, 40));
            assert_eq!(pause, Span::new(from, to), "{times:?}");
        }
    }

    #[test]
    fn a_pause_that_is_too_long_is_found_unless_the_machine_was_busy() {
        let work = Span::new(0, 3 * SECOND);
        let violations = |at: Nanos, stalls: &[Span]| {
            let history = acquired(&[SECOND, at]);
            let findings = Findings::of(&history, work, &[Vec::new()], stalls);
            findings.violations.len()
        };
        assert_eq!(violations(2 * SECOND, &[]), 0);
        assert_eq!(violations(2 * SECOND + MILLISECOND, &[]), 1);
        let stall = Span::new(2 * SECOND, 2 * SECOND + MILLISECOND);
        assert_eq!(violations(2 * SECOND + MILLISECOND, &[stall]), 0);
        let elsewhere = Span::new(0, SECOND / 2);
        assert_eq!(violations(2 * SECOND + MILLISECOND, &[elsewhere]), 1);
    }
}
