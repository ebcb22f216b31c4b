//! Measures acquiring and releasing without contention, and compares it to the limit of the machine
//! and to other crates.

use std::time::Duration;

use quorlock_benches::contestants::{
    bare,
    kinds::{Fair, FairAcquire, Fenced, Guarded, Reentrant, SCRIPTED, Scripted},
    naive::Naive,
    quorlock::Quorlock,
    rslock::Rslock,
};
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, Flavour, Length, Result};
use quorlock_benches::options::Options;
use quorlock_benches::results::{Metric, Results, Row};
use quorlock_benches::servers::{self, Server};
use quorlock_benches::stats::Outcome;

const MASTERS: usize = 5;
const CONTESTANTS: [&str; 4] = ["bare", "naive", "rslock", "quorlock"];
/// The crate's other kinds of lock, compared to its mutex `quorlock`.
const KINDS: [&str; 3] = ["reentrant", "fair", FAIR_ACQUIRE];
/// The mutex with a fencing token, and with quarantine, compared to the plain mutex.
const MORE: [&str; 2] = [FENCED, GUARDED];
const FENCED: &str = "fenced";
const GUARDED: &str = "guarded";
const FAIR_ACQUIRE: &str = "fair_acquire";
/// The order of turns. Contestants with close results run next to each other, so their conditions
/// are the same.
const TURNS: [&str; 10] = [
    "naive",
    "rslock",
    "bare",
    GUARDED,
    "quorlock",
    SCRIPTED,
    FENCED,
    "reentrant",
    "fair",
    FAIR_ACQUIRE,
];

struct Setup {
    rounds: usize,
    widths: Vec<usize>,
    length: Length,
    options: Options,
}

fn main() -> Result<()> {
    let setup = Setup::new(Options::from_args());
    let servers = servers::masters(MASTERS);
    let results = setup.run(&servers)?;
    table(&results, &setup.widths);
    ratios(&results, &setup.widths);
    runtimes(&results, &setup.widths);
    extras(&results, &setup.widths);
    native(&results, &setup.widths);
    absolutes(&results, &setup.widths);
    Ok(())
}

impl Setup {
    fn new(options: Options) -> Self {
        let (rounds, widths, warm_up, measured) = if options.quick {
            (1, vec![1, 16, 128], 30, 100)
        } else {
            (7, vec![1, 16, 128, 512], 150, 700)
        };
        Self {
            rounds: options.rounds.unwrap_or(rounds),
            widths: options.widths.clone().unwrap_or(widths),
            length: Length {
                warm_up: Duration::from_millis(warm_up),
                measured: options.measured(measured),
            },
            options,
        }
    }

    /// Runs all contestants in every round. Each round begins with another contestant.
    fn run(&self, servers: &[Server]) -> Result<Results> {
        let urls = servers::urls(servers);
        let has_native = forbid_native(servers);
        let mut results = Results::default();
        for round in 0..self.rounds {
            eprintln!("round {} of {}", round + 1, self.rounds);
            for &width in &self.widths {
                let mut entrants = self.entrants(width);
                entrants.retain(|&(who, _)| has_native || who != SCRIPTED);
                let count = entrants.len().max(1);
                entrants.rotate_left(round % count);
                for (who, flavour) in entrants {
                    let before = servers::cpu_us(servers);
                    let outcome = run_one(who, flavour, &urls, width, self.length)
                        .map_err(|error| format!("{who} {} {width}: {error}", flavour.name()))?;
                    let server_us = servers::cpu_us(servers) - before;
                    servers::check_empty(servers, who)?;
                    results.push(Row {
                        who,
                        flavour,
                        width,
                        server_us: server_us / outcome.cycles as f64,
                        outcome,
                    });
                }
            }
        }
        Ok(results)
    }

    /// Returns the contestants that run, with their runtimes. `bare` has no runtime and one thread,
    /// so it is listed as current-thread. `fair_acquire` sends the same commands as `fair`, so it
    /// runs with a single task only.
    fn entrants(&self, width: usize) -> Vec<(&'static str, Flavour)> {
        let wanted = TURNS.into_iter().filter(|who| self.options.wants(who));
        wanted
            .flat_map(|who| Flavour::ALL.map(|flavour| (who, flavour)))
            .filter(|&(who, flavour)| match who {
                "bare" => flavour == Flavour::CurrentThread,
                FAIR_ACQUIRE if width > 1 => false,
                _ => true,
            })
            .collect()
    }
}

fn run_one(
    who: &str,
    flavour: Flavour,
    urls: &[String],
    width: usize,
    length: Length,
) -> Result<Outcome> {
    match who {
        "bare" => bare::run(urls, width, length),
        "naive" => load::run::<Naive>(flavour, urls, width, length),
        "rslock" => load::run::<Rslock>(flavour, urls, width, length),
        GUARDED => load::run::<Guarded>(flavour, urls, width, length),
        SCRIPTED => load::run::<Scripted>(flavour, urls, width, length),
        FENCED => load::run::<Fenced>(flavour, urls, width, length),
        "reentrant" => load::run::<Reentrant>(flavour, urls, width, length),
        "fair" => load::run::<Fair>(flavour, urls, width, length),
        FAIR_ACQUIRE => load::run::<FairAcquire>(flavour, urls, width, length),
        _ => load::run::<Quorlock>(flavour, urls, width, length),
    }
}

