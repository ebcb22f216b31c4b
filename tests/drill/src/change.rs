//! Changes of the masters: client processes go from one list to another without a gap, by the steps
//! in `docs/operations.md`. Some of them are killed on the way.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use quorlock::Quarantine;
use testkit::random::Random;
use testkit::server::Server;
use tokio::runtime::Runtime;

use crate::check;
use crate::client::Orders;
use crate::clock::{self, MILLISECOND, Nanos, SECOND};
use crate::fleet::Fleet;
use crate::history::History;
use crate::locks::{LEAST_TTL, QUARANTINE, settings};
use crate::masters;
use crate::plan::MASTERS;
use crate::spans::{self, Span};
use crate::store::Store;
use crate::verdict::Verdict;
use crate::watch::Watch;
use crate::{OUTPUT, Options, Result};

/// The number of client processes.
const CLIENTS: usize = 8;

/// The wait before the first client with only new masters, when no client with only old masters
/// lives any more: the longest TTL with its drift, or three seconds if that is shorter.
const WAIT: Duration = QUARANTINE;

/// The longest time for which no client may acquire any shared lock.
const LONGEST_PAUSE: Nanos = SECOND;

/// Returns how many masters each change replaces: in each round, they are replaced one by one, and
/// then all at once. A short drill only does the latter.
fn changes(options: &Options) -> Vec<usize> {
    if options.is_short {
        return vec![MASTERS];
    }
    let round = [[1; MASTERS].as_slice(), &[MASTERS]].concat();
    round.repeat(options.count.unwrap_or(1) as usize)
}

