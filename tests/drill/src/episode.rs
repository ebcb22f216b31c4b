//! One episode: masters, clients, faults, and the checks on what happened.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use quorlock::Quarantine;
use testkit::random::Random;
use tokio::runtime::Runtime;

use crate::Result;
use crate::availability::{self, Gap};
use crate::check;
use crate::client::Orders;
use crate::clock::{self, Nanos, SECOND, WrongClock};
use crate::fleet::{Fleet, Log};
use crate::history::History;
use crate::links::Link;
use crate::locks::{LockNumber, MOST_TTL};
use crate::masters::Master;
use crate::nemesis::{Done, Nemesis};
use crate::note::Note;
use crate::plan::{CLIENTS, Class, Episode, Fault, MASTERS};
use crate::spans::Span;
use crate::store::Store;
use crate::verdict::{Counts, Verdict};
use crate::watch::{Seen, Watch};

/// The settings that all episodes of a drill share.
pub struct Setting {
    pub programs: Vec<Option<PathBuf>>,
    pub shim: Option<PathBuf>,
    /// The folder for the files of the present episode.
    pub directory: PathBuf,
}

/// The results of an episode.
#[derive(Debug)]
pub struct Outcome {
    pub class: Class,
    pub whole: Span,
    pub programs: Vec<String>,
    pub done: Vec<Done>,
    pub failed: Vec<(Fault, String)>,
    pub log: Log,
    pub counts: Counts,
    /// The longest time for which a client did not get a lock that no one else uses.
    pub probe: Option<Gap>,
    /// The times for which the drill itself did not get to run.
    pub stalls: Vec<Span>,
    /// A line for each violation.
    pub violations: Vec<String>,
}

impl Setting {
    /// Runs an episode. The calling thread must outlive the drill.
    pub fn run(&self, episode: &Episode) -> Result<Outcome> {
        let _ = fs::remove_dir_all(&self.directory);
        fs::create_dir_all(&self.directory)?;
        // All tasks of the episode end with its runtime.
        let runtime = Runtime::new()?;
        let _inside = runtime.enter();
        let mut masters = self.start_masters(episode)?;
        let ports: Vec<_> = masters.iter().map(|master| master.server.port()).collect();
        let socket = self.directory.join("store");
        let store = Store::serve(&socket)?;
        let links = runtime.block_on(links(&ports))?;
        let from = clock::now();
        let watch = Watch::start(&ports, episode.quarantine);
        let mut fleet = Fleet::start(self.orders(episode, &links, &socket)?)?;
        if episode.quarantine == Quarantine::Observed {
            fleet.wait_until_ready()?;
        }
        let programs = masters
            .iter()
            .map(|master| master.program.clone())
            .collect();
        let mut nemesis = Nemesis::new(&mut masters, &mut fleet, &links);
        nemesis.carry_out(&episode.events);
        let (done, failed) = (nemesis.done, nemesis.failed);
        let mut violations = recover(&watch, &fleet, episode.class);
        let told_to_end = clock::now();
        let log = fleet.finish()?;
        let to = clock::now();
        violations.append(&mut fleet.failures);
        violations.extend(leftovers(&masters));
        let history = History::of(&log);
        let seen = watch.stop();
        let forgotten = forgotten(episode.class, &done);
        let is_strict = episode.class != Class::OutOfModel;
        let verdict = Verdict::of(&history, &store.resources(), is_strict, &forgotten);
        violations.extend(verdict.violations);
        let mut outcome = Outcome {
            class: episode.class,
            whole: Span::new(from, to),
            programs,
            done,
            failed,
            log,
            counts: verdict.counts,
            probe: None,
            stalls: Vec::new(),
            violations,
        };
        outcome.judge(episode, &history, seen, &fleet.away, told_to_end);
        Ok(outcome)
    }

    fn start_masters(&self, episode: &Episode) -> Result<Vec<Master>> {
        let mut random = Random::new(episode.seed);
        let start = |index| {
            let program = &self.programs[random.index(self.programs.len())];
            let shim = self.shim.as_deref();
            Master::start(episode, index, program.as_deref(), shim, &self.directory)
        };
        (0..MASTERS).map(start).collect()
    }

    fn orders(&self, episode: &Episode, links: &[Vec<Link>], store: &Path) -> Result<Vec<Orders>> {
        let order = |(place, links): (usize, &Vec<Link>)| {
            let masters: Vec<_> = links.iter().map(Link::url).collect();
            let runs = place < episode.runners;
            Ok(Orders {
                store: store.to_owned(),
                quarantine: episode.quarantine,
                is_careless: episode.class == Class::LateWriters,
                is_threaded: episode.is_threaded[place],
                least_ttl: episode.least_ttl,
                clock: self.wall_clock(place, episode.wall_clocks[place])?,
                configuration: match runs {
                    true => Some(self.configure(place, &masters)?),
                    false => None,
                },
                masters,
                old_masters: Vec::new(),
                seed: episode.seed.wrapping_add(place as u64),
            })
        };
        links.iter().enumerate().map(order).collect()
    }

    fn wall_clock(&self, place: usize, ahead: i64) -> Result<Option<(PathBuf, WrongClock)>> {
        let Some(library) = &self.shim else {
            return Ok(None);
        };
        let path = self.directory.join(format!("wall-clock-{place}"));
        let library = fs::canonicalize(library)?;
        Ok(Some((library, WrongClock::new(path, ahead, 0)?)))
    }

