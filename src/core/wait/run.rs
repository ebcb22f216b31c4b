//! Runs: hand-overs in a row within one process.

use std::time::{Duration, Instant};

/// The events that lead to an attempt at a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A guard of this process has just released the lock.
    Released,
    /// A guard of this process has released the lock, and the waiter has given way to the waiters
    /// of other processes.
    GaveWay,
    /// Masters have reported a change.
    Changed,
    /// The waiter before this one, in the same process, is done.
    Turn,
    /// No event: the first attempt, or the end of a wait.
    Time,
}

/// The way in which the waiters of other processes notice that a lock is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rivals {
    /// Masters report it to them.
    Hear,
    /// They ask from time to time.
    Poll,
}

/// The hand-overs of a lock in a row within one process.
///
/// After a release, the next waiter of the same process is always the first to ask for the lock. So
/// the waiters of other processes would get nothing while this process has waiters. After some
/// hand-overs, or after some time, the next waiter gives way for a moment. `parking_lot` calls this
/// eventual fairness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The time of the first hand-over.
    since: Option<Instant>,
    hand_overs: u32,
    /// The number of hand-overs after which a waiter gives way.
    limit: u32,
}

impl Run {
    const LEAST: u32 = 8;
    const MOST: u32 = 1_024;
    /// The share of each hand-over in the longest time of a run.
    const TIME: Duration = Duration::from_micros(12_500);
    /// The shortest run beside rivals that poll. After it, the lock is free until one of them asks.
    const POLLED: Duration = Duration::from_millis(400);

    /// Returns whether the next waiter gives way.
    pub(crate) fn is_over(&self, rivals: Rivals, now: Instant) -> bool {
        let (most, time) = (self.limit, Self::TIME * self.limit);
        let (most, time) = match rivals {
            Rivals::Hear => (most, time),
            Rivals::Poll => (u32::MAX, time.max(Self::POLLED)),
        };
        let is_late = |since| now.saturating_duration_since(since) >= time;
        self.hand_overs >= most || self.since.is_some_and(is_late)
    }

    /// Notes the result of an attempt of a waiter.
    pub(crate) fn note(&mut self, cause: Cause, is_won: bool, now: Instant) {
        match cause {
            Cause::Released | Cause::Turn if is_won => {
                self.hand_overs += 1;
                self.since.get_or_insert(now);
                return;
            }
            // No other client wants the lock, so the next run may be longer.
            Cause::GaveWay if is_won => self.limit = (self.limit * 2).min(Self::MOST),
            Cause::GaveWay => self.limit = Self::LEAST,
            // The waiter may have been refused because of a guard of this process.
            Cause::Changed | Cause::Turn | Cause::Time if !is_won => return,
            Cause::Released | Cause::Turn | Cause::Changed | Cause::Time => {}
        }
        self.hand_overs = 0;
        self.since = None;
    }
}

impl Default for Run {
    fn default() -> Self {
        Self {
            since: None,
            hand_overs: 0,
            limit: Self::LEAST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rivals::*, *};

    /// Returns the number of hand-overs until the run is over, `millis` apart.
    fn length(run: &mut Run, rivals: Rivals, now: &mut Instant, millis: u64) -> u32 {
        (0..5_000)
            .find(|_| {
                *now += Duration::from_millis(millis);
                let is_over = run.is_over(rivals, *now);
                if !is_over {
                    run.note(Cause::Released, true, *now);
                }
                is_over
            })
            .unwrap()
    }

    #[test]
    fn a_run_ends_after_some_hand_overs_or_some_time() {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let mut now = Instant::now();
        let mut run = Run::default();
        assert_eq!(length(&mut run, Hear, &mut now, 0), 8);
        run.note(Cause::Changed, true, now);
        assert_eq!(
            length(&mut run, Hear, &mut now, 30),
            4,
            "100 ms after the first"
        );
        for limit in [16, 32, 64, 128, 256, 512, 1_024, 1_024] {
            run.note(Cause::GaveWay, true, now);
            assert_eq!(length(&mut run, Hear, &mut now, 0), limit);
        }
        run.note(Cause::GaveWay, false, now);
        assert_eq!(length(&mut run, Hear, &mut now, 0), 8);
        for cause in [Cause::Time, Cause::Turn, Cause::Changed] {
            run.note(cause, false, now);
            assert!(run.is_over(Hear, now));
        }
        run.note(Cause::Released, false, now);
        assert!(!run.is_over(Hear, now));
    }

    #[test]
    fn a_run_beside_rivals_that_poll_ends_after_some_time() {
        #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
        let mut now = Instant::now();
        let mut run = Run::default();
        for (limit, hand_overs) in [(8, 400), (16, 400), (32, 400), (64, 800), (128, 1_600)] {
            assert_eq!(run.limit, limit);
            assert_eq!(length(&mut run, Poll, &mut now, 1), hand_overs);
            run.note(Cause::GaveWay, true, now);
        }
    }
}
