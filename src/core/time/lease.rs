//! TTL, drift and validity. The arithmetic uses integers and saturates.

use std::time::Duration;

use super::tick::LeaseTick;
use crate::core::config_error::ConfigError;

/// The largest allowed difference between the rates of clocks while a lock is held.
///
/// The allowance for a TTL is `ttl * ppm / 1,000,000 + 2 ms`. It covers the rate error of both
/// clocks and the millisecond granularity of Redis' expiry, as in the [Redlock
/// algorithm](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    ppm: u32,
}

impl Drift {
    const GRANULARITY: Duration = Duration::from_millis(2);
    const WHOLE: u32 = 1_000_000;

    pub(crate) fn from_ppm(ppm: u32) -> Result<Self, ConfigError> {
        if ppm < Self::WHOLE {
            Ok(Self { ppm })
        } else {
            let range = "below 1,000,000 (10,000 is 1 %)";
            Err(ConfigError::out_of_range(
                "drift",
                format!("{ppm} ppm"),
                range,
            ))
        }
    }

    /// Returns the part of `ttl` that a holder must not use. The result is rounded up, because a
    /// smaller allowance would be unsafe.
    pub(crate) fn allowance(self, ttl: Duration) -> Duration {
        let scaled = (ttl.as_nanos() * u128::from(self.ppm)).div_ceil(u128::from(Self::WHOLE));
        u64::try_from(scaled)
            .map_or(Duration::MAX, Duration::from_nanos)
            .saturating_add(Self::GRANULARITY)
    }

    /// Returns the part of `ttl` that a holder may use.
    pub(crate) fn usable(self, ttl: Ttl) -> Duration {
        let ttl = ttl.duration();
        ttl.saturating_sub(self.allowance(ttl))
    }

    /// Returns the shortest TTL with which a key lives for at least `time`, even on a master whose
    /// clock is fast. The result is at most [`Ttl::MOST`].
    pub(crate) fn outlasting(self, time: Duration) -> Ttl {
        let least = time.saturating_add(Self::GRANULARITY).as_nanos() * u128::from(Self::WHOLE);
        let millis = least
            .div_ceil(u128::from(Self::WHOLE - self.ppm))
            .div_ceil(1_000_000);
        Ttl(millis.min(Ttl::MOST.as_millis()) as u64)
    }
}

/// The largest difference that a master accepts between its clock and the time in a fresh ticket or
/// in a candidate for a fencing token. It limits the advantage of a client whose clock is wrong.
pub(crate) const CLOCK_WINDOW: Duration = Duration::from_secs(1);

/// A time to live that was checked. It is a number of whole milliseconds. It is long enough to win
/// a lock, and at most [`Ttl::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ttl(u64);

impl Ttl {
    /// The longest TTL. A longer TTL is probably a mistake in units. The end of a lease must also
    /// fit into a [`LeaseTick`].
    pub(crate) const MOST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

