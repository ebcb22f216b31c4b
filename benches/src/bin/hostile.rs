//! Measures how locks are shared, and the load on the masters, while connections are killed and
//! while masters do not tell of changes.

use std::sync::Arc;
use std::time::Duration;

use quorlock::Coordinator;
use quorlock_benches::figure::figure;
use quorlock_benches::load::Result;
use quorlock_benches::options::Options;
use quorlock_benches::servers;
use quorlock_benches::waiters;
use testkit::hostile::process_stats::Log;
use testkit::hostile::short_lived::{Killer, locks_per_second};
use tokio::runtime;

fn main() -> Result<()> {
    let options = Options::from_args();
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for name in SCENARIOS.into_iter().filter(|name| options.wants(name)) {
            println!("-- {name}");
            match name {
                "killed" => killed(&options).await?,
                "small_table" => small_table(&options).await?,
                _ => untracked(&options).await?,
            }
        }
        Ok(())
    })
}

/// Compares the locks per second while all connections are killed, again and again, with the rate
/// before that.
async fn killed(options: &Options) -> Result<()> {
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
        let locks = Coordinator::builder()
            .masters(servers::urls(&servers))
            .build()?;
        let mut before = locks_per_second(&locks, quiet).await;
        let killer = Killer::start(servers.clone(), Duration::from_millis(every));
        let during = locks_per_second(&locks, killed).await;
        drop(killer);
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
async fn small_table(options: &Options) -> Result<()> {
    let measured = options.measured(if options.quick { 500 } else { 4_000 });
    let waiters = if options.quick { 10 } else { 100 };
    let servers = servers::masters(5);
    let mut rates = Vec::new();
    for max_keys in ["1000000", "10", "1"] {
        let rate = waiters::commands_per_second(&servers, waiters, max_keys, measured);
        let rate = rate.await?;
        figure(&format!("commands_per_s_tracked_{max_keys}"), rate, "1/s");
        rates.push(rate);
    }
    let worst = rates[1].max(rates[2]);
    figure("small_table_commands_vs_default", worst / rates[0], "ratio");
    Ok(())
}

/// Measures how two programs share a lock, with and without the right to track keys.
async fn untracked(options: &Options) -> Result<()> {
    let measured = options.measured(if options.quick { 1_000 } else { 15_000 });
    let servers = servers::masters(5);
    for (name, denied) in [("tracked", ""), ("untracked", "-client|tracking")] {
        let shares = waiters::share(&servers, 8, denied, measured);
        let shares = shares.await?;
        println!("{shares:?}");
        figure(&format!("{name}_least_share"), shares.least_share, "ratio");
        let wait = shares.longest_wait.as_secs_f64();
        figure(&format!("{name}_longest_wait_s"), wait, "s");
    }
    Ok(())
}

/// The scenarios that `--only` selects from.
const SCENARIOS: [&str; 3] = ["killed", "small_table", "untracked"];
