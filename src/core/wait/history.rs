//! What a process remembers of a lock: whether clients of other processes want the lock, and how
//! often this process has handed the lock over to its own waiters.

use std::time::Duration;

use super::contest::Start;
use crate::core::time::lease::LeaseTime;

/// What this process has found out by its attempts at one lock. A rival is a client of another
/// process that asks for the lock at the same moment, or that asked just before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct History {
    /// The number of further attempts without a rival after which the lock counts as uncontested.
    until_calm: u8,
    /// `true` if the last waiter had to wait in the queues of the masters. The next waiter is then
    /// likely to wait in them as well, so it joins the queues in its first round.
    pub(crate) was_queued: bool,
    pub(crate) run: Run,
}

impl History {
    const UNTIL_CALM: u8 = 8;

    /// Notes an attempt, and whether it has met a rival.
    pub(crate) fn note(&mut self, has_rival: bool) {
        self.until_calm = match has_rival {
            true => Self::UNTIL_CALM,
            false => self.until_calm.saturating_sub(1),
        };
    }

    /// Returns whether the next attempt is likely to meet a rival.
    pub(crate) fn are_rivals_likely(&self) -> bool {
        self.until_calm > 0
    }
}

/// The latest hand-overs of a lock, each from one waiter of this process to the next.
///
/// After a release, the next waiter of the same process is always the first to ask for the lock. So
/// the waiters of other processes would get nothing while this process has waiters. After some
/// hand-overs, or after some time, the next waiter gives way for a moment. `parking_lot` calls this
/// eventual fairness.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// The time of the first hand-over.
    since: Option<LeaseTime>,
    hand_overs: u32,
    /// How many times in a row a waiter gave way in vain: no other client took the lock.
    vain: u32,
}

impl Run {
    /// A run is over after this number of hand-overs, or after this time. Both limits double each
    /// time a waiter gives way in vain.
    const MOST: (u32, Duration) = (8, Duration::from_millis(100));
    const MOST_VAIN: u32 = 7;
    /// The least time limit of a run if the rivals poll. A long run is better, because after the
    /// run the lock is free until a rival asks.
    const LEAST_IF_POLLED: Duration = Duration::from_millis(400);

    /// Notes how an attempt of a waiter of this process began. `won_at` is the time at which the
    /// attempt won the lock, or `None`.
    pub(crate) fn note(&mut self, start: Start, won_at: Option<LeaseTime>) {
        let vain = match (start, won_at) {
            (Start::HandedOver, Some(now)) => {
                self.hand_overs += 1;
                self.since.get_or_insert(now);
                return;
            }
            // Perhaps a guard of this process has the lock. So this attempt says nothing of other
            // processes.
            (Start::Plain | Start::NextInLine, None) => return,
            (Start::GaveWay, None) => 0,
            (Start::GaveWay, Some(_)) => Self::MOST_VAIN.min(self.vain + 1),
            (_, _) => self.vain,
        };
        *self = Self {
            vain,
            ..Self::default()
        };
    }

    /// Returns whether the run is over. Then the next waiter gives way. `are_told` says whether
    /// masters tell the rivals of a release. Otherwise the rivals ask from time to time.
    pub(crate) fn is_over(&self, are_told: bool, now: LeaseTime) -> bool {
        let times = 1 << self.vain;
        let (most, time) = (Self::MOST.0 * times, Self::MOST.1 * times);
        let (most, time) = match are_told {
            true => (most, time),
            false => (u32::MAX, time.max(Self::LEAST_IF_POLLED)),
        };
        let is_late = |since| now.saturating_duration_since(since) >= time;
        self.hand_overs >= most || self.since.is_some_and(is_late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_is_remembered_for_some_wins() {
        let mut history = History::default();
        assert!(!history.are_rivals_likely());
        history.note(true);
        for _ in 0..History::UNTIL_CALM {
            assert!(history.are_rivals_likely());
            history.note(false);
        }
        assert!(!history.are_rivals_likely());
        history.note(false);
        assert!(!history.are_rivals_likely());
    }

    #[test]
    fn a_run_ends_after_some_hand_overs_or_some_time() {
        use Start::{GaveWay, HandedOver, NextInLine, Plain};
        let now = LeaseTime::some();
        for (are_told, apart, hand_overs) in [(true, 0, 8), (true, 30, 4), (false, 1, 400)] {
            let mut run = Run::default();
            let mut times = (0..).map(|count| now + Duration::from_millis(apart) * count);
            let handed_over = times.position(|at| {
                let is_over = run.is_over(are_told, at);
                run.note(HandedOver, Some(at));
                is_over
            });
            assert_eq!(handed_over, Some(hand_overs), "{are_told} {apart}");
            run.note(HandedOver, None);
            assert!(!run.is_over(are_told, now));
            (0..9).for_each(|_| run.note(GaveWay, Some(now)));
            (0..1_023).for_each(|_| run.note(HandedOver, Some(now)));
            run.note(Plain, None); // a guard of this process may have the lock
            run.note(NextInLine, None);
            assert!(!run.is_over(are_told, now + Duration::from_millis(12_799)));
            assert!(run.is_over(are_told, now + Duration::from_millis(12_800)));
            for start in [Plain, NextInLine] {
                run.note(start, Some(now));
                (0..1_023).for_each(|_| run.note(HandedOver, Some(now)));
                assert!(!run.is_over(are_told, now), "{start:?}");
            }
            run.note(GaveWay, None);
            (0..8).for_each(|_| run.note(HandedOver, Some(now)));
            assert_eq!(run.is_over(are_told, now), are_told);
        }
    }
}
