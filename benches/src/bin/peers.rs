//! Measures acquiring and releasing without contention, and compares it to the limit of the machine
//! and to other crates.

use quorlock_benches::contestants::{
    bare,
    kinds::{Fair, FairAcquire, Fenced, Guarded, Reentrant, SCRIPTED, Scripted},
    naive::Naive,
    quorlock::Quorlock,
    rslock::Rslock,
};
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, Flavour, Length, Result};
use quorlock_benches::options::{Extent, Options};
use quorlock_benches::results::{Metric, Results, Row};
use quorlock_benches::servers::{self, Server};
use quorlock_benches::stats::Outcome;

const MASTERS: usize = 5;
const OTHERS: [&str; 3] = ["bare", "naive", "rslock"];
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

fn main() -> Result<()> {
    let options = Options::from_args();
    let extent = match options.quick {
        true => options.extent(1, &[1, 16, 128], 30, 100),
        false => options.extent(7, &[1, 16, 128, 512], 150, 700),
    };
    let servers = servers::masters(MASTERS);
    let results = run(&options, &extent, &servers)?;
    ratios(&results, &extent.widths);
    runtimes(&results, &extent.widths);
    native(&results, &extent.widths);
    absolutes(&results, &extent.widths);
    Ok(())
}

/// Runs all contestants in every round. Each round begins with another contestant.
fn run(options: &Options, extent: &Extent, servers: &[Server]) -> Result<Results> {
    let urls = servers::urls(servers);
    let has_native = forbid_native(servers);
    let mut results = Results::default();
    for round in 0..extent.rounds {
        eprintln!("round {} of {}", round + 1, extent.rounds);
        for &width in &extent.widths {
            let mut entrants = entrants(options, width);
            entrants.retain(|&(who, _)| has_native || who != SCRIPTED);
            let count = entrants.len().max(1);
            entrants.rotate_left(round % count);
            for (who, flavour) in entrants {
                let before = servers::cpu_us(servers);
                let outcome = run_one(who, flavour, &urls, width, extent.length)
                    .map_err(|error| format!("{who} {flavour:?} {width}: {error}"))?;
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

/// Returns the contestants that run, with their runtimes. `bare` has no runtime and one thread, so
/// it is listed as current-thread. `fair_acquire` sends the same commands as `fair`, so it runs
/// with a single task only.
fn entrants(options: &Options, width: usize) -> Vec<(&'static str, Flavour)> {
    let wanted = TURNS.into_iter().filter(|who| options.wants(who));
    wanted
        .flat_map(|who| Flavour::ALL.map(|flavour| (who, flavour)))
        .filter(|&(who, flavour)| match who {
            "bare" => flavour == Flavour::CurrentThread,
            FAIR_ACQUIRE if width > 1 => false,
            _ => true,
        })
        .collect()
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

/// Prints what each kind of lock, the fencing token, the quarantine and the release without a script
/// cost, and how the crate compares to the others: latency for one task, throughput for several.
fn ratios(results: &Results, widths: &[usize]) {
    for &width in widths {
        let (metric, latency, what) = match width {
            1 => (Metric::P50, "p50".to_owned(), "p50_1task".to_owned()),
            _ => {
                let throughput = format!("throughput_{width}");
                (Metric::Throughput, throughput.clone(), throughput)
            }
        };
        let others = OTHERS.map(|other| ("quorlock", other, format!("{what}_vs_{other}")));
        let kinds = KINDS.map(|kind| (kind, "quorlock", format!("{what}_{kind}_vs_mutex")));
        let more = MORE.map(|who| (who, "quorlock", format!("{who}_{latency}_vs_plain")));
        let native = ("quorlock", SCRIPTED, format!("native_{what}_vs_script"));
        for (who, other, name) in [&others[..], &kinds, &more, &[native]].concat() {
            if let Some(ratio) = results.ratio(metric, who, other, width) {
                figure(&name, ratio, "ratio");
            }
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

/// Prints the work of a server with and without the script of the release.
fn native(results: &Results, widths: &[usize]) {
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

fn absolutes(results: &Results, widths: &[usize]) {
    for &width in widths {
        for who in [&OTHERS[..], &["quorlock"], &KINDS, &MORE].concat() {
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
