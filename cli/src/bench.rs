//! `quorlock bench`: how long it takes to acquire and release a lock.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::sys::signal::Signal;
use quorlock::{AcquireError, Coordinator, Lock};
use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    args::{Bench, Common},
    exit::Exit,
    failure::Failure,
    histogram::Histogram,
    masters::Masters,
    outage::not_ready,
    report::{print_json, say},
    runtime::block_on,
    signals::Signals,
    style::{Cell, Colour, Style, heading},
    times::{brief, micros},
};

/// The JSON of `bench`.
#[derive(Serialize)]
struct Report {
    masters: usize,
    tasks: u32,
    time_ms: u128,
    cycles: u64,
    cycles_per_s: f64,
    acquire_us: Times,
    release_us: Times,
    /// The number of failures of each kind.
    failures: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    time: Duration,
}

#[derive(Serialize)]
struct Times {
    #[serde(serialize_with = "micros")]
    p50: Option<Duration>,
    #[serde(serialize_with = "micros")]
    p99: Option<Duration>,
    #[serde(serialize_with = "micros")]
    max: Option<Duration>,
}

/// The measurements of the tasks so far.
struct Measured {
    acquired: Histogram,
    released: Histogram,
    failures: BTreeMap<&'static str, u64>,
}

/// The longest wait for the first connections.
const START: Duration = Duration::from_secs(3);
/// The pause after a failure, so that masters that are down are not asked without end.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) fn bench(args: &Bench, common: &Common) -> Result<Exit, Failure> {
    if args.time.is_zero() {
        return Err(Failure::new(Exit::Usage, "--time must be more than 0"));
    }
    let masters = Masters::find(common)?;
    block_on(async {
        let locks = masters.coordinator()?;
        let mut signals = Signals::catch(&[Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM])?;
        tokio::select! {
            ready = locks.ready(START) => {
                ready.map_err(|error| not_ready(&error, &locks, "cannot start"))?;
            }
            signal = signals.next() => return Ok(signal.into()),
        }
        let (report, signal) = measure(args, &locks, &mut signals).await;
        // Releases that are owed are delivered here.
        let _ = timeout(START, locks.close()).await;
        if args.json {
            print_json(&report)?;
        } else {
            say(report.text(Style::of_stdout()))?;
        }
        Ok(match (signal, report.cycles, report.failures.is_empty()) {
            (Some(signal), ..) => signal.into(),
            (None, 0, _) => Exit::NoQuorum,
            (None, _, true) => Exit::Success,
            (None, _, false) => Exit::Code(1),
        })
    })
}

/// Measures until the time is over, or until a signal comes.
async fn measure(
    args: &Bench,
    locks: &Coordinator,
    signals: &mut Signals,
) -> (Report, Option<Signal>) {
    let measured = Arc::new(Mutex::new(Measured::new()));
    let start = Instant::now();
    let end = start + args.time;
    // No other bench uses these names, and no program should.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let run = format!(
        "quorlock-bench/{}-{}",
        now.unwrap_or_default().as_micros(),
        process::id()
    );
    let mut tasks = JoinSet::new();
    for task in 0..args.tasks {
        let lock = locks.mutex(format!("{run}/{task}"));
        tasks.spawn(cycles(lock, end, measured.clone()));
    }
    let bar = Bar::new(args);
    let signal = loop {
        tokio::select! {
            joined = tasks.join_next() => match joined {
                Some(_) => {}
                None => break None,
            },
            () = sleep(Duration::from_millis(100)) => bar.show(start.elapsed(), &measured),
            signal = signals.next() => break Some(signal),
        }
    };
    // Dropping the tasks drops their guards, which releases the locks.
    tasks.shutdown().await;
    bar.clear();
    let time = start.elapsed();
    let measured = std::mem::replace(&mut *locked(&measured), Measured::new());
    let cycles = measured.released.count();
    let report = Report {
        masters: locks.master_count(),
        tasks: args.tasks,
        time_ms: time.as_millis(),
        time,
        cycles,
        cycles_per_s: (cycles as f64 / time.as_secs_f64() * 10.0).round() / 10.0,
        acquire_us: Times::of(&measured.acquired),
        release_us: Times::of(&measured.released),
        failures: measured.failures,
    };
    (report, signal)
}

