//! Compares a mutex during a change of the masters to one before it: two lists of five masters, of
//! which four are in both, to one list of five and to one of all six.

use std::time::{Duration, Instant};

use quorlock::Lock;
use quorlock_benches::contestants::lists::{MASTERS, OneList, SixMasters, TwoLists};
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, Contestant, Flavour, Length, Result};
use quorlock_benches::options::Options;
use quorlock_benches::servers;
use quorlock_benches::stats::median;
use testkit::proxy::Proxy;

/// The tasks of the measurement of throughput.
const TASKS: usize = 16;

fn main() -> Result<()> {
    let options = Options::from_args();
    let servers = servers::masters(MASTERS);
    let links = servers::links(&servers);
    let length = Length {
        warm_up: Duration::from_millis(if options.quick { 50 } else { 300 }),
        measured: options.measured(if options.quick { 200 } else { 2_000 }),
    };
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 15 });
    let near = servers::urls(&servers);
    let far: Vec<_> = links.iter().map(Proxy::url).collect();
    for (urls, suffix) in [(near, ""), (far, "_far")] {
        let mut measured = [const { Vec::new() }; 3];
        for round in 0..rounds {
            // Each of them is the first as often as the others.
            for turn in 0..3 {
                let who = (round + turn) % 3;
                measured[who].push(match who {
                    0 => measure::<OneList>(&urls, length)?,
                    1 => measure::<SixMasters>(&urls, length)?,
                    _ => measure::<TwoLists>(&urls, length)?,
                });
            }
            servers::check_empty(&servers, "lists")?;
        }
        print(&measured, suffix);
    }
    Ok(())
}

/// What one of the contestants did in one round.
struct Measured {
    cycle_us: f64,
    acquire_us: f64,
    per_second: f64,
}

fn measure<C: Contestant<Task = Lock>>(urls: &[String], length: Length) -> Result<Measured> {
    let flavour = Flavour::CurrentThread;
    let (cycle_us, acquire_us) = flavour.runtime()?.block_on(one_task::<C>(urls, length))?;
    Ok(Measured {
        cycle_us,
        acquire_us,
        per_second: load::run::<C>(flavour, urls, TASKS, length)?.per_second,
    })
}

/// Returns the medians of the times of a cycle and of an acquisition.
async fn one_task<C: Contestant<Task = Lock>>(
    urls: &[String],
    length: Length,
) -> Result<(f64, f64)> {
    let client = C::connect(urls).await?;
    let lock = client.task(load::key(0));
    let (mut cycles, mut acquisitions) = (Vec::new(), Vec::new());
    let from = Instant::now() + length.warm_up;
    let mut start = Instant::now();
    while start < from + length.measured {
        let guard = lock.try_acquire().await?;
        let acquired = start.elapsed();
        guard.release().await?;
        let end = Instant::now();
        if start >= from {
            cycles.push((end - start).as_secs_f64() * 1e6);
            acquisitions.push(acquired.as_secs_f64() * 1e6);
        }
        start = end;
    }
    drop(lock);
    client.close().await?;
    Ok((median(cycles), median(acquisitions)))
}

/// A name, a number and its unit.
type Figure = (&'static str, fn(&Measured) -> f64, &'static str);

const FIGURES: [Figure; 3] = [
    ("p50", |one| one.cycle_us, "us"),
    ("acquire_p50", |one| one.acquire_us, "us"),
    ("throughput_16", |one| one.per_second, "1/s"),
];

fn print(measured: &[Vec<Measured>; 3], suffix: &str) {
    let [one, six, two] = measured;
    for (what, value, unit) in FIGURES {
        for (other, name) in [(one, "one"), (six, "six")] {
            let pairs = two.iter().zip(other);
            let ratio = median(pairs.map(|(two, other)| value(two) / value(other)));
            let name = format!("two_lists_{what}_vs_{name}{suffix}");
            figure(&name, ratio, "ratio");
        }
        for (measured, name) in [(one, "one_list"), (six, "six_masters"), (two, "two_lists")] {
            let figures = measured.iter().map(value);
            figure(&format!("{name}_{what}{suffix}"), median(figures), unit);
        }
    }
}
