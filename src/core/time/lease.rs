//! TTL, drift and validity, and the times at which a held lock is renewed. The arithmetic uses
//! integers and saturates.

use std::time::Duration;

use super::{Backoff, LeaseTick};
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
    /// after a round that takes a whole response timeout.
    pub(crate) fn parse(
        ttl: Duration,
        response_timeout: Duration,
        drift: Drift,
    ) -> Result<Self, ConfigError> {
        let whole = Self::whole(ttl)?;
        let least = response_timeout.saturating_add(drift.allowance(whole.duration()));
        if whole.duration() <= least {
            let range = format!(
                "more than {least:?}, the response timeout (QUORLOCK_RESPONSE_TIMEOUT) and the \
                 drift allowance together"
            );
            return Err(ConfigError::time("TTL", ttl, range));
        }
        Ok(whole)
    }

    pub(crate) fn at_most(self, most: Duration) -> Result<Self, ConfigError> {
        if self.duration() <= most {
            Ok(self)
        } else {
            let range = format!(
                "at most {most:?} (max_ttl), so give a shorter TTL (without one, a lock has \
                 QUORLOCK_TTL, 10 s by default), or first a longer max_ttl (QUORLOCK_MAX_TTL) in all \
                 programs"
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

/// A limit for the renewal of a lock, which [`Lock::renewal`](crate::Lock::renewal) and
/// [`Builder::renewal`](crate::Builder::renewal) set. A lock is renewed only while its guard lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Renewal {
    // Sorted from the shortest to the longest.
    /// The lock is never renewed. It ends when its validity ends, unless it is
    /// [extended](crate::Guard::extend).
    Off,
    /// The lock is renewed for this time, counted from the start of the round that won the lock.
    /// After that, the lock ends when its validity ends, at most one TTL later, or one TTL after a
    /// [downgrade](crate::WriteGuard::downgrade). Extensions by hand are not limited. So a task that hangs with the guard does not keep
    /// the lock forever.
    UpTo(Duration),
    /// The lock is renewed as long as the guard lives. This is the default.
    Unlimited,
}

/// The times at which one held lock is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RenewalPlan {
    /// The length of the lease that each renewal gives.
    whole: Duration,
    /// A renewal is not tried again within this time.
    least_retry: Duration,
    /// Renewals are due only before this instant. `None` means no limit.
    end: Option<LeaseTick>,
}

impl RenewalPlan {
    /// Plans the renewal of a lock. Each renewal gives a lease as long as `lease`, which began at
    /// `start`. Returns `None` for [`Renewal::Off`].
    ///
    /// A renewal is due when two thirds of a lease are left. This leaves time for masters that are
    /// slow, restarting or gone. A renewal that no majority has confirmed is tried again after a
    /// random time, on average a twentieth of a lease, and never within `least_retry`. Some
    /// masters, such as those with a CPU quota, stand still at regular intervals. If the retries
    /// also came at regular intervals, each of them could meet masters that stand still.
    pub(crate) fn new(
        start: LeaseTick,
        lease: Lease,
        least_retry: Duration,
        renewal: Renewal,
    ) -> Option<Self> {
        let end = match renewal {
            Renewal::Off => return None,
            Renewal::UpTo(limit) => Some(start + limit),
            Renewal::Unlimited => None,
        };
        Some(Self {
            whole: lease.remaining(start),
            least_retry,
            end,
        })
    }

    /// Returns the time that is left of a lease when its renewal is due.
    fn ahead(self) -> Duration {
        self.whole / 3 * 2
    }

    fn retry(self) -> Backoff {
        let least = self.least_retry;
        let retry = least.max(self.whole / 20);
        let latest = (retry * 3 / 2).min(self.ahead() / 2); // well before the end of a short lease
        Backoff::between(least.max(retry / 2), least.max(latest))
    }

    /// Returns this plan with the later end of the two plans.
    pub(crate) fn or_longer(self, other: Self) -> Self {
        Self {
            end: self.end.zip(other.end).map(|(end, other)| end.max(other)),
            ..self
        }
    }

    /// Returns when to renew `lease`, which may have any length. Returns `None` if the plan ends
    /// before that. Then `lease` is the last one.
    pub(crate) fn due(self, lease: Lease) -> Option<LeaseTick> {
        let due = lease.until().before(self.ahead());
        (!self.is_over(due)).then_some(due)
    }

    /// Returns whether this plan has ended at `now`. If so, no renewal is made, not even one that
    /// was due before.
    pub(crate) fn is_over(self, now: LeaseTick) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    pub(crate) fn longest_retry(self) -> Duration {
        self.retry().most()
    }

    /// Returns when to check on a renewal that was posted at `now`. `random` must be uniform over
    /// all of `u64`.
    pub(crate) fn look_again(self, now: LeaseTick, random: u64) -> LeaseTick {
        now + self.retry().spread(random)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use testkit::times::millis;

    use super::*;
    use crate::core::time::tick::Tick;

    const ONE_PERCENT: Drift = Drift { ppm: 10_000 };

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

#[cfg(test)]
mod renewal {
    use proptest::prelude::*;

    use super::*;

    fn parse(ttl: u64, drift: Drift) -> Option<Ttl> {
        Ttl::parse(Duration::from_millis(ttl), Duration::from_millis(50), drift).ok()
    }

    #[test]
    fn a_lease_is_renewed_with_two_thirds_left_until_the_limit() {
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        let start = LeaseTick::some();
        let drift = Drift::from_ppm(0).unwrap();
        let lease = |at: LeaseTick, ttl: u64| Lease::new(at, parse(ttl, drift).unwrap(), drift);
        let limit = Renewal::UpTo(seconds(60));
        let plan = RenewalPlan::new(start, lease(start, 9_002), millis(50), limit).unwrap();
        for (at, ttl, due) in [
            (0, 9_002, Some(millis(3_000))),
            (3, 9_002, Some(millis(6_000))),
            (3, 40_002, Some(seconds(37))), // extended by hand, so it is due late
            (57, 9_002, None),
            (56, 9_002, Some(millis(59_000))),
        ] {
            let due_at = plan.due(lease(start + seconds(at), ttl));
            assert_eq!(due_at, due.map(|due| start + due), "{at} {ttl}");
        }
        assert!(plan.is_over(start + seconds(60)) && !plan.is_over(start + millis(59_999)));
    }

    #[test]
    fn a_renewal_that_failed_is_tried_again_after_a_random_time() {
        let millis = Duration::from_millis;
        let start = LeaseTick::some();
        let drift = Drift::from_ppm(0).unwrap();
        let lease = Lease::new(start, parse(9_002, drift).unwrap(), drift);
        for (least_retry, least, mean, most) in [
            (50, 225, 450, 675),
            (300, 300, 487, 675),
            (500, 500, 625, 750),
            (2_500, 2_500, 2_750, 3_000),
            (4_000, 4_000, 4_000, 4_000),
        ] {
            let plan = RenewalPlan::new(start, lease, millis(least_retry), Renewal::Unlimited);
            let plan = plan.unwrap();
            for (random, after) in [(0, least), (1 << 63, mean), (u64::MAX, most)] {
                let at = plan.look_again(start, random);
                let (least, most) = (start + millis(after), start + millis(after + 1));
                let is_right = least <= at + Duration::from_nanos(1) && at < most;
                assert!(is_right, "{least_retry} {random}: {at:?}");
            }
            assert_eq!(plan.longest_retry(), millis(most));
        }
    }

    #[test]
    fn of_two_plans_the_later_end_counts() {
        let start = LeaseTick::some();
        let drift = Drift::from_ppm(0).unwrap();
        let lease = Lease::new(start, parse(9_002, drift).unwrap(), drift);
        let response_timeout = Duration::from_millis(50);
        let plan = |renewal| RenewalPlan::new(start, lease, response_timeout, renewal).unwrap();
        let until = |seconds| plan(Renewal::UpTo(Duration::from_secs(seconds)));
        let unlimited = plan(Renewal::Unlimited);
        assert_eq!(until(7).or_longer(until(9)), until(9));
        assert_eq!(until(9).or_longer(until(7)), until(9));
        assert_eq!(until(9).or_longer(unlimited), unlimited);
        assert_eq!(unlimited.or_longer(until(9)), unlimited);
        assert_eq!(
            RenewalPlan::new(start, lease, response_timeout, Renewal::Off),
            None
        );
    }

    proptest! {
        #[test]
        fn a_renewal_is_due_before_the_lease_ends(
            ttl in 53..1_000_000u64,
            ppm in 0..900_000u32,
        ) {
            let start = LeaseTick::some();
            let drift = Drift::from_ppm(ppm).unwrap();
            if let Some(ttl) = parse(ttl, drift) {
                let lease = Lease::new(start, ttl, drift);
                let response_timeout = Duration::from_millis(50);
                let plan = RenewalPlan::new(start, lease, response_timeout, Renewal::Unlimited);
                let plan = plan.unwrap();
                let due = plan.due(lease).unwrap();
                prop_assert!(start <= due && due < lease.until());
            }
        }
    }
}
