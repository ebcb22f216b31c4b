//! The times in the rules: TTL, drift and validity, timeouts, renewals and outages.

use std::{mem, time::Duration};

pub(crate) mod lease;
pub(crate) mod tick;

pub(crate) use lease::{Drift, Lease, Renewal, Ttl};
pub(crate) use tick::{LeaseTick, Tick};

/// Returns a measured time for a text: in whole milliseconds, or microseconds if it is shorter.
pub(crate) fn rounded(time: Duration) -> Duration {
    let unit: u64 = if time < Duration::from_millis(1) {
        1_000
    } else {
        1_000_000
    };
    let nanos = time.as_nanos() + u128::from(unit / 2);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX) / unit * unit)
}

/// The rule by which the response timeout of a connection is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseTimeout {
    /// The user has set the timeout for all masters.
    Fixed(Duration),
    /// The timeout follows the round trip to each master.
    Measured,
}

impl ResponseTimeout {
    /// The shortest and the longest measured timeout.
    const LEAST: Duration = Duration::from_millis(50);
    const MOST: Duration = Duration::from_secs(1);
    /// How late an answer may come at least, if the timeout is measured.
    const LATE: Duration = Duration::from_millis(500);
    /// The number of response timeouts after which a master counts as silent, if no byte has come
    /// from it. Without this limit, commands would pile up in the connection, and the master would
    /// execute all of them when it recovers.
    pub(crate) const SILENT_TIMEOUTS: u32 = 3;
    /// If bytes come in, but no whole reply, a master counts as silent after this many times the
    /// usual limit.
    const PROGRESS_FACTOR: u32 = 10;

    pub(crate) fn least(self) -> Duration {
        match self {
            Self::Fixed(timeout) => timeout,
            Self::Measured => Self::LEAST,
        }
    }

    pub(crate) fn limits(self, round_trip: RoundTrip) -> Limits {
        let timeout = match self {
            Self::Fixed(timeout) => timeout,
            Self::Measured => round_trip.timeout().clamp(Self::LEAST, Self::MOST),
        };
        // A master whose round trip is longer than a fixed timeout cannot vote. It is alive, so its
        // connection is not given up.
        let silence = timeout.max(round_trip.smoothed() * 2) * Self::SILENT_TIMEOUTS;
        // An answer that is late shows how long the answers take now. But no answer may mean that
        // something on the way has forgotten the connection.
        let end = match self {
            Self::Fixed(_) => silence,
            Self::Measured => silence.max(Self::LATE),
        };
        Limits {
            timeout,
            silence,
            end,
            progress: end.max(silence * Self::PROGRESS_FACTOR),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The time for the answer to a command. After this time, the vote is a failure.
    pub(crate) timeout: Duration,
    /// The time after which the master counts as silent if no byte comes in. It then gets no more
    /// requests until a byte comes in.
    pub(crate) silence: Duration,
    /// The time after which the connection is given up if no byte comes in.
    pub(crate) end: Duration,
    /// The time after which the connection is given up if bytes come in, but no whole reply.
    pub(crate) progress: Duration,
}

/// How long the answers of a master take, and how much that varies, as in RFC 6298. Numbers are in
/// microseconds, and are multiplied so that a division loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    smoothed_by_8: u64,
    variation_by_4: u64,
}

impl RoundTrip {
    pub(crate) fn first(took: Duration) -> Self {
        let micros = micros(took);
        Self {
            smoothed_by_8: micros * 8,
            variation_by_4: micros * 2, // a half
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, took: Duration) {
        let micros = micros(took);
        let error = (self.smoothed_by_8 / 8).abs_diff(micros);
        self.variation_by_4 += error;
        self.variation_by_4 -= (self.variation_by_4 - error) / 4;
        self.smoothed_by_8 += micros;
        self.smoothed_by_8 -= (self.smoothed_by_8 - micros) / 8;
    }

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

/// Random delays between two bounds. The delays grow with the number of failures.
///
/// Contenders that split the vote try again after different delays. So one of them can win the next
/// round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
}

impl Backoff {
    /// The longest delay. A longer delay is probably a mistake in units.
    const MOST: Duration = Duration::from_secs(60 * 60);

    /// Creates a backoff if `0 < least <= most <= 1 h`. Otherwise returns `None`.
    pub(crate) fn new(least: Duration, most: Duration) -> Option<Self> {
        let is_range = !least.is_zero() && least <= most && most <= Self::MOST;
        is_range.then_some(Self { least, most })
    }

    /// Creates a backoff from bounds that are known to be valid.
    pub(crate) const fn between(least: Duration, most: Duration) -> Self {
        Self { least, most }
    }

    pub(crate) fn least(self) -> Duration {
        self.least
    }

    pub(crate) fn most(self) -> Duration {
        self.most
    }

    /// Returns the delay after failure number `failures`, counted from 0. The delay lies between
    /// `least` and a ceiling. The ceiling starts at `2 * least` and doubles with each failure, up
    /// to `most`. `random` must be uniform over all of `u64`.
    pub(crate) fn delay(self, failures: u32, random: u64) -> Duration {
        let ceiling = self
            .least
            .saturating_mul(2u32.saturating_pow(failures.saturating_add(1)))
            .min(self.most);
        let spread = ceiling.saturating_sub(self.least).as_nanos();
        let part = (spread * u128::from(random)) >> 64;
        self.least.saturating_add(Duration::from_nanos(part as u64)) // at most `spread`
    }

