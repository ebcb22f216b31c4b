//! Measures whether calls return and the load stays bounded, on masters that are hostile, slow,
//! silent or far away.
//!
//! Each scenario runs in a process of its own, because some scenarios measure the whole process.

use std::env;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quorlock::{Builder, Coordinator, Quarantine};
use quorlock_benches::figure::figure;
use quorlock_benches::load::Result;
use quorlock_benches::options::Options;
use quorlock_benches::servers::{self, Server};
use quorlock_benches::waiters;
use testkit::hostile::all_calls;
use testkit::hostile::close::late_closes;
use testkit::hostile::fake_server::Fake;
use testkit::hostile::first_attempt::{far_away, first_attempt};
use testkit::hostile::floods::{Flood, over_limit};
use testkit::hostile::load::{self, Load};
use testkit::hostile::process_stats::{self, Log};
use testkit::hostile::releases::commands_for;
use testkit::hostile::short_lived::{Killer, locks_per_second};
use testkit::hostile::slow_master::{lock_commands, one_far_away, tarpit};
use testkit::proxy::Proxy;
use testkit::random::Random;
use tokio::runtime::{self, Runtime};
use tokio::time::{sleep, timeout};

fn main() -> Result<()> {
    if let Ok(urls) = env::var(FIRST) {
        return first_of_a_process(&urls);
    }
    let options = Options::from_args();
    if let Ok(name) = env::var(ALONE) {
        return run(&name, &options);
    }
    let mut failed = Vec::new();
    for name in SCENARIOS.into_iter().filter(|name| options.wants(name)) {
        println!("-- {name}");
        let status = Command::new(env::current_exe()?)
            .args(env::args_os().skip(1))
            .env(ALONE, name)
            .status()?;
        if !status.success() {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")).into())
    }
}

fn run(name: &str, options: &Options) -> Result<()> {
    match name {
        "calls" => all_calls(options),
        "first" => first_tries(options),
        "releases" => failed_releases(options),
        "closing" => closing(options),
        "burst" => burst(options),
        "killed" => killed(options),
        "slow" => slow(options, "slow_master", |builder| builder),
        "slow_fixed" => slow(options, "slow_master_50ms", |builder| {
            builder.node_timeout(Duration::from_millis(50))
        }),
        "small_table" => small_table(options),
        "untracked" => untracked(options),
        "flood" => flood(options),
        "tarpit" => {
            let silent = tarpit();
            memory(options, "tarpit", silent.url())
        }
        "paused" => {
            let server = Server::start();
            server.command(&["CLIENT", "PAUSE", "3600000", "WRITE"]);
            memory(options, "paused", server.url())
        }
        _ => Err(format!("no such scenario: {name}").into()),
    }
}

/// Makes all calls against falsified replies, until there were enough calls or the time is over.
fn all_calls(options: &Options) -> Result<()> {
    process_stats::count_panics();
    let servers = servers::masters(3);
    let seed = Random::fresh_seed();
    println!("seed {seed}");
    let (enough, most) = if options.quick {
        (1_000, options.measured(2_000))
    } else {
        (200_000, options.measured(900_000))
    };
    let before = process_stats::rss_mb();
    let start = Instant::now();
    let (mut made, mut hung, mut mutated) = (0, Vec::new(), 0);
    threads(2).block_on(async {
        for part in 0.. {
            let left = most.saturating_sub(start.elapsed());
            if made >= enough || left.is_zero() {
                break;
            }
            let length = left.min(Duration::from_secs(10));
            let fuzzed = all_calls::fuzz(&servers, seed.wrapping_add(part), length).await;
            made += fuzzed.calls;
            mutated += fuzzed.mutated;
            hung.extend(fuzzed.hung);
        }
    });
    println!("{:?}: {made} calls; hung: {hung:?}", start.elapsed());
    figure("calls", made as f64, "count");
    figure("mutated_replies", mutated as f64, "count");
    figure("hung_calls", hung.len() as f64, "count");
    figure("panics", process_stats::panics() as f64, "count");
    figure(
        "calls_rss_growth_mb",
        process_stats::rss_mb() - before,
        "MB",
    );
    Ok(())
}

/// Counts the fresh processes that get a free lock at the first attempt.
fn first_tries(options: &Options) -> Result<()> {
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 50 });
    let servers = servers::masters(5);
    for each_way in [0, 8, 20, 60] {
        let proxies = far_away(&servers, Duration::from_millis(each_way));
        let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
        let mut won = 0;
        for _ in 0..rounds {
            let status = Command::new(env::current_exe()?)
                .env(FIRST, urls.join(","))
                .stderr(Stdio::null())
                .status()?;
            won += usize::from(status.success());
        }
        figure(&format!("fresh_process_{each_way}ms"), won as f64, "count");
        println!("{won} of {rounds}");
    }
    Ok(())
}

fn first_of_a_process(urls: &str) -> Result<()> {
    let builder = Coordinator::builder().masters(urls.split(','));
    threads(1).block_on(first_attempt(builder, "first"))?;
    Ok(())
}

