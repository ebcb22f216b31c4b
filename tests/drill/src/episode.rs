//! One episode: masters, clients, faults, and the checks on what happened.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use quorlock::{Kind, Quarantine};
use testkit::random::Random;
use tokio::runtime::Runtime;

use crate::Result;
use crate::availability::{self, Gap, Outage, RECONNECT, Wait};
use crate::check;
use crate::client::Orders;
use crate::clock::{self, Nanos, SECOND, WrongClock};
use crate::fleet::{Client, Fleet, Log};
use crate::history::{Failure, History};
use crate::links::Link;
use crate::locks::{KINDS, LockNumber, MOST_TTL};
use crate::masters::Master;
use crate::nemesis::{Done, Nemesis};
use crate::note::Note;
use crate::plan::{CLIENTS, Class, Episode, Fault, MASTERS};
use crate::spans::Span;
use crate::store::{Resource, Store};
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
    /// The time at which the clients were told to end.
    told_to_end: Nanos,
    pub programs: Vec<String>,
    pub done: Vec<Done>,
    pub failed: Vec<(Fault, String)>,
    pub log: Log,
    /// The time of each grant, with its kind.
    pub grants: Vec<(Kind, Nanos)>,
    pub counts: Counts,
    /// The longest outages while clients had time to reconnect after each fault.
    pub outages: Vec<Outage>,
    /// The longest outages, also while clients reconnected.
    pub outages_with_reconnects: Vec<Outage>,
    /// The longest waits of those who wait among many.
    pub waits: Vec<Wait>,
    pub failures: Vec<Failure>,
    /// The longest time for which a client did not get a lock that no one else uses.
    pub probe: Option<Gap>,
    /// The times for which the drill itself did not get to run.
    pub stalls: Vec<Span>,
    /// A line for each violation.
    pub violations: Vec<String>,
}

