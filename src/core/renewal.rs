//! When a held lock is renewed, and for how long it may be.

use std::time::{Duration, Instant};

use super::lease::{Lease, Ttl};

/// The schedule of one held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    /// How long before the lease ends it is due.
    ahead: Duration,
    retry: Duration,
    /// When renewing ends, whoever still wants the lock.
    ends: Instant,
}

impl Renewal {
    /// A lock that is renewed with leases as long as `lease`, which began at `start`, and may be held until
    /// `max_hold` after that. A renewal that failed is tried again after `retry`.
    ///
    /// Due with two thirds of a lease left: for masters that are slow, restarting or gone.
    pub(crate) fn new(start: Instant, lease: Lease, retry: Duration, max_hold: Duration) -> Self {
        Self {
            ahead: lease.remaining(start) / 3 * 2,
            retry,
            ends: start.checked_add(max_hold).unwrap_or(start + Ttl::MOST),
        }
    }

    /// This one, for as long as the longer of the two lasts.
    pub(crate) fn or_longer(self, other: Self) -> Self {
        Self {
            ends: self.ends.max(other.ends),
            ..self
        }
    }

    /// When `lease` is due, however long it is. `None` when it is not to be renewed again.
    pub(crate) fn due(self, lease: Lease) -> Option<Instant> {
        let due = lease.until().checked_sub(self.ahead)?;
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
    fn renewed_with_two_thirds_left_until_the_most_is_over() {
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        let start = Instant::now();
        let drift = Drift::from_ppm(0).unwrap();
        let lease = |at: Instant, ttl: u64| Lease::new(at, parse(ttl, drift).unwrap(), drift);
        let renewal = Renewal::new(start, lease(start, 9_002), millis(450), seconds(60));
        for (at, ttl, due) in [
            (0, 9_002, Some(millis(3_000))),
            (3, 9_002, Some(millis(6_000))),
            (3, 40_002, Some(seconds(37))), // extended by hand: due when that nears its end
            (57, 9_002, None),
            (56, 9_002, Some(millis(59_000))),
        ] {
            let due_at = renewal.due(lease(start + seconds(at), ttl));
            assert_eq!(due_at.map(|due_at| due_at - start), due, "{at} {ttl}");
        }
        assert_eq!(renewal.look_again(start) - start, millis(450));
    }

    proptest! {
        #[test]
        fn a_renewal_is_never_due_when_it_is_too_late(ttl in 53..1_000_000u64, ppm in 0..900_000u32) {
            let start = Instant::now();
            let drift = Drift::from_ppm(ppm).unwrap();
            if let Some(ttl) = parse(ttl, drift) {
                let lease = Lease::new(start, ttl, drift);
                let due = Renewal::new(start, lease, Duration::from_millis(50), Ttl::MOST).due(lease).unwrap();
                prop_assert!(start <= due && due < lease.until());
            }
        }
    }
}
