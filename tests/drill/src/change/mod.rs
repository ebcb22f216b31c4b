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

use self::findings::Findings;
use crate::client::Orders;
use crate::clock;
use crate::episode::Counts;
use crate::fleet::Fleet;
use crate::history::History;
use crate::locks::{LEAST_TTL, QUARANTINE, settings};
use crate::masters;
use crate::plan::MASTERS;
use crate::spans::Span;
use crate::store::Store;
use crate::watch::Watch;
use crate::{OUTPUT, Result};

mod findings;

const USAGE: &str = "usage: drill change [ROUNDS] [--short] [--one-step] [--seed NUMBER]";

/// The number of client processes.
const CLIENTS: usize = 8;

/// The wait before the first client with only new masters, when no client with only old masters
/// lives any more: the longest TTL with its drift, or three seconds if that is shorter.
const WAIT: Duration = QUARANTINE;

struct Options {
    /// In each round, the masters are replaced one by one, and then all at once.
    rounds: u64,
    /// Makes one change only: all masters at once.
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
        let rounds = if self.is_short { 1 } else { self.rounds };
        let one_by_one = if self.is_short { 0 } else { MASTERS };
        let mut round = vec![1; one_by_one];
        round.push(MASTERS);
        (0..rounds).flat_map(|_| round.clone()).collect()
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
    let mut drill = Drill::start(options, &socket, &runtime)?;
    let quarantine = drill.orders[0].quarantine;
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
            leaving: Vec::new(),
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
    fn change(&mut self, count: usize, in_one_step: bool, runtime: &Runtime) -> Result<()> {
        let began = Instant::now();
        let mut next = self.servers[count..].to_vec();
        next.extend((0..count).map(|_| start(&self.programs, &mut self.random)));
        get_to_know(&next, self.orders[0].quarantine, runtime)?;
        if !in_one_step {
            self.restart_all(&urls(&next), &urls(&self.servers))?;
            thread::sleep(WAIT);
        }
        self.restart_all(&urls(&next), &[])?;
        self.servers = next;
        println!(
            "replaced {count} of {MASTERS} masters in {:.1?}",
            began.elapsed()
        );
        Ok(())
    }

    /// Restarts the clients one after the other, in any order, with these masters.
    fn restart_all(&mut self, masters: &[String], leaving: &[String]) -> Result<()> {
        let mut left: Vec<_> = (0..CLIENTS).collect();
        while !left.is_empty() {
            let place = left.swap_remove(self.random.index(left.len()));
            let orders = &mut self.orders[place];
            orders.masters = masters.to_vec();
            orders.leaving = leaving.to_vec();
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
        locks.all_ready(Duration::from_secs(30)).await?;
        locks.close().await;
        Ok(())
    })
}