/// Counts the commands that one master gets while it answers releases with an error.
fn failed_releases(options: &Options) -> Result<()> {
    let period = Duration::from_secs(if options.quick { 1 } else { 5 });
    for releases in [1, 10, 100] {
        let commands = threads(2).block_on(commands_for(releases, period)) as f64;
        match (releases, options.quick) {
            (1, false) => figure("commands_per_failed_release_5s", commands, "count"),
            _ => figure(
                &format!(
                    "commands_for_{releases}_failed_releases_{}s",
                    period.as_secs()
                ),
                commands,
                "count",
            ),
        }
    }
    Ok(())
}

fn closing(options: &Options) -> Result<()> {
    let rounds = options
        .rounds
        .unwrap_or(if options.quick { 500 } else { 40_000 });
    let start = Instant::now();
    let late = threads(4).block_on(late_closes(rounds));
    println!("at most {rounds} rounds, {:?}", start.elapsed());
    figure("close_late_rounds", late as f64, "count");
    Ok(())
}

/// Drops many guards at once.
fn burst(options: &Options) -> Result<()> {
    let log = Log::listen();
    let guards = options
        .widths
        .as_ref()
        .and_then(|widths| widths.first().copied());
    let guards = guards.unwrap_or(if options.quick { 2_000 } else { 100_000 });
    let servers = servers::masters(5);
    threads(2).block_on(async {
        let locks = builder(servers::urls(&servers)).build()?;
        let held = load::hold(&locks, guards, Duration::from_secs(120)).await;
        let connections = servers::total(&servers, CONNECTIONS)?;
        log.clear();
        let start = Instant::now();
        drop(held);
        println!("dropping took {:?}", start.elapsed());
        timeout(Duration::from_secs(120), locks.close()).await?;
        let took = start.elapsed();
        let name = |what| match guards {
            100_000 => format!("{what}_100k"),
            _ => format!("{what}_{guards}"),
        };
        let more = servers::total(&servers, CONNECTIONS)? - connections - servers.len() as u64;
        // After the count of connections, because each command to a server needs one.
        let keys = servers.iter().map(|server| server.command(&["DBSIZE"]));
        let left: u64 = keys
            .map(|keys| keys.parse::<u64>())
            .sum::<std::result::Result<_, _>>()?;
        figure(&name("released"), took.as_secs_f64(), "s");
        figure(&name("keys_left"), left as f64, "count");
        figure(&name("connections_given_up"), log.downs() as f64, "count");
        figure(&name("connections_made_anew"), more as f64, "count");
        Ok(())
    })
}

/// Compares the locks per second while all connections are killed, again and again, with those
/// before.
fn killed(options: &Options) -> Result<()> {
    let quiet = options
        .measured(if options.quick { 1_000 } else { 10_000 })
        .as_secs()
        .max(1);
    let killed = options
        .measured(if options.quick { 1_000 } else { 30_000 })
        .as_secs()
        .max(1);
    for every in [250, 500] {
        let log = Log::listen();
        let servers = Arc::new(servers::masters(5));
        let (mut before, during) = threads(2).block_on(async {
            let locks = Coordinator::builder()
                .masters(servers::urls(&servers))
                .build()?;
            let before = locks_per_second(&locks, quiet).await;
            let _killer = Killer::start(servers.clone(), Duration::from_millis(every));
            let during = locks_per_second(&locks, killed).await;
            Ok::<_, quorlock::ConfigError>((before, during))
        })?;
        println!("locks per second: {before:?}, then {during:?}");
        before.sort_unstable();
        let undisturbed = before[before.len() / 2].max(1) as f64;
        let ratio = |locks: f64| locks / undisturbed;
        let name = |what| format!("killed_every_{every}ms_{what}");
        let worst = *during.iter().min().unwrap_or(&0) as f64;
        let mean = during.iter().sum::<u64>() as f64 / during.len() as f64;
        figure(&name("worst_second"), ratio(worst), "ratio");
        figure(&name("mean"), ratio(mean), "ratio");
        figure(&name("warnings"), log.warnings() as f64, "count");
        log.clear();
    }
    Ok(())
}

/// Measures the load of waiters whose keys do not fit into the servers' tables of tracked keys.
fn small_table(options: &Options) -> Result<()> {
    let measured = options.measured(if options.quick { 500 } else { 4_000 });
    let waiters = if options.quick { 10 } else { 100 };
    let servers = servers::masters(5);
    let mut rates = Vec::new();
    for max_keys in ["1000000", "10", "1"] {
        let rate = waiters::commands_per_second(&servers, waiters, max_keys, measured);
        let rate = threads(2).block_on(rate)?;
        figure(&format!("commands_per_s_tracked_{max_keys}"), rate, "1/s");
        rates.push(rate);
    }
    let worst = rates[1].max(rates[2]);
    figure("small_table_commands_vs_default", worst / rates[0], "ratio");
    Ok(())
}