fn table(results: &Results, widths: &[usize]) {
    println!("acquire + release on {MASTERS} masters; medians over the rounds");
    println!("cpu: processor time of a cycle in this process, without the servers");
    println!(
        "{:>5}  {:<12} {:<8} {:>10} {:>10} {:>10} {:>10}",
        "tasks", "contestant", "runtime", "cycles/s", "p50 us", "p99 us", "cpu us"
    );
    for &width in widths {
        println!();
        let crate_only = KINDS.into_iter().chain(MORE).chain([SCRIPTED]);
        for who in CONTESTANTS.into_iter().chain(crate_only) {
            for flavour in Flavour::ALL {
                let median = |metric| results.median(metric, who, flavour, width);
                let Some(throughput) = median(Metric::Throughput) else {
                    continue;
                };
                println!(
                    "{width:>5}  {who:<12} {:<8} {throughput:>10.0} {:>10.1} {:>10.1} {:>10.1}",
                    if who == "bare" { "-" } else { flavour.name() },
                    median(Metric::P50).unwrap_or(f64::NAN),
                    median(Metric::P99).unwrap_or(f64::NAN),
                    median(Metric::Cpu).unwrap_or(f64::NAN),
                );
            }
        }
    }
}

fn ratios(results: &Results, widths: &[usize]) {
    for &width in widths {
        for other in CONTESTANTS.into_iter().filter(|&who| who != "quorlock") {
            ratio(results, width, "quorlock", other, &format!("vs_{other}"));
        }
        for kind in KINDS {
            let what = format!("{kind}_vs_mutex");
            ratio(results, width, kind, "quorlock", &what);
        }
    }
}

/// Compares the two runtimes: the latency of one task on the multi-thread runtime with that of
/// `bare`, and the processor time of a cycle with that on the current-thread runtime.
fn runtimes(results: &Results, widths: &[usize]) {
    let on = |flavour| ("quorlock", flavour);
    let (current, multi) = (on(Flavour::CurrentThread), on(Flavour::MultiThread));
    let bare = ("bare", Flavour::CurrentThread);
    for &width in widths {
        let (ratio, name) = if width == 1 {
            let ratio = results.ratio_on(Metric::P50, multi, bare, width);
            (ratio, "p50_1task_multi_vs_bare".to_owned())
        } else {
            let ratio = results.ratio_on(Metric::Cpu, multi, current, width);
            (ratio, format!("client_cpu_multi_vs_current_{width}"))
        };
        if let Some(ratio) = ratio {
            figure(&name, ratio, "ratio");
        }
    }
}

/// Prints the costs of a fencing token and of the quarantine, compared to `quorlock`.
fn extras(results: &Results, widths: &[usize]) {
    for &width in widths {
        let (metric, what) = measured(width, "p50");
        for who in MORE {
            if let Some(ratio) = results.ratio(metric, who, "quorlock", width) {
                figure(&format!("{who}_{what}_vs_plain"), ratio, "ratio");
            }
        }
    }
}

/// Returns the metric for a number of tasks, and its name: latency for one task, throughput for
/// several.
fn measured(width: usize, latency: &str) -> (Metric, String) {
    match width {
        1 => (Metric::P50, latency.to_owned()),
        _ => (Metric::Throughput, format!("throughput_{width}")),
    }
}

/// Creates the user of [`Scripted`], if the servers have a command that this user must not use.
/// Returns whether they have one.
fn forbid_native(servers: &[Server]) -> bool {
    let native = servers::native_release(servers);
    for server in servers.iter().filter(|_| native.is_some()) {
        let rules = format!("on >{SCRIPTED} ~* &* +@all -{}", native.unwrap_or_default());
        let words = ["ACL", "SETUSER", SCRIPTED]
            .into_iter()
            .chain(rules.split(' '));
        server.command(&words.collect::<Vec<_>>());
    }
    native.is_some()
}

/// Prints what the crate gains if it can release without its script.
fn native(results: &Results, widths: &[usize]) {
    for &width in widths {
        let (metric, what) = measured(width, "p50_1task");
        if let Some(ratio) = results.ratio(metric, "quorlock", SCRIPTED, width) {
            figure(&format!("native_{what}_vs_script"), ratio, "ratio");
        }
    }
    let Some(&width) = widths.iter().max() else {
        return;
    };
    let metric = Metric::ServerCpu;
    if let Some(ratio) = results.ratio(metric, "quorlock", SCRIPTED, width) {
        figure("server_us_per_cycle_native_vs_script", ratio, "ratio");
        for (who, name) in [("quorlock", "native"), (SCRIPTED, "script")] {
            if let Some((_, cpu)) = results.best(metric, who, width) {
                figure(&format!("server_us_per_cycle_{name}"), cpu, "us_per_cycle");
            }
        }
    }
}

fn ratio(results: &Results, width: usize, who: &str, other: &str, what: &str) {
    let (metric, measured) = measured(width, "p50_1task");
    if let Some(ratio) = results.ratio(metric, who, other, width) {
        figure(&format!("{measured}_{what}"), ratio, "ratio");
    }
}

fn absolutes(results: &Results, widths: &[usize]) {
    for &width in widths {
        for who in CONTESTANTS.into_iter().chain(KINDS).chain(MORE) {
            let best = |metric| Some(results.best(metric, who, width)?.1);
            if let Some(throughput) = best(Metric::Throughput) {
                figure(
                    &format!("throughput_{width}_{who}"),
                    throughput,
                    "cycles_per_s",
                );
            }
            if let Some(cpu) = best(Metric::Cpu) {
                figure(&format!("client_cpu_{width}_{who}"), cpu, "us_per_cycle");
            }
            if let (1, Some(p50)) = (width, best(Metric::P50)) {
                figure(&format!("p50_1task_{who}"), p50, "us");
            }
        }
    }
}
