//! Reports of changes from masters on which nothing has changed.

use std::time::{Duration, Instant};

/// Counts the false reports that a waiter gets. A server reports a key that did not change if its
/// table of tracked keys is full, and other keys need the place.
///
/// A lock that changes hands gets a new expiry, so a report was false if the expiry is the same as
/// before. Renewals also set a new expiry, but they are rare.
#[derive(Debug, Default)]
pub(crate) struct FalseReports {
    last: Option<Expiry>,
    count: u32,
}

/// The expiry of the lock, according to one master.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    pub(crate) master: usize,
    /// The expiry is not before the first instant, and not after the second one. `None` if the key
    /// does not expire.
    pub(crate) between: Option<(Instant, Instant)>,
}

impl FalseReports {
    /// Notes the expiry that an attempt has seen. `is_reported` says whether a report of a change
    /// led to the attempt.
    pub(crate) fn note(&mut self, expiry: Expiry, is_reported: bool) {
        let before = self.last.filter(|last| last.master == expiry.master);
        let both = before.map(|last| last.and(expiry));
        match both {
            // One true report may be a renewal.
            Some(None) => self.count /= 2,
            Some(Some(_)) if is_reported => self.count = self.count.saturating_add(1),
            Some(Some(_)) | None => {}
        }
        self.last = both.flatten().or(Some(expiry));
    }

    /// Returns the number of false reports in a row. Each true report halves it.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

impl Expiry {
    /// Returns the expiry of a key that lives for `left`, according to the answer of `master` to a
    /// question that was asked at `asked`, and was answered at `now`.
    pub(crate) fn new(master: usize, left: Option<Duration>, asked: Instant, now: Instant) -> Self {
        /// Servers count in milliseconds.
        const TICK: Duration = Duration::from_millis(1);
        let between = left.and_then(|left| {
            let latest = now.checked_add(left)?.checked_add(TICK)?;
            Some((asked.checked_add(left)?, latest))
        });
        Self { master, between }
    }

    /// Returns the expiry with which both are right. `None` if there is none.
    fn and(self, other: Self) -> Option<Self> {
        let between = match (self.between, other.between) {
            (None, None) => None,
            (Some(one), Some(other)) => {
                let (start, end) = (one.0.max(other.0), one.1.min(other.1));
                Some((start, end)).filter(|_| start <= end).map(Some)?
            }
            (None, Some(_)) | (Some(_), None) => return None,
        };
        Some(Self { between, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Notes attempts, each as its time, how long it took, what was left then, and whether it was
    /// reported. Returns the count after each.
    fn counts(attempts: &[(u64, u64, Option<u64>, bool)]) -> Vec<u32> {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let origin = Instant::now() + millis(60_000);
        let mut reports = FalseReports::default();
        let note = |&(at, took, left, is_reported): &(u64, u64, Option<u64>, bool)| {
            let (asked, now) = (origin + millis(at), origin + millis(at + took));
            let expiry = Expiry::new(1, left.map(millis), asked, now);
            reports.note(expiry, is_reported);
            reports.count()
        };
        attempts.iter().map(note).collect()
    }

    #[test]
    fn a_report_is_false_if_the_expiry_stays() {
        let still = |at| (at, 1, Some(10_000 - at), true);
        let polled = (50, 1, Some(9_950), false);
        assert_eq!(
            counts(&[still(0), still(7), polled, still(90), still(95)]),
            [0, 1, 1, 2, 3]
        );
        let never = (0, 1, None, true);
        assert_eq!(
            counts(&[never, never, still(0), still(9), never]),
            [0, 1, 0, 1, 0]
        );
    }

    #[test]
    fn a_lock_that_changes_hands_halves_the_count() {
        let new = |at| (at, 1, Some(10_000), true);
        assert_eq!(counts(&[new(0), new(9), new(20), new(31)]), [0; 4]);
        let renewed = [
            new(0),
            (5, 1, Some(9_995), true),
            (9, 1, Some(9_991), true),
            new(60),
            new(90),
        ];
        assert_eq!(counts(&renewed), [0, 1, 2, 1, 0]);
    }

    /// Each hand-over takes less time than an attempt of the waiter.
    #[test]
    fn fast_hand_overs_to_a_slow_waiter_are_no_false_reports() {
        let slow = |number: u64| (number * 25, 20, Some(10_000), true);
        let counts = counts(&Vec::from_iter((0..40).map(slow)));
        assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    }

    #[test]
    fn masters_are_not_compared() {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let now = Instant::now();
        let mut reports = FalseReports::default();
        for (master, left) in [(0, 50_000), (1, 9_000), (0, 50_000), (0, 50_000)] {
            reports.note(Expiry::new(master, Some(millis(left)), now, now), true);
        }
        assert_eq!(reports.count(), 1);
    }
}