/// The numbers of an episode, or of several episodes.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Every attempt to get a lock, by its outcome.
    pub calls: BTreeMap<String, usize>,
    /// The commands that ran under `quorlock run`.
    pub commands: usize,
    pub writes: usize,
    pub late_writes: usize,
    pub refused_by_fence: usize,
    pub lost_fenced: usize,
    /// Lost updates of resources without a fence, between holders that were all valid.
    pub lost_in_time: usize,
    /// Lost updates of resources without a fence, because of a late writer.
    pub lost_late: usize,
    pub overlaps: usize,
    pub tokens: usize,
    pub tokens_wrong: usize,
    pub tokens_excused: usize,
    pub fair_compared: usize,
    pub fair_wrong: usize,
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
        let mut outcome = Outcome {
            class: episode.class,
            whole: Span::new(from, to),
            told_to_end,
            programs,
            done,
            failed,
            log,
            grants: history
                .tenures
                .iter()
                .map(|one| (one.lock.kind(), one.granted))
                .collect(),
            counts: Counts::default(),
            outages: Vec::new(),
            outages_with_reconnects: Vec::new(),
            waits: Vec::new(),
            failures: Vec::new(),
            probe: None,
            stalls: Vec::new(),
            violations,
        };
        outcome.judge(
            episode,
            &history,
            &store.resources(),
            watch.stop(),
            &fleet.away,
        );
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
                leaving: Vec::new(),
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
            "[set.drill]\nmasters = {masters:?}\nstrict = true\n\
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
    let before = fleet.look(0, |log| asked_locks(&log[..start]));
    let mut left: HashSet<_> = LockNumber::all().collect();
    let all_acquired = wait_for(|| {
        let acquired = fleet.look(start, |log| acquired_locks(log, &before));
        left.retain(|lock| !acquired.contains(lock));
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

type Asked = BTreeMap<(Client, u64), LockNumber>;

fn asked_locks(log: &[(Client, Note)]) -> Asked {
    let asked = log.iter().filter_map(|(client, note)| match note {
        Note::Asked { op, lock, .. } => Some(((*client, *op), *lock)),
        _ => None,
    });
    asked.collect()
}

fn acquired_locks(log: &[(Client, Note)], before: &Asked) -> HashSet<LockNumber> {
    let asked = asked_locks(log);
    let got = log.iter().filter_map(|(client, note)| match note {
        Note::Got { op, .. } => asked
            .get(&(*client, *op))
            .or(before.get(&(*client, *op)))
            .copied(),
        _ => None,
    });
    got.collect()
}

/// Returns a violation if the key of a lock stays on a master although all clients have ended.
fn leftovers(masters: &[Master]) -> Vec<String> {
    // What masters know of themselves and the counters of tokens stay. The keys of queues end.
    let stays_there = ["quorlock:guard", "quorlock:fence:"];
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
    fn judge(
        &mut self,
        episode: &Episode,
        history: &History,
        resources: &[Resource],
        seen: Seen,
        away: &[Vec<Span>],
    ) {
        let is_strict = episode.class != Class::OutOfModel;
        self.counts = Counts::of(history, resources);

        let mut overlaps = check::overlaps(history);
        overlaps.extend(check::crowds(history));
        self.counts.overlaps = overlaps.len();
        if is_strict {
            self.violations.extend(overlaps);
            self.violations.extend(check::minimum_times(history));
        }
        let tokens = check::tokens(history, &self.forgotten());
        self.counts.tokens_wrong = tokens.wrong.len();
        self.counts.tokens_excused = tokens.excused;
        self.violations.extend(tokens.wrong);
        let fair = check::fair_order(history, &seen.records);
        let unwell: Vec<_> = seen
            .records
            .into_iter()
            .map(|record| record.unwell)
            .collect();
        self.counts.fair_compared = fair.compared;
        self.counts.fair_wrong = fair.wrong.len();
        if is_strict {
            self.violations.extend(fair.wrong);
        }
        self.violations
            .extend(check::overdue(history, away, &seen.stalls, self.whole.to));
        if self.counts.lost_fenced > 0 || is_strict && self.counts.lost_in_time > 0 {
            self.violations
                .push(format!("lost updates: {:?}", self.counts));
        }
        let served = |rest| availability::served(self.whole, &unwell, &self.done, away, rest);
        let longest = |served: &_| availability::longest_outages(history, self.whole, served, away);
        let after_reconnects = served(RECONNECT);
        self.outages_with_reconnects = longest(&served(0));
        self.outages = longest(&after_reconnects);
        self.waits = availability::longest_waits(history, &after_reconnects);
        let work = Span::new(self.whole.from, self.told_to_end);
        let mut served = availability::served(work, &unwell, &self.done, away, RECONNECT);
        served[..episode.runners].fill(Vec::new()); // they only run commands
        self.probe = availability::longest_wait_of_a_probe(history, &served, &seen.stalls);
        let late = self.probe.iter().filter(|gap| gap.length > LONGEST_PROBE);
        if is_strict {
            let lines = late.map(|gap| format!("a lock that no one else uses: {gap:?}"));
            self.violations.extend(lines);
        }
        self.failures = history.failures.clone();
        self.stalls = seen.stalls;
    }

    /// Returns the times at which masters may have forgotten their counters and voted at once.
    fn forgotten(&self) -> Vec<Nanos> {
        use Fault::*;
        let forgetful = [
            CutLog,
            Demote,
            FlushAll,
            KillMaster,
            OldSnapshot,
            RestartEmpty,
            TerminateMaster,
        ];
        let is_forgotten =
            |done: &&Done| self.class == Class::OutOfModel && forgetful.contains(&done.event.fault);
        let forgotten = self.done.iter().filter(is_forgotten);
        forgotten
            .flat_map(|done| [done.span.from, done.span.to])
            .collect()
    }
}

impl Counts {
    /// Counts calls, writes and lost updates.
    pub fn of(history: &History, resources: &[Resource]) -> Self {
        let tenures = history.tenures.iter();
        let mut counts = Self {
            tokens: tenures.clone().filter(|one| one.token.is_some()).count(),
            commands: tenures.filter(|one| one.is_command()).count(),
            ..Self::default()
        };
        for failure in &history.failures {
            *counts.calls.entry(failure.why.clone()).or_default() += 1;
        }
        counts
            .calls
            .insert("acquired".to_owned(), history.tenures.len());
        for (number, resource) in resources.iter().enumerate() {
            let lost = resource.lost();
            counts.writes += resource.writes();
            counts.late_writes += resource.late_writes();
            counts.refused_by_fence += resource.refused;
            if LockNumber::of_resource(number).is_fenced() {
                counts.lost_fenced += lost.in_time + lost.by_late_writers;
            } else {
                counts.lost_in_time += lost.in_time;
                counts.lost_late += lost.by_late_writers;
            }
        }
        counts
    }

    pub fn add(&mut self, other: &Self) {
        for (outcome, count) in &other.calls {
            *self.calls.entry(outcome.clone()).or_default() += count;
        }
        self.commands += other.commands;
        self.writes += other.writes;
        self.late_writes += other.late_writes;
        self.refused_by_fence += other.refused_by_fence;
        self.lost_fenced += other.lost_fenced;
        self.lost_in_time += other.lost_in_time;
        self.lost_late += other.lost_late;
        self.overlaps += other.overlaps;
        self.tokens += other.tokens;
        self.tokens_wrong += other.tokens_wrong;
        self.tokens_excused += other.tokens_excused;
        self.fair_compared += other.fair_compared;
        self.fair_wrong += other.fair_wrong;
    }
}

/// The number of acquisitions of each kind.
pub fn of_kind(grants: &[(Kind, Nanos)]) -> [usize; KINDS.len()] {
    KINDS.map(|kind| grants.iter().filter(|grant| grant.0 == kind).count())
}