    /// Returns a delay that is spread evenly over the whole range. `random` must be uniform over
    /// all of `u64`.
    pub(crate) fn spread(self, random: u64) -> Duration {
        self.delay(u32::MAX, random)
    }
}

/// What the log says about an outage: its first failure, and the success that ends it. For some
/// time after a failure that was logged, new outages are not logged, because they could fill the
/// log. Another rule decides what the log says about the connection to a master: see `Outage` in
/// the supervisor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutageLog {
    /// `true` during an outage whose beginning is in the log.
    is_logged: bool,
    /// The time of the last failure that is in the log.
    last_logged: Option<Tick>,
}

impl OutageLog {
    const PAUSE: Duration = Duration::from_secs(10);

    /// Notes a failure at `now`. Returns whether the failure belongs in the log.
    pub(crate) fn fails(&mut self, now: Tick) -> bool {
        let is_recent = |logged: Tick| now.since(logged) < Self::PAUSE;
        if self.is_logged || self.last_logged.is_some_and(is_recent) {
            return false;
        }
        *self = Self {
            is_logged: true,
            last_logged: Some(now),
        };
        true
    }

    /// Notes a success. Returns whether the success belongs in the log.
    pub(crate) fn works(&mut self) -> bool {
        mem::take(&mut self.is_logged)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testkit::times::millis;

    use super::*;

    #[test]
    fn a_time_in_a_text_has_no_digits_that_nobody_reads() {
        for (nanos, expected) in [
            (0, "0ns"),
            (1_499, "1µs"),
            (999_900, "1ms"),
            (51_643_108, "52ms"),
            (9_897_612_345, "9.898s"),
        ] {
            let shown = format!("{:?}", rounded(Duration::from_nanos(nanos)));
            assert_eq!(shown, expected);
        }
        assert!(rounded(Duration::MAX) > Duration::from_secs(1_000_000_000));
    }

    #[test]
    fn limits_table() {
        use ResponseTimeout::{Fixed, Measured};
        let millis = Duration::from_millis;
        for (response_timeout, round_trip, timeout, silence, end) in [
            (Measured, 0, 50, 150, 500),
            (Measured, 16, 50, 150, 500),
            (Measured, 20, 60, 180, 500),
            (Measured, 120, 360, 1_080, 1_080),
            (Measured, 400, 1_000, 3_000, 3_000),
            (Measured, 2_000, 1_000, 12_000, 12_000),
            (Fixed(millis(50)), 0, 50, 150, 150),
            (Fixed(millis(50)), 200, 50, 1_200, 1_200),
            (Fixed(millis(2_000)), 200, 2_000, 6_000, 6_000),
        ] {
            let limits = response_timeout.limits(RoundTrip::first(millis(round_trip)));
            let expected = Limits {
                timeout: millis(timeout),
                silence: millis(silence),
                end: millis(end),
                progress: millis(silence * 10),
            };
            assert_eq!(limits, expected, "{response_timeout:?} {round_trip}");
        }
    }

    #[test]
    fn an_outage_is_logged_once_and_quick_changes_are_bounded() {
        let start = Tick::some();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut outages = OutageLog::default();
        assert!(!outages.works());
        assert!(outages.fails(at(0)) && !outages.fails(at(100)));
        assert!(outages.works() && !outages.works());
        assert!(outages.fails(at(101)));
        assert!(outages.works());
        assert!(!outages.fails(at(102)) && !outages.works());
        // The last outage goes on.
        assert!(!outages.fails(at(110)) && outages.fails(at(111)));
        assert!(outages.works());
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

    #[test]
    fn delay_table() {
        let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100)).unwrap();
        for (failures, random, millis) in [
            (0, 0, 10),
            (0, u64::MAX / 2 + 1, 15),
            (1, u64::MAX / 2 + 1, 25),
            (9, u64::MAX / 2 + 1, 55),
            (u32::MAX, 0, 10),
        ] {
            assert_eq!(
                backoff.delay(failures, random),
                Duration::from_millis(millis),
                "{failures} {random}"
            );
        }
    }

    #[test]
    fn bounds_are_checked() {
        let (zero, one, two) = (
            Duration::ZERO,
            Duration::from_millis(1),
            Duration::from_millis(2),
        );
        assert!(Backoff::new(zero, one).is_none());
        assert!(Backoff::new(two, one).is_none());
        assert!(Backoff::new(one, one).is_some());
        let hour = Duration::from_secs(3_600);
        assert!(Backoff::new(one, hour).is_some());
        assert!(Backoff::new(one, hour + one).is_none());
    }

    proptest! {
        #[test]
        fn delays_stay_within_their_bounds(
            least in 1..10_000_000_000u64,
            more in 0..10_000_000_000u64,
            failures: u32,
            random: u64,
        ) {
            let (least, most) = (Duration::from_nanos(least), Duration::from_nanos(least + more));
            let delay = Backoff::new(least, most).unwrap().delay(failures, random);
            prop_assert!(least <= delay && delay <= most);
        }
    }
}
