//! Measures how long a released lock stays idle while tasks in other processes wait for it.

use std::error::Error;
use std::time::{Duration, Instant};

use quorlock::{Coordinator, Quarantine};
use quorlock_benches::figure::figure;
use quorlock_benches::handover::{self, Entrant, NAME, Plan};
use quorlock_benches::load::{Flavour, Result};
use quorlock_benches::options::Options;
use quorlock_benches::servers::{self, Server};
use quorlock_benches::stats::median;

const MASTERS: usize = 5;

fn main() -> Result<()> {
    if handover::play()? {
        return Ok(());
    }
    let options = Options::from_args();
    let servers = servers::masters(MASTERS);
    pairs(&options, &servers)?;
    foreign(&options, &servers)?;
    expiry(&options, &servers)?;
    many_processes(&options, &servers, 5, 1)?;
    many_processes(&options, &servers, 5, 10)?;
    many_processes(&options, &servers, if options.quick { 20 } else { 100 }, 1)?;
    servers::check_empty(&servers, NAME)
}

/// Measures two processes that take turns. Each round runs all entrants, because the machine's
/// speed may change.
fn pairs(options: &Options, servers: &[Server]) -> Result<()> {
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 5 });
    const ENTRANTS: [Entrant; 3] = [Entrant::Bare, Entrant::Quorlock, Entrant::Rslock];
    let mut p50s: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        for (who, p50s) in ENTRANTS.into_iter().zip(&mut p50s) {
            let millis = match (options.quick, who) {
                (true, Entrant::Rslock) => 2_500,
                (true, _) => 300,
                (false, Entrant::Rslock) => 10_000,
                (false, _) => 4_000,
            };
            // After a release, a process pauses for longer than a hand-over takes. Without this
            // pause, the process would often take the lock again, and only the fastest hand-overs
            // would be measured. The process waits again well before the next release. rslock
            // sleeps for up to 200 ms between two tries, so its times are longer.
            let (hold, rest) = if who == Entrant::Rslock {
                (240, 205)
            } else {
                (20, 12)
            };
            let plan = Plan {
                who,
                processes: 2,
                tasks: 1,
                hold: Duration::from_millis(hold),
                rest: Duration::from_millis(rest),
                warm_up: Duration::from_millis(if options.quick { 50 } else { 500 }),
                measured: options.measured(millis),
            };
            let seen = handover::run(plan, servers)?;
            p50s.push(percentile(&seen.micros, 50.0)?);
        }
    }
    let [bare, quorlock, rslock] = &p50s;
    let ratio = |to: &[f64]| median(quorlock.iter().zip(to).map(|(a, b)| a / b));
    let middle = |of: &[f64]| median(of.iter().copied());
    figure("handover_p50_us", middle(quorlock), "us");
    figure("handover_limit_p50_us", middle(bare), "us");
    figure("handover_rslock_p50_us", middle(rslock), "us");
    figure("handover_p50_vs_limit", ratio(bare), "ratio");
    figure("handover_vs_rslock", ratio(rslock), "ratio");
    Ok(())
}

/// Measures the hand-overs from a holder that uses another library to a waiter of this crate.
fn foreign(options: &Options, servers: &[Server]) -> Result<()> {
    let plan = Plan {
        who: Entrant::Mixed,
        processes: 2,
        tasks: 1,
        hold: Duration::from_millis(240),
        rest: Duration::from_millis(205),
        warm_up: Duration::from_millis(if options.quick { 50 } else { 500 }),
        measured: options.measured(if options.quick { 3_000 } else { 20_000 }),
    };
    let seen = handover::run(plan, servers)?;
    let p50 = percentile(&seen.from_first, 50.0)?;
    figure("foreign_handover_p50_us", p50, "us");
    Ok(())
}

/// Measures how long after the end of the TTL a waiter acquires the lock of a dead holder.
fn expiry(options: &Options, servers: &[Server]) -> Result<()> {
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 21 });
    let late = Flavour::CurrentThread.runtime()?.block_on(async {
        let builder = Coordinator::builder().quarantine(Quarantine::Off);
        let locks = builder.masters(servers::urls(servers)).build()?;
        locks.mutex("warm up").acquire().await?.release().await?;
        let mut late = Vec::new();
        for round in 0..rounds {
            // The lengths differ, because servers look for expired keys at regular times.
            let ttl = Duration::from_millis(300 + 17 * (round as u64 % 10));
            let mut ends = Vec::new();
            for server in servers {
                let px = ttl.as_millis().to_string();
                server.command(&["SET", NAME, "a dead holder's", "PX", &px]);
                ends.push(Instant::now() + ttl);
            }
            let guard = locks.mutex(NAME).acquire().await?;
            // The lock is free when the keys of a majority have expired.
            let free = ends[servers.len() / 2];
            late.push(free.elapsed().as_secs_f64() * 1e3);
            guard.release().await?;
        }
        locks.close().await;
        Ok::<_, Box<dyn Error + Send + Sync>>(late)
    })?;
    figure("expiry_wakeup_p50_ms", median(late), "ms");
    Ok(())
}

/// Measures processes whose tasks all want the lock.
fn many_processes(
    options: &Options,
    servers: &[Server],
    processes: usize,
    tasks: usize,
) -> Result<()> {
    let plan = Plan {
        who: Entrant::Quorlock,
        processes,
        tasks,
        hold: Duration::from_millis(if processes > 5 { 2 } else { 15 }),
        rest: Duration::from_millis(2),
        warm_up: Duration::from_millis(if options.quick { 200 } else { 1_000 }),
        measured: options.measured(if options.quick { 1_000 } else { 10_000 }),
    };
    let seen = handover::run(plan, servers)?;
    let suffix = match (processes, tasks) {
        (5, 1) => "5_waiters_5_processes".to_owned(),
        (5, _) => format!("{}_waiters", processes * tasks),
        _ => format!("{processes}_processes"),
    };
    let all = &seen.all_micros;
    let (p50, p99) = (percentile(all, 50.0)?, percentile(all, 99.0)?);
    let commands = seen.commands as f64 / all.len() as f64;
    for (name, number, unit) in [
        ("commands_per_handover", commands, "count"),
        ("handover_p50_us", p50, "us"),
        ("handover_p99_us", p99, "us"),
        (
            "longest_in_one_process",
            seen.longest_within as f64,
            "count",
        ),
        ("least_share_of_a_process", seen.least_share, "ratio"),
    ] {
        let name = match name.strip_suffix("_us") {
            Some(name) => format!("{name}_{suffix}_us"),
            None => format!("{name}_{suffix}"),
        };
        figure(&name, number, unit);
    }
    Ok(())
}

fn percentile(sorted: &[f64], percent: f64) -> Result<f64> {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    let value = sorted.get(rank.saturating_sub(1));
    Ok(*value.ok_or("no hand-over between processes")?)
}