/// Returns whether there was no violation.
pub fn run(options: &Options) -> Result<bool> {
    println!("seed {}", options.seed);
    let output = Path::new(OUTPUT);
    fs::create_dir_all(output)?;
    let directory = std::env::temp_dir().join(format!("quorlock-change-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let ended = carry_out(options, &directory, output);
    let _ = fs::remove_dir_all(directory);
    let (report, is_good) = ended?;
    println!("\n{report}");
    fs::write(output.join("change.txt"), report)?;
    Ok(is_good)
}

/// Makes all changes while clients work, and judges what the clients have logged. Returns the
/// report, and whether there was no violation.
fn carry_out(options: &Options, directory: &Path, output: &Path) -> Result<(String, bool)> {
    let runtime = Runtime::new()?;
    let _inside = runtime.enter();
    let socket = directory.join("store");
    let store = Store::serve(&socket)?;
    let mut drill = Drill::start(options, &socket, &runtime)?;
    let quarantine = drill.orders[0].quarantine;
    let from = clock::now();
    let watch = Watch::start(&[], quarantine);
    let changes = changes(options);
    for &count in &changes {
        drill.change(count, &runtime)?;
    }
    let work = Span::new(from, clock::now());
    let log = drill.fleet.finish()?;
    let stalls = watch.stop().stalls;
    let history = History::of(&log);
    let mut verdict = Verdict::of(&history, &store.resources(), true, &[]);
    let violations = &mut verdict.violations;
    violations.append(&mut drill.fleet.failures);
    violations.extend(check::overdue(
        &history,
        &drill.fleet.away,
        &stalls,
        clock::now(),
    ));
    let grants = history.tenures.iter().map(|tenure| tenure.granted);
    let pause = longest_pause(grants, work);
    violations.extend(too_long(pause, &stalls));
    let probes = longest_pause(history.probes.iter().map(|(_, at)| *at), work);
    let mut report = format!(
        "seed {}, guard {quarantine:?}, {} changes, {} clients restarted, {} of them by kill -9\n{}",
        options.seed,
        changes.len(),
        drill.restarted,
        drill.killed,
        verdict.counts,
    );
    let stalled: Nanos = stalls.iter().map(|stall| stall.length()).sum();
    for (time, what) in [
        (
            pause.length(),
            "longest time for which no one acquired any shared lock",
        ),
        (
            probes.length(),
            "longest time for which no one acquired a lock that no one else uses",
        ),
        (stalled, "in which the drill itself stood still"),
    ] {
        report += &format!("{:>6} ms  {what}\n", time / MILLISECOND);
    }
    for violation in &verdict.violations {
        report += &format!("VIOLATION: {violation}\n");
    }
    if !verdict.violations.is_empty() {
        let lines: String = log.iter().map(|line| format!("{line:?}\n")).collect();
        fs::write(output.join("change.log"), lines)?;
    }
    Ok((report, verdict.violations.is_empty()))
}

/// Returns the longest time during `work` in which there was no acquisition.
fn longest_pause(acquired: impl Iterator<Item = Nanos>, work: Span) -> Span {
    let within = acquired.filter(|at| (work.from..work.to).contains(at));
    let mut edges: Vec<_> = within.chain([work.from, work.to]).collect();
    edges.sort_unstable();
    let pauses = edges.windows(2).map(|pair| Span::new(pair[0], pair[1]));
    pauses.max_by_key(|pause| pause.length()).unwrap_or(work)
}

/// Returns a violation if the pause is too long. Time for which the machine was too busy to run the
/// drill does not count.
fn too_long(pause: Span, stalls: &[Span]) -> Option<String> {
    let is_too_long = pause.length() > LONGEST_PAUSE + spans::stalled(stalls, pause);
    is_too_long.then(|| format!("no one acquired a lock for {pause:?}"))
}

/// The clients, and the masters that all of them use.
struct Drill {
    random: Random,
    programs: Vec<Option<PathBuf>>,
    /// The last owner of a server stops it.
    servers: Vec<Rc<Server>>,
    fleet: Fleet,
    orders: Vec<Orders>,
    restarted: usize,
    killed: usize,
}

impl Drill {
    fn start(options: &Options, store: &Path, runtime: &Runtime) -> Result<Self> {
        let mut random = Random::new(options.seed);
        let quarantine = random.pick(&[Quarantine::Observed, Quarantine::Strict]);
        let programs = masters::programs();
        let servers: Vec<_> = (0..MASTERS)
            .map(|_| start(&programs, &mut random))
            .collect();
        get_to_know(&servers, quarantine, runtime)?;
        let least_ttl = random.pick(&[LEAST_TTL, Duration::from_secs(1)]);
        println!("guard {quarantine:?}, TTLs from {least_ttl:?}");
        let orders = |place| Orders {
            masters: urls(&servers),
            old_masters: Vec::new(),
            store: store.to_owned(),
            quarantine,
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
            programs,
            servers,
            fleet,
            orders,
            restarted: 0,
            killed: 0,
        })
    }

    /// Replaces the first masters of the list by new ones at its end.
    fn change(&mut self, count: usize, runtime: &Runtime) -> Result<()> {
        let began = Instant::now();
        let mut next = self.servers[count..].to_vec();
        next.extend((0..count).map(|_| start(&self.programs, &mut self.random)));
        get_to_know(&next, self.orders[0].quarantine, runtime)?;
        self.restart_all(&urls(&next), &urls(&self.servers))?;
        thread::sleep(WAIT);
        self.restart_all(&urls(&next), &[])?;
        self.servers = next;
        println!(
            "replaced {count} of {MASTERS} masters in {:.1?}",
            began.elapsed()
        );
        Ok(())
    }

    /// Restarts the clients one after the other, in any order, with these masters.
    fn restart_all(&mut self, masters: &[String], old_masters: &[String]) -> Result<()> {
        let mut left: Vec<_> = (0..CLIENTS).collect();
        while !left.is_empty() {
            let place = left.swap_remove(self.random.index(left.len()));
            let orders = &mut self.orders[place];
            orders.masters = masters.to_vec();
            orders.old_masters = old_masters.to_vec();
            let is_killed = self.random.is_one_in(2);
            self.fleet.replace(place, orders.clone(), is_killed)?;
            self.restarted += 1;
            self.killed += usize::from(is_killed);
        }
        Ok(())
    }
}

fn start(programs: &[Option<PathBuf>], random: &mut Random) -> Rc<Server> {
    let program = &programs[random.index(programs.len())];
    Rc::new(Server::start_program(program.as_deref(), &[], &[]))
}

fn urls(servers: &[Rc<Server>]) -> Vec<String> {
    servers.iter().map(|server| server.url()).collect()
}

/// Dials new masters before any client does, and waits until the quarantine of a first contact is
/// over.
fn get_to_know(servers: &[Rc<Server>], quarantine: Quarantine, runtime: &Runtime) -> Result<()> {
    let settings = settings().quarantine(quarantine).masters(urls(servers));
    runtime.block_on(async {
        let locks = settings.build()?;
        locks.all_ready_within(Duration::from_secs(30)).await?;
        locks.close().await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = |length, stalls: &[Span]| too_long(Span::new(0, length), stalls).is_some();
        let stall = Span::new(SECOND / 2, SECOND / 2 + MILLISECOND);
        let elsewhere = Span::new(2 * SECOND, 3 * SECOND);
        assert!(!found(SECOND, &[]));
        assert!(found(SECOND + MILLISECOND, &[]));
        assert!(!found(SECOND + MILLISECOND, &[stall]));
        assert!(found(SECOND + MILLISECOND, &[elsewhere]));
    }
}