/// Acquires and releases the lock until `end`.
async fn cycles(lock: Lock, end: Instant, measured: Arc<Mutex<Measured>>) {
    while Instant::now() < end {
        let start = Instant::now();
        let acquired = lock.try_acquire().await;
        let time = start.elapsed();
        let failure = match acquired {
            Ok(guard) => {
                locked(&measured).acquired.add(time);
                let start = Instant::now();
                let released = guard.release().await;
                let time = start.elapsed();
                if released.is_ok() {
                    locked(&measured).released.add(time);
                    continue;
                }
                "release_not_confirmed"
            }
            Err(AcquireError::NoQuorum { .. }) => "no_quorum",
            Err(AcquireError::Quarantined { .. }) => "quarantined",
            Err(AcquireError::TooSlow { .. }) => "too_slow",
            Err(AcquireError::Contended { .. }) => "contended",
            Err(_) => "other",
        };
        *locked(&measured).failures.entry(failure).or_default() += 1;
        sleep(PAUSE).await;
    }
}

/// A task that panics poisons the mutex, but leaves the numbers whole.
fn locked(measured: &Mutex<Measured>) -> MutexGuard<'_, Measured> {
    measured.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Measured {
    fn new() -> Self {
        Self {
            acquired: Histogram::new(),
            released: Histogram::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl Times {
    fn of(times: &Histogram) -> Self {
        Self {
            p50: times.percentile(50),
            p99: times.percentile(99),
            max: times.percentile(100),
        }
    }

    fn row(&self, what: &str) -> Vec<Cell> {
        let times = [self.p50, self.p99, self.max]
            .map(|time| Cell::plain(time.map_or_else(|| "-".to_owned(), brief)));
        [Cell::plain(what)].into_iter().chain(times).collect()
    }
}

impl Report {
    fn text(&self, style: Style) -> String {
        let rows = [
            heading(["", "P50", "P99", "MAX"]),
            self.acquire_us.row("acquire"),
            self.release_us.row("release"),
        ];
        let (masters, tasks) = (self.masters, self.tasks);
        let (rate, cycles) = (self.cycles_per_s, self.cycles);
        let plural = |count: bool| if count { "" } else { "s" };
        let mut text = format!(
            "{masters} master{}, {tasks} task{}: {rate:.0} cycles/s, {cycles} cycles in {}\n{}",
            plural(masters == 1),
            plural(tasks == 1),
            brief(self.time),
            style.table(&rows)
        );
        if self.failures.is_empty() {
            return text + "  no failures\n";
        }
        let all = cycles + self.failures.values().sum::<u64>();
        for (failure, count) in &self.failures {
            let failure = failure.replace('_', " ");
            let line = format!("{count} of {all} cycles failed: {failure}");
            text.push_str(&format!("  {}\n", style.paint(Colour::Red, &line)));
        }
        text
    }
}

/// A bar on the terminal that grows with the time.
struct Bar {
    is_shown: bool,
    time: Duration,
}

impl Bar {
    fn new(args: &Bench) -> Self {
        Self {
            is_shown: io::stderr().is_terminal() && !args.json,
            time: args.time,
        }
    }

    fn show(&self, elapsed: Duration, measured: &Mutex<Measured>) {
        const WIDTH: usize = 30;
        if !self.is_shown {
            return;
        }
        let part = (elapsed.as_secs_f64() / self.time.as_secs_f64()).min(1.0);
        let full = (part * WIDTH as f64) as usize;
        let cycles = locked(measured).released.count();
        let (done, rest) = ("#".repeat(full), "-".repeat(WIDTH - full));
        let (now, all) = (brief(elapsed), brief(self.time));
        let line = format!("\r[{done}{rest}] {now} of {all}, {cycles} cycles\x1b[K");
        let _ = io::stderr().write_all(line.as_bytes());
    }

    fn clear(&self) {
        if self.is_shown {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