/// Measures how two programs share a lock, with and without the right to track keys.
fn untracked(options: &Options) -> Result<()> {
    let measured = options.measured(if options.quick { 1_000 } else { 15_000 });
    let servers = servers::masters(5);
    for (name, denied) in [("tracked", ""), ("untracked", "-client|tracking")] {
        let shares = waiters::share(&servers, 8, denied, measured);
        let shares = threads(2).block_on(shares)?;
        println!("{shares:?}");
        figure(&format!("{name}_least_share"), shares.least_share, "ratio");
        let wait = shares.longest_wait.as_secs_f64();
        figure(&format!("{name}_longest_wait_s"), wait, "s");
    }
    Ok(())
}

/// Measures how much longer than their limit calls take while all masters send without end.
fn flood(options: &Options) -> Result<()> {
    let span = options.measured(if options.quick { 500 } else { 4_000 });
    let mut longest = Duration::ZERO;
    for number in [1, 2] {
        for flood in Flood::ALL {
            let (waits, over) = threads(number).block_on(over_limit(flood, span));
            println!("{number} threads, {flood:?}: {waits} waits, at most {over:?} over the limit");
            longest = longest.max(over);
        }
    }
    let millis = longest.as_secs_f64() * 1e3;
    figure("hostile_flood_over_limit_ms", millis, "ms");
    Ok(())
}

/// Measures the load on five masters. One of them has a round trip of 200 ms.
fn slow(options: &Options, what: &str, set: fn(Builder) -> Builder) -> Result<()> {
    let log = Log::listen();
    let (rate, seconds) = if options.quick {
        (1_000, 3_000)
    } else {
        (25_000, 60_000)
    };
    let half = options.measured(seconds) / 2;
    let servers = servers::masters(5);
    let (urls, _proxy) = one_far_away(&servers, Duration::from_millis(100));
    threads(2).block_on(async {
        let locks = set(builder(urls).ttl(Duration::from_secs(60))).build()?;
        let load = Load::start(&locks, rate, None);
        sleep(half).await;
        let before: Vec<_> = servers.iter().map(lock_commands).collect();
        let rss = process_stats::rss_mb();
        sleep(half).await;
        let after = servers.iter().map(lock_commands);
        let counts: Vec<_> = after.zip(before).map(|(now, then)| now - then).collect();
        let grown = process_stats::rss_mb() - rss;
        let (won, failed) = (load.rate(), load.failed());
        load.stop().await;
        println!("{won:.0} locks/s, {failed} failed; commands in the second half: {counts:?}; {rss:.1} MB");
        let healthy = counts[..4].iter().sum::<u64>() as f64 / 4.0;
        let name = |part| format!("{what}_{part}");
        figure(&name("commands_ratio"), counts[4] as f64 / healthy, "ratio");
        figure(&name("rss_growth_mb"), grown, "MB");
        figure(&name("warnings"), log.warnings() as f64, "count");
        Ok(())
    })
}

/// Measures the growth of memory while one of three masters does not answer the commands of locks.
fn memory(options: &Options, what: &str, silent: String) -> Result<()> {
    let log = Log::listen();
    let half = options.measured(if options.quick { 3_000 } else { 30_000 }) / 2;
    let fakes = [Fake::honest(Duration::ZERO), Fake::honest(Duration::ZERO)];
    threads(2).block_on(async {
        let urls = fakes.iter().map(Fake::url).chain([silent]);
        let locks = builder(urls.collect()).build()?;
        let load = Load::start(&locks, 0, Some(Duration::from_secs(600)));
        sleep(half).await;
        let rss = process_stats::rss_mb();
        sleep(half).await;
        let grown = process_stats::rss_mb() - rss;
        println!(
            "{:.0} locks/s, {} failed; {rss:.1} MB",
            load.rate(),
            load.failed()
        );
        load.stop().await;
        let name = |part| format!("{what}_{part}");
        figure(&name("rss_growth_mb"), grown, "MB");
        figure(
            &name("rss_growth_mb_per_s"),
            grown / half.as_secs_f64(),
            "MB/s",
        );
        figure(&name("warnings"), log.warnings() as f64, "count");
        Ok(())
    })
}

fn builder(urls: Vec<String>) -> Builder {
    Coordinator::builder()
        .masters(urls)
        .quarantine(Quarantine::Off)
}

fn threads(number: usize) -> Runtime {
    let mut builder = runtime::Builder::new_multi_thread();
    builder
        .worker_threads(number)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// The scenarios that `--only` selects from.
const SCENARIOS: [&str; 13] = [
    "calls",
    "first",
    "releases",
    "closing",
    "burst",
    "killed",
    "slow",
    "slow_fixed",
    "tarpit",
    "paused",
    "small_table",
    "untracked",
    "flood",
];
/// The field of `INFO` that counts the connections that a server has accepted.
const CONNECTIONS: &str = "total_connections_received";
/// The environment variable that is set in the process of one scenario.
const ALONE: &str = "QUORLOCK_BENCH_ALONE";
/// The environment variable that is set in a process that makes one attempt.
const FIRST: &str = "QUORLOCK_BENCH_FIRST";
