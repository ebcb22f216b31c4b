//! Changes of the masters: client processes go from one list of masters to another without a gap,
//! by the steps in `docs/operations.md`. Some of them are killed on the way.

use std::fmt::{self, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use quorlock::Quarantine;
use testkit::random::Random;
use testkit::server::Server;
use tokio::runtime::Runtime;

use crate::availability::{Outage, RECONNECT, longest_outages};
use crate::check;
use crate::client::Orders;
use crate::clock::{self, MILLISECOND, Nanos, SECOND};
use crate::episode::Counts;
use crate::fleet::Fleet;
use crate::history::History;
use crate::locks::{LEAST_TTL, QUARANTINE, settings};
use crate::plan::MASTERS;
use crate::spans::{Span, without};
use crate::store::Store;
use crate::watch::Watch;
use crate::{OUTPUT, Result, masters};

/// The first argument of the program for such a drill.
pub const WORD: &str = "change";

const USAGE: &str = "usage: drill change [ROUNDS] [--short] [--one-step] [--seed NUMBER]";

/// The number of client processes.
const CLIENTS: usize = 8;

/// The wait before the first client with only new masters, when no client with only old masters
/// lives any more: the longest TTL with its drift, or three seconds if that is shorter.
const WAIT: Duration = QUARANTINE;

/// The longest time for which no client may acquire any shared lock.
const LONGEST_PAUSE: Nanos = SECOND;

type Masters = Vec<Rc<Server>>;

struct Options {
    /// In each round, the masters are replaced one by one, and then all at once.
    rounds: u64,
    /// Replaces the masters once, all at once.
    is_short: bool,
    /// Leaves out the step with both lists. Clients then overlap.
    in_one_step: bool,
    seed: u64,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            rounds: 1,
            is_short: false,
            in_one_step: false,
            seed: Random::fresh_seed(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--short" => options.is_short = true,
                "--one-step" => options.in_one_step = true,
                "--seed" => {
                    let seed = arguments.next().ok_or(USAGE)?;
                    options.seed = seed.parse().map_err(|_| USAGE)?;
                }
                rounds => options.rounds = rounds.parse().map_err(|_| USAGE)?,
            }
        }
        Ok(options)
    }

    /// Returns how many masters each change replaces.
    fn changes(&self) -> Vec<usize> {
        if self.is_short {
            return vec![MASTERS];
        }
        let one_by_one = [1; MASTERS].into_iter();
        let round: Vec<_> = one_by_one.chain([MASTERS]).collect();
        (0..self.rounds).flat_map(|_| round.clone()).collect()
    }
}

