//! The times that waiters leave to clients that poll.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// The locks that clients of other processes have wanted lately, by their keys.
///
/// Waiters hear of each release, so they come before clients that poll. Nothing tells a client that
/// polls from a waiter of another process of this crate. So in all processes, waiters leave the
/// locks in this list alone at the same times of the wall clock.
#[derive(Debug, Default)]
pub(crate) struct PollingRivals {
    /// The time of the last attempt that showed a client of another process.
    shown: HashMap<Arc<str>, Instant>,
    /// The number of locks at which old entries are removed.
    limit: usize,
}

impl PollingRivals {
    /// The time for which a lock is in the list.
    const MEMORY: Duration = Duration::from_secs(10);
    /// Clients that ask at usual intervals, such as each 200 ms, meet different parts of the period
    /// in turn.
    const PERIOD: Duration = Duration::from_millis(280);
    /// The first part of each period. Waiters leave it to clients that poll.
    const SHARE: Duration = Duration::from_millis(140);
    const LEAST_LIMIT: usize = 64;

    /// Notes that a client of another process wants the lock `key`.
    pub(crate) fn note(&mut self, key: &Arc<str>, now: Instant) {
        if self.shown.len() >= self.limit {
            self.shown.retain(|_, shown| Self::is_recent(*shown, now));
            self.limit = Self::LEAST_LIMIT.max(2 * self.shown.len());
        }
        self.shown.insert(key.clone(), now);
    }

    /// Returns for how long waiters leave the lock `key` alone. `wall` is the time of the wall
    /// clock since 1970.
    pub(crate) fn time_to_leave(
        &self,
        key: &str,
        wall: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let shown = self.shown.get(key)?;
        if !Self::is_recent(*shown, now) {
            return None;
        }
        let in_period = wall.as_nanos() % Self::PERIOD.as_nanos();
        let in_period = Duration::from_nanos(in_period as u64);
        let left = Self::SHARE.saturating_sub(in_period);
        (!left.is_zero()).then_some(left)
    }

    fn is_recent(shown: Instant, now: Instant) -> bool {
        now.saturating_duration_since(shown) < Self::MEMORY
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "an origin for the tables")]

    use super::*;

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn others_get_the_first_half_of_each_period_if_there_are_any() {
        let start = Instant::now();
        let mut rivals = PollingRivals::default();
        assert_eq!(rivals.time_to_leave("r", millis(28_000), start), None);
        rivals.note(&"r".into(), start);
        for (key, wall, later, expected) in [
            ("r", 28_000, 0, Some(140)),
            ("r", 28_139, 0, Some(1)),
            ("r", 28_140, 0, None),
            ("r", 28_279, 0, None),
            ("r", 28_300, 9_999, Some(120)),
            ("r", 28_300, 10_000, None), // no rival was seen for too long
            ("s", 28_000, 0, None),
        ] {
            let left = rivals.time_to_leave(key, millis(wall), start + millis(later));
            assert_eq!(left, expected.map(millis), "{key} {wall} {later}");
        }
    }

    #[test]
    fn locks_are_forgotten_while_others_are_noted() {
        let start = Instant::now();
        let mut rivals = PollingRivals::default();
        for number in 0..10_000 {
            // 500 locks in 10 s
            rivals.note(&format!("{number}").into(), start + millis(20) * number);
            assert!(rivals.shown.len() <= 1_001, "{number}");
        }
    }

    /// A client that asks at fixed intervals must not miss the times of others for long.
    #[test]
    fn usual_intervals_meet_the_time_of_others_soon() {
        let start = Instant::now();
        let mut rivals = PollingRivals::default();
        rivals.note(&"r".into(), start);
        for interval in [50, 100, 150, 200, 250, 300, 400, 500] {
            for first in 0..280 {
                let mut polls = (0..).map(|poll| first + interval * poll);
                let met = polls.find(|at| rivals.time_to_leave("r", millis(*at), start).is_some());
                assert!(met.unwrap() - first <= 2_100, "{interval} from {first}");
            }
        }
    }
}
