//! Times in buckets, for percentiles within one percent.

use std::time::Duration;

/// The number of buckets. The last one begins at about 10 min.
const BUCKETS: usize = 2_048;

#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    longest: Duration,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            count: 0,
            longest: Duration::ZERO,
        }
    }

    pub(crate) fn add(&mut self, time: Duration) {
        let micros = time.as_micros().max(1) as f64;
        let at = (micros.ln() / 1.01_f64.ln()) as usize;
        self.counts[at.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time that `percent` of the times do not exceed. `None` if there are no times.
    pub(crate) fn percentile(&self, percent: u64) -> Option<Duration> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        let micros = 1.01_f64.powi(at as i32 + 1);
        Some(Duration::from_micros(micros as u64).min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_one_percent() {
        let mut times = Histogram::new();
        assert_eq!(times.percentile(50), None);
        for micros in 1..=10_000 {
            times.add(Duration::from_micros(micros));
        }
        for (percent, micros) in [(50, 5_000.0), (99, 9_900.0), (100, 10_000.0)] {
            let found = times.percentile(percent).unwrap_or_default().as_micros() as f64;
            assert!((found / micros - 1.0).abs() < 0.011, "{percent}: {found}");
        }
        assert_eq!(times.longest, Duration::from_millis(10));
    }

    #[test]
    fn a_time_beyond_the_last_bucket_counts() {
        let mut times = Histogram::new();
        times.add(Duration::from_secs(1_000_000_000));
        assert!(times.percentile(50).is_some());
    }
}