/// Returns whether there was no violation.
pub fn run(arguments: &[String]) -> Result<bool> {
    let options = Options::parse(arguments)?;
    println!("seed {}", options.seed);
    let output = Path::new(OUTPUT);
    fs::create_dir_all(output)?;
    let directory = std::env::temp_dir().join(format!("quorlock-change-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let findings = carry_out(&options, &directory, output);
    let _ = fs::remove_dir_all(directory);
    let findings = findings?;
    println!("\n{findings}");
    fs::write(output.join("change.txt"), findings.to_string())?;
    Ok(findings.violations.is_empty())
}

/// Makes all changes while clients work, and judges what the clients have logged.
fn carry_out(options: &Options, directory: &Path, output: &Path) -> Result<Findings> {
    let runtime = Runtime::new()?;
    let _inside = runtime.enter();
    let socket = directory.join("store");
    let store = Store::serve(&socket)?;
    let mut random = Random::new(options.seed);
    let quarantine = random.pick(&[Quarantine::Observed, Quarantine::Strict]);
    let mut drill = Drill::start(random, quarantine, &socket, &runtime)?;
    let from = clock::now();
    let watch = Watch::start(&[], quarantine);
    for count in options.changes() {
        drill.change(count, options.in_one_step, &runtime)?;
    }
    let work = Span::new(from, clock::now());
    let log = drill.fleet.finish()?;
    let stalls = watch.stop().stalls;
    let history = History::of(&log);
    let mut findings = Findings::of(&history, work, &drill.fleet.away, &stalls);
    findings.count(&history, Counts::of(&history, &store.resources()));
    findings.violations.append(&mut drill.fleet.failures);
    findings.facts = format!(
        "seed {}, guard {quarantine:?}, {} changes, {} clients restarted, {} of them by kill -9",
        options.seed,
        options.changes().len(),
        drill.restarted,
        drill.killed,
    );
    if !findings.violations.is_empty() {
        let line = |(client, note)| format!("{client:?} {note}\n");
        let lines: String = log.into_iter().map(line).collect();
        fs::write(output.join("change.log"), lines)?;
    }
    Ok(findings)
}

/// The clients, and the masters that all of them use.
struct Drill {
    random: Random,
    masters: Masters,
    fleet: Fleet,
    orders: Vec<Orders>,
    programs: Vec<Option<PathBuf>>,
    restarted: usize,
    killed: usize,
}

impl Drill {
    fn start(
        mut random: Random,
        quarantine: Quarantine,
        store: &Path,
        runtime: &Runtime,
    ) -> Result<Self> {
        let programs = masters::programs();
        let masters = start_masters(&programs, MASTERS, &mut random);
        get_to_know(&masters, quarantine, runtime)?;
        let least_ttl = random.pick(&[LEAST_TTL, Duration::from_secs(1)]);
        println!("guard {quarantine:?}, TTLs from {least_ttl:?}");
        let orders = |place| Orders {
            masters: urls(&masters),
            leaving: Vec::new(),
            store: store.to_owned(),
            quarantine,
            is_durable: false,
            is_careless: false,
            is_threaded: random.is_one_in(3),
            least_ttl,
            clock: None,
            configuration: None,
            seed: random.number().wrapping_add(place as u64),
        };
        let orders: Vec<_> = (0..CLIENTS).map(orders).collect();
        let mut fleet = Fleet::start(orders.clone())?;
        fleet.wait_until_ready()?;
        Ok(Self {
            random,
            masters,
            fleet,
            orders,
            programs,
            restarted: 0,
            killed: 0,
        })
    }

    /// Replaces the first `count` masters by new ones at the end of the list.
    fn change(&mut self, count: usize, in_one_step: bool, runtime: &Runtime) -> Result<()> {
        let start = Instant::now();
        let mut next = self.masters[count..].to_vec();
        next.extend(start_masters(&self.programs, count, &mut self.random));
        get_to_know(&next, self.orders[0].quarantine, runtime)?;
        if !in_one_step {
            self.restart_all(&next, &self.masters.clone())?;
            thread::sleep(WAIT);
        }
        self.restart_all(&next, &[])?;
        // The last owner of an old master stops it.
        self.masters = next;
        println!(
            "replaced {count} of {MASTERS} masters in {:.1?}",
            start.elapsed()
        );
        Ok(())
    }

    /// Restarts the clients one after the other, in any order, with these masters.
    fn restart_all(&mut self, masters: &[Rc<Server>], leaving: &[Rc<Server>]) -> Result<()> {
        let mut left: Vec<_> = (0..CLIENTS).collect();
        while !left.is_empty() {
            let place = left.swap_remove(self.random.index(left.len()));
            let orders = &mut self.orders[place];
            orders.masters = urls(masters);
            orders.leaving = urls(leaving);
            let is_killed = self.random.is_one_in(2);
            self.fleet.replace(place, orders.clone(), is_killed)?;
            self.restarted += 1;
            self.killed += usize::from(is_killed);
        }
        Ok(())
    }
}

fn start_masters(programs: &[Option<PathBuf>], count: usize, random: &mut Random) -> Masters {
    let start = |_| {
        let program = &programs[random.index(programs.len())];
        Rc::new(Server::start_program(program.as_deref(), &[], &[]))
    };
    (0..count).map(start).collect()
}

fn urls(masters: &[Rc<Server>]) -> Vec<String> {
    masters.iter().map(|master| master.url()).collect()
}

/// Dials new masters before any client does, and waits until the quarantine of a first contact is
/// over.
fn get_to_know(masters: &[Rc<Server>], quarantine: Quarantine, runtime: &Runtime) -> Result<()> {
    let locks = settings().masters(urls(masters)).quarantine(quarantine);
    let locks = locks.build()?;
    runtime.block_on(async {
        locks.all_ready(Duration::from_secs(30)).await?;
        locks.close().await;
        Ok(())
    })
}

/// What the log of the clients says.
#[derive(Default)]
struct Findings {
    facts: String,
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
    violations: Vec<String>,
}

impl Findings {
    fn of(history: &History, work: Span, away: &[Vec<Span>], stalls: &[Span]) -> Self {
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

    fn count(&mut self, history: &History, counts: Counts) {
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
