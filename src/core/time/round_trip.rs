//! The round trip to a master, smoothed over its answers.

use std::time::Duration;

/// How long the answers of a master take, and how much that varies, as in RFC 6298. Numbers are in
/// microseconds, and are multiplied so that a division loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    smoothed_by_8: u64,
    variation_by_4: u64,
}

impl RoundTrip {
    /// Begins with the first round trip.
    pub(crate) fn first(took: Duration) -> Self {
        let micros = micros(took);
        Self {
            smoothed_by_8: micros * 8,
            variation_by_4: micros * 2, // a half
        }
    }

    /// Adds another round trip.
    #[inline]
    pub(crate) fn add(&mut self, took: Duration) {
        let micros = micros(took);
        let error = (self.smoothed_by_8 / 8).abs_diff(micros);
        self.variation_by_4 += error;
        self.variation_by_4 -= (self.variation_by_4 - error) / 4;
        self.smoothed_by_8 += micros;
        self.smoothed_by_8 -= (self.smoothed_by_8 - micros) / 8;
    }

    /// Returns how long the answers take.
    pub(crate) fn smoothed(self) -> Duration {
        Duration::from_micros(self.smoothed_by_8 / 8)
    }

    /// Returns the time in which nearly every answer comes. It is at least two round trips, because
    /// a master whose answers have all taken the same time may still get slower.
    pub(crate) fn timeout(self) -> Duration {
        let smoothed = self.smoothed_by_8 / 8;
        Duration::from_micros(smoothed + smoothed.max(self.variation_by_4))
    }
}

/// Returns a time in microseconds, at most an hour.
fn micros(took: Duration) -> u64 {
    const MOST: Duration = Duration::from_secs(3_600);
    took.min(MOST).as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Adds the same round trip several times.
    fn after(first: u64, then: u64, count: usize) -> RoundTrip {
        let mut round_trip = RoundTrip::first(millis(first));
        (0..count).for_each(|_| round_trip.add(millis(then)));
        round_trip
    }

    #[test]
    fn timeout_table() {
        for (first, then, count, smoothed, timeout) in [
            (100, 0, 0, 100, 300), // as in the RFC: half of the first round trip as its variation
            (100, 100, 1, 100, 250),
            (100, 100, 100, 100, 200), // it varies no more
            (1, 60, 1, 8, 68),         // one slow answer is enough to wait for the next one
            (1, 300, 1, 38, 338),
            (1, 900, 1, 113, 1_013),
            (1, 60, 50, 59, 119),
            (300, 1, 1, 262, 1_011),
            (300, 1, 20, 21, 181),
            (300, 1, 35, 3, 26),
            (300, 1, 100, 1, 2),
        ] {
            let round_trip = after(first, then, count);
            let found = [round_trip.smoothed(), round_trip.timeout()].map(|time| time.as_millis());
            assert_eq!(found, [smoothed, timeout], "{first} {then} {count}");
        }
    }

    #[test]
    fn a_single_slow_answer_is_soon_forgotten() {
        let mut round_trip = after(1, 1, 100);
        round_trip.add(millis(200));
        let mut answers = 0;
        while round_trip.timeout() > millis(50) {
            round_trip.add(millis(1));
            answers += 1;
        }
        assert_eq!(answers, 12);
    }

    #[test]
    fn extremes_saturate() {
        let hour = Duration::from_secs(3_600);
        let mut round_trip = RoundTrip::first(Duration::MAX);
        round_trip.add(Duration::MAX);
        assert_eq!(round_trip.smoothed(), hour);
        (0..1_000).for_each(|_| round_trip.add(Duration::ZERO));
        assert!(round_trip.timeout() < millis(1));
    }
}
