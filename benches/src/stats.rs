//! Statistics of one run, and comparisons between runs.

use std::fs;
use std::time::{Duration, Instant};

/// The statistics of one closed loop.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub samples: usize,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub worst_us: f64,
    /// The processor time of this process per cycle, without the servers.
    pub cpu_us: f64,
    /// All cycles, including those of the warm-up.
    pub cycles: usize,
}

impl Outcome {
    /// Summarizes the records of the tasks. `cpu` was taken when the tasks started.
    pub fn new(window: Window, cpu: CpuTime, recorders: Vec<Recorder>) -> Self {
        let cycles: usize = recorders.iter().map(|recorder| recorder.cycles).sum();
        let cpu_us = cpu.since().as_secs_f64() * 1e6 / cycles as f64;
        let nanos = recorders.into_iter().flat_map(|recorder| recorder.nanos);
        let mut nanos: Vec<u32> = nanos.collect();
        nanos.sort_unstable();
        Self {
            cpu_us,
            cycles,
            samples: nanos.len(),
            per_second: nanos.len() as f64 / window.length().as_secs_f64(),
            p50_us: percentile(&nanos, 50.0),
            p99_us: percentile(&nanos, 99.0),
            worst_us: percentile(&nanos, 100.0),
        }
    }
}

/// Returns the latency in microseconds that `percent` percent of the sorted samples do not exceed.
fn percentile(sorted: &[u32], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .map_or(f64::NAN, |&nanos| f64::from(nanos) / 1000.0)
}

/// Returns the median. For an even number of values, this is the mean of the middle two.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The time in which a closed loop is measured: after the warm-up, until the end.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    from: Instant,
    until: Instant,
}

impl Window {
    pub fn starting_now(warm_up: Duration, measured: Duration) -> Self {
        let from = Instant::now() + warm_up;
        Self {
            from,
            until: from + measured,
        }
    }

    fn length(&self) -> Duration {
        self.until - self.from
    }
}

/// Times the cycles of one task. The clock is read once per cycle, because the end of a cycle is
/// the start of the next cycle.
#[derive(Clone, Debug)]
pub struct Recorder {
    window: Window,
    since: Instant,
    /// All cycles, including those of the warm-up.
    cycles: usize,
    nanos: Vec<u32>,
}

impl Recorder {
    pub fn new(window: Window) -> Self {
        Self {
            window,
            since: Instant::now(),
            cycles: 0,
            nanos: Vec::with_capacity(4096),
        }
    }

    /// Records the end of a cycle. Returns false when the window is over.
    pub fn cycle_ended(&mut self) -> bool {
        let now = Instant::now();
        let took = now - self.since;
        self.since = now;
        self.cycles += 1;
        if now >= self.window.until {
            return false;
        }
        if now >= self.window.from {
            self.nanos
                .push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
        }
        true
    }
}

/// The processor time of this process so far, of all threads together, with a resolution of 10 ms.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime(Option<Duration>);

impl CpuTime {
    /// The time is unknown if there is no `/proc`.
    pub fn now() -> Self {
        // Fields 14 and 15 are the user and the system time. Field 2, the name, ends with a
        // parenthesis, and the fields after it are counted from there.
        let ticks = || {
            let stat = fs::read_to_string("/proc/self/stat").ok()?;
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
            let mut field = || fields.next()?.parse::<u64>().ok();
            Some(field()? + field()?)
        };
        Self(ticks().map(|ticks| Duration::from_millis(ticks * 10)))
    }

    /// Returns the processor time since this value was taken, or zero if it is unknown.
    pub fn since(self) -> Duration {
        match (Self::now().0, self.0) {
            (Some(now), Some(then)) => now.saturating_sub(then),
            _ => Duration::ZERO,
        }
    }
}

/// Returns the processor time of this thread so far in microseconds, with a finer resolution than
/// [`CpuTime`], or zero if the system does not tell.
pub fn thread_cpu_us() -> f64 {
    cpu_us("thread-self")
}

/// Returns the processor time of the main thread of a process so far in microseconds.
pub fn cpu_us(process: &str) -> f64 {
    let nanos = || {
        let stat = fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    };
    nanos().unwrap_or_default() as f64 / 1000.0
}