    /// Rounds a TTL down to whole milliseconds, the unit of the masters. Refuses a TTL that is
    /// longer than [`MOST`](Self::MOST).
    pub(crate) fn whole(ttl: Duration) -> Result<Self, ConfigError> {
        if ttl > Self::MOST {
            return Err(ConfigError::time("TTL", ttl, "at most 366 days"));
        }
        Ok(Self(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Rounds a TTL down as [`whole`](Self::whole) does. Refuses a TTL that leaves no validity
    /// after a round that takes a whole node timeout.
    pub(crate) fn parse(
        ttl: Duration,
        node_timeout: Duration,
        drift: Drift,
    ) -> Result<Self, ConfigError> {
        let whole = Self::whole(ttl)?;
        let least = node_timeout.saturating_add(drift.allowance(whole.duration()));
        if whole.duration() <= least {
            let range =
                format!("more than {least:?}, the node timeout and the drift allowance together");
            return Err(ConfigError::time("TTL", ttl, range));
        }
        Ok(whole)
    }

    /// Returns this TTL if it is not above `most`.
    pub(crate) fn at_most(self, most: Duration) -> Result<Self, ConfigError> {
        if self.duration() <= most {
            Ok(self)
        } else {
            let range = format!(
                "at most {most:?}, so set a shorter ttl (10 s by default), \
                 or a longer max_ttl in all programs"
            );
            Err(ConfigError::time("TTL", self.duration(), range))
        }
    }

    pub(crate) fn millis(self) -> u64 {
        self.0
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

/// The time until which a holder may rely on its lock. It is stored as an instant, so no caller can
/// subtract the elapsed time twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease {
    until: LeaseTick,
}

impl Lease {
    /// Creates the lease of a round that began at `start`.
    ///
    /// `start` must be read before the first byte is sent. Then each master begins to count the TTL
    /// after `start`, so the key on each master outlives this lease.
    pub(crate) fn new(start: LeaseTick, ttl: Ttl, drift: Drift) -> Self {
        Self {
            until: start + drift.usable(ttl),
        }
    }

    pub(crate) fn until(self) -> LeaseTick {
        self.until
    }

    pub(crate) fn is_valid(self, now: LeaseTick) -> bool {
        now < self.until
    }

    pub(crate) fn remaining(self, now: LeaseTick) -> Duration {
        self.until.since(now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::time::tick::Tick;

    const ONE_PERCENT: Drift = Drift { ppm: 10_000 };

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn allowance_table() {
        for (ppm, ttl, allowance) in [
            (10_000, millis(10_000), millis(102)),
            (10_000, millis(100), millis(3)),
            (10_000, millis(0), millis(2)),
            (0, millis(10_000), millis(2)),
            (100_000, millis(1_000), millis(102)),
            (1, Duration::from_nanos(1), Duration::from_nanos(2_000_001)),
        ] {
            assert_eq!(Drift::from_ppm(ppm).unwrap().allowance(ttl), allowance);
        }
        assert!(Drift::from_ppm(1_000_000).is_err());
    }

    #[test]
    fn extremes_saturate() {
        let most = Drift::from_ppm(999_999).unwrap();
        assert_eq!(most.allowance(Duration::MAX), Duration::MAX);
        assert_eq!(most.outlasting(Duration::MAX).duration(), Ttl::MOST);
        let start = LeaseTick::some();
        // No TTL is so long, but neither the allowance nor the end of a lease would wrap around.
        let until = |drift| Lease::new(start, Ttl(u64::MAX), drift).until();
        assert_eq!(until(most), start);
        assert_eq!(until(Drift { ppm: 0 }), LeaseTick::from_nanos(u64::MAX));
        assert!(!Lease::new(start, Ttl(0), ONE_PERCENT).is_valid(start));
        assert_eq!(
            Lease::new(start, Ttl(1), ONE_PERCENT).remaining(start),
            Duration::ZERO
        );
    }

    /// The process has run for a century, and the machine was suspended for as long.
    #[test]
    fn the_longest_lease_fits() {
        let (century, drift) = (Ttl::MOST * 100, Drift { ppm: 0 });
        let start = (Tick::some() + century).with(century);
        let ttl = Ttl::whole(Ttl::MOST).unwrap();
        let lease = Lease::new(start, ttl, drift);
        assert_eq!(lease.remaining(start), drift.usable(ttl));
        assert!(!lease.is_valid(start + drift.usable(ttl)));
    }

    #[test]
    fn ttl_bounds() {
        assert_eq!(Ttl::MOST, Duration::from_secs(31_622_400));
        let parse = |ttl| Ttl::parse(ttl, millis(50), ONE_PERCENT);
        assert!(parse(millis(0)).is_err());
        assert!(parse(millis(52)).is_err());
        assert_eq!(parse(millis(53)).unwrap().millis(), 53);
        assert_eq!(parse(Duration::from_micros(99_999)).unwrap().millis(), 99);
        assert!(parse(Ttl::MOST).is_ok());
        assert!(parse(Duration::MAX).is_err());
    }

    proptest! {
        #[test]
        fn validity_never_exceeds_ttl_minus_drift_minus_elapsed(
            ttl in 0..=Ttl::MOST.as_millis() as u64,
            ppm in 0..1_000_000u32,
            elapsed in 0..100_000_000_000u64,
        ) {
            let drift = Drift::from_ppm(ppm).unwrap();
            let start = LeaseTick::some();
            let now = start + Duration::from_nanos(elapsed);
            let validity = Lease::new(start, Ttl(ttl), drift).remaining(now);
            let exact = i128::from(ttl) * 1_000_000
                - (i128::from(ttl) * 1_000_000 * i128::from(ppm) + 999_999) / 1_000_000
                - 2_000_000
                - i128::from(elapsed);
            prop_assert_eq!(validity.as_nanos() as i128, exact.max(0));
        }

        #[test]
        fn a_key_that_must_stay_gets_the_shortest_ttl_that_outlasts_the_time(
            time in 0..=Ttl::MOST.as_nanos() as u64,
            ppm in 0..100_000u32,
        ) {
            let (drift, time) = (Drift { ppm }, Duration::from_nanos(time));
            let ttl = drift.outlasting(time);
            prop_assert!(drift.usable(Ttl(ttl.millis() - 1)) < time || time.is_zero());
            prop_assert!(drift.usable(ttl) >= time || ttl.duration() == Ttl::MOST);
        }

        #[test]
        fn a_lease_is_valid_exactly_while_something_remains(
            ttl in 0..100_000u64,
            elapsed in 0..100_000u64,
        ) {
            let start = LeaseTick::some();
            let now = start + millis(elapsed);
            let lease = Lease::new(start, Ttl(ttl), ONE_PERCENT);
            prop_assert_eq!(lease.is_valid(now), !lease.remaining(now).is_zero());
        }
    }
}
