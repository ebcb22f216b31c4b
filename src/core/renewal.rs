//! When a held lock is renewed, and for how long it may be.

use std::time::{Duration, Instant};

use super::lease::{Lease, Ttl};

/// The schedule of one held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    retry: Duration,
    /// When renewing ends, whoever still wants the lock.
    ends: Instant,
}

impl Renewal {
    /// A lock of `ttl` that may be held until `max_hold` after `start`.
    ///
    /// A failed renewal is tried again after a twentieth of the TTL, a dozen times before the lease
    /// ends, and not before masters that hang have been given up on.
    pub(crate) fn new(
        start: Instant,
        ttl: Ttl,
        node_timeout: Duration,
        max_hold: Duration,
    ) -> Self {
        Self {
            retry: node_timeout.max(ttl.duration() / 20),
            ends: start.checked_add(max_hold).unwrap_or(start + Ttl::MOST),
        }
    }

    /// When a lease that was taken at `start` is due: after a third of it, so that two more thirds are
    /// left for masters that are slow, restarting or gone. `None` when it is not to be renewed again.
    pub(crate) fn due(self, start: Instant, lease: Lease) -> Option<Instant> {
        let due = start + lease.remaining(start) / 3;
        (due < self.ends).then_some(due)
    }

    /// When to look again at a renewal that was sent at `now`.
    pub(crate) fn look_again(self, now: Instant) -> Instant {
        now + self.retry
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "an origin for the laws")]

    use proptest::prelude::*;

    use super::*;
    use crate::core::lease::Drift;

    fn parse(ttl: u64, drift: Drift) -> Option<Ttl> {
        Ttl::parse(Duration::from_millis(ttl), Duration::from_millis(50), drift).ok()
    }

    #[test]
    fn renewed_at_a_third_until_the_most_is_over() {
        let start = Instant::now();
        let drift = Drift::from_ppm(10_000).unwrap();
        let ttl = parse(9_000, drift).unwrap();
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        let renewal = Renewal::new(start, ttl, millis(50), seconds(60));
        let lease = Lease::new(start, ttl, drift);
        let due = renewal.due(start, lease).unwrap();
        assert_eq!(due - start, (millis(9_000) - millis(92)) / 3);
        assert_eq!(renewal.look_again(start) - start, millis(450));
        let late = start + seconds(58);
        assert_eq!(renewal.due(late, Lease::new(late, ttl, drift)), None);
    }

    proptest! {
        #[test]
        fn a_renewal_is_never_due_when_it_is_too_late(ttl in 53..1_000_000u64, ppm in 0..900_000u32) {
            let start = Instant::now();
            let drift = Drift::from_ppm(ppm).unwrap();
            if let Some(ttl) = parse(ttl, drift) {
                let renewal = Renewal::new(start, ttl, Duration::from_millis(50), Ttl::MOST);
                let lease = Lease::new(start, ttl, drift);
                let due = renewal.due(start, lease).unwrap();
                prop_assert!(start <= due && due < lease.until());
            }
        }
    }
}
