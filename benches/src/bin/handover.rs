//! Measures how long a released lock stays idle while tasks in other processes wait for it.

use std::time::Duration;

use quorlock_benches::figure::figure;
use quorlock_benches::handover::{self, Entrant, HandoverTimes, NAME, Plan};
use quorlock_benches::load::Result;
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
    five_processes(&options, &servers, 1)?;
    five_processes(&options, &servers, 10)?;
    servers::check_empty(&servers, NAME)
}

/// Measures two processes that take turns. Each round runs all entrants, because the machine's
/// speed may change.
fn pairs(options: &Options, servers: &[Server]) -> Result<()> {
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 5 });
    let mut p50s: [Vec<f64>; 3] = Default::default();
    println!(
        "{:10} {:>6} {:>6} {:>10} {:>10} {:>10}",
        "", "count", "within", "p50 us", "p90 us", "p99 us"
    );
    for _ in 0..rounds {
        for (who, p50s) in Entrant::ALL.into_iter().zip(&mut p50s) {
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
            print(who.name(), &seen, &seen.micros);
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

/// Measures five processes whose tasks all want the lock.
fn five_processes(options: &Options, servers: &[Server], tasks: usize) -> Result<()> {
    let plan = Plan {
        who: Entrant::Quorlock,
        processes: 5,
        tasks,
        hold: Duration::from_millis(15),
        rest: Duration::from_millis(2),
        warm_up: Duration::from_millis(if options.quick { 200 } else { 1_000 }),
        measured: options.measured(if options.quick { 1_000 } else { 10_000 }),
    };
    let seen = handover::run(plan, servers)?;
    let waiters = plan.processes * tasks;
    print(&format!("{waiters} waiters"), &seen, &seen.all_micros);
    let commands = seen.commands as f64 / seen.all_micros.len() as f64;
    let suffix = if tasks == 1 {
        "5_waiters_5_processes"
    } else {
        "50_waiters"
    };
    figure(
        &format!("commands_per_handover_{suffix}"),
        commands,
        "count",
    );
    let all = &seen.all_micros;
    let (p50, p99) = (percentile(all, 50.0)?, percentile(all, 99.0)?);
    figure(&format!("handover_p50_{suffix}_us"), p50, "us");
    figure(&format!("handover_p99_{suffix}_us"), p99, "us");
    let longest = seen.longest_within as f64;
    figure(
        &format!("longest_in_one_process_{suffix}"),
        longest,
        "count",
    );
    Ok(())
}

/// Prints the times of the hand-overs in `micros`.
fn print(who: &str, seen: &HandoverTimes, micros: &[f64]) {
    let at = |percent| percentile(micros, percent).unwrap_or(f64::NAN);
    let (p50, p90, p99) = (at(50.0), at(90.0), at(99.0));
    let count = seen.all_micros.len();
    let within = count - seen.micros.len();
    println!("{who:10} {count:6} {within:6} {p50:10.0} {p90:10.0} {p99:10.0}");
}

fn percentile(sorted: &[f64], percent: f64) -> Result<f64> {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    let value = sorted.get(rank.saturating_sub(1));
    Ok(*value.ok_or("no hand-over between processes")?)
}
