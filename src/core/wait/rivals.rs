//! The clients of other processes that want the same lock.

use std::time::{Duration, Instant};

/// The rivals for one lock, as far as attempts of this process have met them, and the run of this
/// process: its hand-overs in a row from one waiter to the next.
///
/// After a release, the next waiter of the same process is always the first to ask for the lock. So
/// the waiters of other processes would get nothing while this process has waiters. After some
/// hand-overs, or after some time, the next waiter gives way for a moment. `parking_lot` calls this
/// eventual fairness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rivals {
    /// The number of attempts without a rival until the lock counts as uncontested.
    memory: u8,
    /// `true` if the last attempt to join the queues of the masters had to wait in them.
    was_queued: bool,
    /// The time of the first hand-over of the run.
    since: Option<Instant>,
    hand_overs: u32,
    /// The number of hand-overs after which a waiter gives way.
    limit: u32,
}

impl Rivals {
    const MEMORY: u8 = 8;
    const LEAST: u32 = 8;
    const MOST: u32 = 1_024;
    /// The share of each hand-over in the longest time of a run.
    const TIME: Duration = Duration::from_micros(12_500);
    /// The shortest run beside rivals that poll. After it, the lock is free until one of them asks.
    const POLLED: Duration = Duration::from_millis(400);

    /// Notes whether an attempt met another client that asked at the same moment.
    pub(crate) fn note_met(&mut self, has_met: bool) {
        self.memory = if has_met {
            Self::MEMORY
        } else {
            self.memory.saturating_sub(1)
        };
    }

    /// Notes whether a waiter had to wait in the queues of the masters.
    pub(crate) fn note_queued(&mut self, was_queued: bool) {
        self.was_queued = was_queued;
    }

    /// Notes that a waiter of this process has got the lock from another one at `now`.
    pub(crate) fn note_hand_over(&mut self, now: Instant) {
        self.hand_overs += 1;
        self.since.get_or_insert(now);
    }

    /// Notes that a waiter gave way. If it got the lock after that, no other client wants the lock,
    /// so the next run may be longer.
    pub(crate) fn note_way(&mut self, is_won: bool) {
        self.limit = if is_won {
            (self.limit * 2).min(Self::MOST)
        } else {
            Self::LEAST
        };
        self.end_run();
    }

    pub(crate) fn end_run(&mut self) {
        self.hand_overs = 0;
        self.since = None;
    }

    /// Returns whether the next waiter is likely to wait in the queues of masters. Then it joins
    /// them in its first round.
    pub(crate) fn is_queue_likely(&self) -> bool {
        self.was_queued
    }

    /// Returns whether another client is likely to ask for the lock at the same moment.
    pub(crate) fn are_likely(&self) -> bool {
        self.memory > 0
    }

    /// Returns whether another client asks for the lock all the time: the last attempt met a rival,
    /// or the one before it.
    pub(crate) fn are_certain(&self) -> bool {
        self.memory + 1 >= Self::MEMORY
    }

    /// Returns whether the run is over, so that the next waiter gives way. `hear` says whether
    /// masters tell the rivals of a release. Otherwise they ask from time to time.
    pub(crate) fn is_run_over(&self, hear: bool, now: Instant) -> bool {
        let (most, time) = (self.limit, Self::TIME * self.limit);
        let (most, time) = if hear {
            (most, time)
        } else {
            (u32::MAX, time.max(Self::POLLED))
        };
        let is_late = |since| now.saturating_duration_since(since) >= time;
        self.hand_overs >= most || self.since.is_some_and(is_late)
    }
}

impl Default for Rivals {
    fn default() -> Self {
        Self {
            memory: 0,
            was_queued: false,
            since: None,
            hand_overs: 0,
            limit: Self::LEAST,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "an origin for the tables")]

    use super::*;

    #[test]
    fn a_rival_is_remembered_for_some_attempts() {
        let mut rivals = Rivals::default();
        assert!(!rivals.are_likely());
        rivals.note_met(true);
        for attempt in 0..8 {
            assert!(rivals.are_likely());
            assert_eq!(rivals.are_certain(), attempt < 2);
            rivals.note_met(false);
        }
        assert!(!rivals.are_likely());
        rivals.note_met(false);
        assert!(!rivals.are_likely());
    }

    /// Returns the number of hand-overs until the run is over, `millis` apart.
    fn length(rivals: &mut Rivals, hear: bool, now: &mut Instant, millis: u64) -> u32 {
        (0..5_000)
            .find(|_| {
                *now += Duration::from_millis(millis);
                let is_run_over = rivals.is_run_over(hear, *now);
                if !is_run_over {
                    rivals.note_hand_over(*now);
                }
                is_run_over
            })
            .unwrap()
    }

    #[test]
    fn a_run_ends_after_some_hand_overs_or_some_time() {
        let mut now = Instant::now();
        let mut rivals = Rivals::default();
        assert_eq!(length(&mut rivals, true, &mut now, 0), 8);
        rivals.end_run();
        let hand_overs = length(&mut rivals, true, &mut now, 30);
        assert_eq!(hand_overs, 4, "100 ms after the first");
        for limit in [16, 32, 64, 128, 256, 512, 1_024, 1_024] {
            rivals.note_way(true);
            assert_eq!(length(&mut rivals, true, &mut now, 0), limit);
        }
        rivals.note_way(false);
        assert_eq!(length(&mut rivals, true, &mut now, 0), 8);
        rivals.end_run();
        assert!(!rivals.is_run_over(true, now));
    }

    #[test]
    fn a_run_beside_rivals_that_poll_ends_after_some_time() {
        let mut now = Instant::now();
        let mut rivals = Rivals::default();
        for (limit, hand_overs) in [(8, 400), (16, 400), (32, 400), (64, 800), (128, 1_600)] {
            assert_eq!(rivals.limit, limit);
            assert_eq!(length(&mut rivals, false, &mut now, 1), hand_overs);
            rivals.note_way(true);
        }
    }
}
