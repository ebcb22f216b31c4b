//! Times as numbers of nanoseconds. `Instant` and `Duration` cost several times as much.

use std::{ops::Add, time::Duration};

/// A time on one of two clocks: the number of nanoseconds since [`ORIGIN`](Self::ORIGIN) before the
/// first look at the clock. The arithmetic saturates. There is no subtraction, because a remainder
/// that wraps around would be an endless lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time<const IS_OF_LEASES: bool>(u64);

/// A time on the monotonic clock, which stands still while the machine is suspended.
pub(crate) type Tick = Time<false>;

/// A time on the clock of leases: the monotonic clock plus the time for which the machine was
/// suspended.
pub(crate) type LeaseTick = Time<true>;

impl<const C: bool> Time<C> {
    /// The time of the first look at the clock, about 73 years. So there are earlier times, and
    /// times of the next 500 years.
    pub(crate) const ORIGIN: u64 = 1 << 61;

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later than this time.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the whole microseconds since `earlier`, as [`since`](Self::since) counts.
    pub(crate) fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }

    pub(crate) fn before(self, time: Duration) -> Self {
        Self::from_nanos(self.0.saturating_sub(nanos(time)))
    }
}

impl Tick {
    /// Converts this time to the clock of leases. The machine was suspended for the time `slept`.
    pub(crate) fn with(self, slept: Duration) -> LeaseTick {
        LeaseTick::from_nanos(self.0) + slept
    }
}

impl LeaseTick {
    /// Converts this time to the monotonic clock.
    pub(crate) fn without(self, slept: Duration) -> Tick {
        Tick::from_nanos(self.0).before(slept)
    }
}

impl<const C: bool> Add<Duration> for Time<C> {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self::from_nanos(self.0.saturating_add(nanos(time)))
    }
}

#[cfg(test)]
impl<const C: bool> Time<C> {
    /// Returns an arbitrary time. The times in the tables of tests are relative to it.
    pub(crate) fn some() -> Self {
        Self::from_nanos(Self::ORIGIN)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: u64 = u64::MAX;
    const SOME: u64 = Tick::ORIGIN;

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    #[test]
    fn sums_saturate() {
        let too_long = Duration::from_nanos(LAST) + Duration::from_nanos(1);
        for (time, before, after) in [
            (Duration::ZERO, SOME, SOME),
            (Duration::from_nanos(1), SOME - 1, SOME + 1),
            (Duration::from_nanos(SOME), 0, 2 * SOME),
            (Duration::from_nanos(LAST - SOME), 0, LAST),
            (Duration::from_nanos(LAST), 0, LAST),
            (too_long, 0, LAST),
            (Duration::MAX, 0, LAST),
        ] {
            let moved = (at(SOME).before(time), at(SOME) + time);
            assert_eq!(moved, (at(before), at(after)), "{time:?}");
        }
    }

    #[test]
    fn remainders_are_never_below_zero() {
        for (earlier, later) in [(SOME, SOME), (SOME, SOME + 2_999), (0, LAST)] {
            let (nanos, earlier, later) = (later - earlier, at(earlier), at(later));
            assert_eq!(later.since(earlier), Duration::from_nanos(nanos));
            assert_eq!(later.micros_since(earlier), nanos / 1_000);
            assert_eq!(earlier.since(later), Duration::ZERO);
            assert_eq!(earlier.micros_since(later), 0);
        }
    }

    #[test]
    fn a_conversion_between_clocks_is_undone_by_the_other_one() {
        for slept in [0, 1, SOME] {
            let time = Duration::from_nanos(slept);
            for nanos in [0, SOME, LAST - slept] {
                assert_eq!(at(nanos).with(time).nanos(), nanos + slept);
                assert_eq!(at(nanos).with(time).without(time), at(nanos));
            }
        }
        let most = at(SOME).with(Duration::MAX);
        assert_eq!((most.nanos(), most.without(Duration::MAX)), (LAST, at(0)));
    }
}
