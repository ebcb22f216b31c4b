//! What a run is reduced to, and how runs are compared.

use std::time::{Duration, Instant};

/// One closed loop, reduced to numbers.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub samples: usize,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub worst_us: f64,
}

impl Outcome {
    /// `nanos` holds the latency of every cycle that ended inside the window.
    pub fn new(mut nanos: Vec<u32>, window: Duration) -> Self {
        nanos.sort_unstable();
        Self {
            samples: nanos.len(),
            per_second: nanos.len() as f64 / window.as_secs_f64(),
            p50_us: percentile(&nanos, 50.0),
            p99_us: percentile(&nanos, 99.0),
            worst_us: percentile(&nanos, 100.0),
        }
    }
}

/// The latency in microseconds that `percent` of the sorted samples do not exceed.
fn percentile(sorted: &[u32], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .map_or(f64::NAN, |&nanos| f64::from(nanos) / 1000.0)
}

/// The median; of an even number of values, the mean of the middle two.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// When a closed loop counts: after the warm-up, until the end.
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

    pub fn length(&self) -> Duration {
        self.until - self.from
    }
}

/// Times the cycles of one task. One clock read per cycle: the end of one is the start of the next.
#[derive(Clone, Debug)]
pub struct Recorder {
    window: Window,
    since: Instant,
    pub nanos: Vec<u32>,
}

impl Recorder {
    pub fn new(window: Window) -> Self {
        Self {
            window,
            since: Instant::now(),
            nanos: Vec::with_capacity(4096),
        }
    }

    /// Notes the end of a cycle; false when the window is over.
    pub fn cycle_ended(&mut self) -> bool {
        let now = Instant::now();
        let took = now - self.since;
        self.since = now;
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