    /// Writes a configuration file for the command line.
    fn configure(&self, place: usize, masters: &[String]) -> Result<PathBuf> {
        let path = self.directory.join(format!("quorlock-{place}.toml"));
        let max_ttl = MOST_TTL.as_millis();
        let set = format!(
            "[profile.drill]\nmasters = {masters:?}\nquarantine = \"strict\"\n\
             ttl = \"{max_ttl}ms\"\nmax_ttl = \"{max_ttl}ms\"\n"
        );
        fs::write(&path, set)?;
        Ok(path)
    }
}

async fn links(ports: &[u16]) -> Result<Vec<Vec<Link>>> {
    let mut links = Vec::new();
    for _ in 0..CLIENTS {
        let mut to_all = Vec::new();
        for &port in ports {
            to_all.push(Link::start(port).await?);
        }
        links.push(to_all);
    }
    Ok(links)
}

/// Waits until all masters have a vote again, and every lock has been acquired after that. Returns
/// a violation if that takes too long.
fn recover(watch: &Watch, fleet: &Fleet, class: Class) -> Vec<String> {
    // After a FLUSHALL, the key of the guard is missing until a client dials. Meanwhile, the master
    // has its vote, but the watch cannot see it.
    if class != Class::OutOfModel && !wait_for(|| watch.is_well()) {
        return vec![format!(
            "a master has no vote {RECOVERY:?} after the last fault"
        )];
    }
    let start = fleet.log_length();
    let mut left: HashSet<_> = LockNumber::all().collect();
    let all_acquired = wait_for(|| {
        fleet.look(start, |log| {
            for (_, note) in log {
                if let Note::Got { lock, .. } = note {
                    left.remove(lock);
                }
            }
        });
        left.is_empty()
    });
    if all_acquired {
        return Vec::new();
    }
    let names: Vec<_> = left.into_iter().map(LockNumber::name).collect();
    vec![format!(
        "not acquired within {RECOVERY:?} after the last fault: {names:?}"
    )]
}

/// Waits until `is_done`, and returns whether that happened in time. Time for which this process
/// does not get to run does not count, because the clients do not get to run then, either.
fn wait_for(mut is_done: impl FnMut() -> bool) -> bool {
    let polls = RECOVERY.as_millis() / POLL.as_millis();
    (0..polls).any(|_| {
        thread::sleep(POLL);
        is_done()
    })
}

/// The longest time for a recovery. It is long, because the machine may be busy. The report says
/// how long locks were really not to be had.
const RECOVERY: Duration = Duration::from_secs(60);

/// Returns a violation if the key of a lock stays on a master although all clients have ended.
fn leftovers(masters: &[Master]) -> Vec<String> {
    // What masters know of themselves and the counters of tokens stay. The keys of queues end.
    let stays_there = ["quorlock:origin", "quorlock:fence:"];
    let is_lock = |key: &&str| !stays_there.iter().any(|kept| key.starts_with(kept));
    let has_lock = |master: &Master| {
        // A busy machine may take too long for a reply.
        let keys = master.command(&["KEYS", "*"]);
        keys.map_or(true, |keys| keys.lines().any(|key| is_lock(&key)))
    };
    let stays = |master: &&Master| !wait_for(|| !has_lock(master));
    let left = masters.iter().filter(stays);
    left.map(|master| format!("the key of a lock stays on {}", master.program))
        .collect()
}

const POLL: Duration = Duration::from_millis(20);

/// The longest time for which a client that is served does not get a lock that no one else uses.
const LONGEST_PROBE: Nanos = 5 * SECOND;

impl Outcome {
    /// Makes the checks that need the watch of the masters. The clients were told to end at `end`.
    fn judge(
        &mut self,
        episode: &Episode,
        history: &History,
        seen: Seen,
        away: &[Vec<Span>],
        end: Nanos,
    ) {
        let fair = check::fair_order(history, &seen.records);
        self.counts
            .add("fair grants compared with queues", fair.compared);
        self.counts.add("fair inversions (o)", fair.wrong.len());
        self.violations
            .extend(check::overdue(history, away, &seen.stalls, self.whole.to));
        let unwell: Vec<_> = seen.records.into_iter().map(|one| one.unwell).collect();
        let work = Span::new(self.whole.from, end);
        let mut served = availability::served(work, &unwell, &self.done, away);
        served[..episode.runners].fill(Vec::new()); // they only run commands
        self.probe = availability::longest_wait_of_a_probe(history, &served, &seen.stalls);
        if self.class != Class::OutOfModel {
            self.violations.extend(fair.wrong);
            let late = self.probe.iter().filter(|gap| gap.length > LONGEST_PROBE);
            let lines = late.map(|gap| format!("a lock that no one else uses: {gap:?}"));
            self.violations.extend(lines);
        }
        self.stalls = seen.stalls;
    }
}

/// Returns the times at which masters may have forgotten their counters and voted at once.
fn forgotten(class: Class, done: &[Done]) -> Vec<Nanos> {
    let is_forgotten = |done: &&Done| {
        let fault = done.event.fault;
        class == Class::OutOfModel && (fault == Fault::FlushAll || fault.is_forgetful())
    };
    let forgotten = done.iter().filter(is_forgotten);
    forgotten
        .flat_map(|done| [done.span.from, done.span.to])
        .collect()
}
