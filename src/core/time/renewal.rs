//! The times at which a held lock is renewed.

use std::time::Duration;

use super::{Backoff, lease::Lease, tick::LeaseTick};

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
    /// After that, the lock ends when its validity ends, at most one TTL later. So a task that
    /// hangs with the guard does not keep the lock forever.
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

    /// Returns the times after which a renewal is tried again.
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

    /// Returns the longest time after which a renewal is tried again.
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

    use super::*;
    use crate::core::time::lease::{Drift, Ttl};

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
        let node_timeout = Duration::from_millis(50);
        let plan = |renewal| RenewalPlan::new(start, lease, node_timeout, renewal).unwrap();
        let until = |seconds| plan(Renewal::UpTo(Duration::from_secs(seconds)));
        let unlimited = plan(Renewal::Unlimited);
        assert_eq!(until(7).or_longer(until(9)), until(9));
        assert_eq!(until(9).or_longer(until(7)), until(9));
        assert_eq!(until(9).or_longer(unlimited), unlimited);
        assert_eq!(unlimited.or_longer(until(9)), unlimited);
        assert_eq!(
            RenewalPlan::new(start, lease, node_timeout, Renewal::Off),
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
                let node_timeout = Duration::from_millis(50);
                let plan = RenewalPlan::new(start, lease, node_timeout, Renewal::Unlimited);
                let plan = plan.unwrap();
                let due = plan.due(lease).unwrap();
                prop_assert!(start <= due && due < lease.until());
            }
        }
    }
}
