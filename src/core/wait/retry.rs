//! The delay before another attempt.

use std::time::Duration;

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
    /// The longest delay. A longer delay is a mistake in units.
    const MOST: Duration = Duration::from_secs(60 * 60);

    /// Creates a backoff. Returns `None` unless `0 < least <= most <= 1 h`.
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
        let spread = nanos(ceiling.saturating_sub(self.least));
        let part = (u128::from(spread) * u128::from(random)) >> 64;
        self.least.saturating_add(Duration::from_nanos(part as u64)) // at most `spread`
    }

    /// Returns a delay that is spread evenly over the whole range. `random` must be uniform over
    /// all of `u64`.
    pub(crate) fn spread(self, random: u64) -> Duration {
        self.delay(u32::MAX, random)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
