//! The order in which the waiters of one process contend for a lock.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The waiters for one name. One of them at a time contends on the masters, in the order in which
/// they came.
///
/// A waiter is a future, which can stay alive without being polled. So one that contends says by
/// when it will be heard of again, and is passed over when it is not. That costs a short time,
/// once: it is in order again only when it has been polled again. `T` is how a waiter is told that
/// its turn has come.
#[derive(Debug)]
pub(crate) struct WaitOrder<T> {
    /// All but the one that contends.
    waiting: BTreeMap<u64, T>,
    contender: Option<Contender>,
    /// How many numbers have been given out.
    numbers: u64,
}

#[derive(Clone, Copy, Debug)]
struct Contender {
    number: u64,
    /// When it will have been heard of again.
    due: Instant,
}

/// Whether a waiter may contend.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn<T> {
    Contend,
    /// Waits until it is told, or looks again at `look_again`.
    Wait {
        told: T,
        look_again: Instant,
    },
}

impl<T: Clone> WaitOrder<T> {
    /// For how long a waiter may be late before it counts as silent.
    const PATIENCE: Duration = Duration::from_secs(2);
    /// Each waiter looks for a silent contender this much later than the one before it, so that the
    /// first that is polled takes over.
    const STEP: Duration = Duration::from_millis(10);

    /// A number for a new waiter, larger than all before it.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Whether the turn of waiter `number` has come, by `now`. Called again and again by whoever
    /// waits for it.
    pub(crate) fn turn(&mut self, number: u64, now: Instant, tell: impl FnOnce() -> T) -> Turn<T> {
        let look_again = match self.contender {
            Some(contender) if contender.number != number => contender.due + self.delay(number),
            Some(_) | None => now,
        };
        if look_again <= now {
            self.waiting.remove(&number);
            self.contend(number, now);
            return Turn::Contend;
        }
        // The contender may change meanwhile, and only the next one is told of that.
        let soon = now + Self::PATIENCE + self.delay(number);
        Turn::Wait {
            told: self.waiting.entry(number).or_insert_with(tell).clone(),
            look_again: look_again.min(soon),
        }
    }

    /// Notes that waiter `number`, if it contends, does not act before `at`.
    pub(crate) fn expect(&mut self, number: u64, at: Instant) {
        if self.contends(number) {
            self.contend(number, at);
        }
    }

    /// Notes that what the contender waits for has come, at `now`.
    pub(crate) fn hear(&mut self, now: Instant) {
        if let Some(contender) = &mut self.contender {
            let due = now.checked_add(Self::PATIENCE).unwrap_or(now);
            contender.due = contender.due.min(due);
        }
    }

    /// Puts waiter `number` after all others. Returns how to tell the waiter whose turn has come.
    pub(crate) fn step_back(&mut self, number: u64, now: Instant) -> Option<T> {
        if self.waiting.is_empty() {
            return None;
        }
        self.leave(number, now)
    }

    /// Removes waiter `number`. Returns how to tell the waiter whose turn has come.
    pub(crate) fn leave(&mut self, number: u64, now: Instant) -> Option<T> {
        self.waiting.remove(&number);
        if !self.contends(number) {
            return None;
        }
        self.contender = None;
        let (next, told) = self.waiting.pop_first()?;
        self.contend(next, now);
        Some(told)
    }

    fn contends(&self, number: u64) -> bool {
        self.contender
            .is_some_and(|contender| contender.number == number)
    }

    fn contend(&mut self, number: u64, at: Instant) {
        let due = at.checked_add(Self::PATIENCE).unwrap_or(at);
        self.contender = Some(Contender { number, due });
    }

    fn delay(&self, number: u64) -> Duration {
        const MOST: usize = 100;
        let earlier = self.waiting.range(..number).take(MOST).count();
        Self::STEP * earlier as u32
    }
}

impl<T> Default for WaitOrder<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            contender: None,
            numbers: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "an origin for the tables")]

    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// In milliseconds after `start`: when waiter `number` looks again, if it does not contend.
    fn turn(order: &mut WaitOrder<u64>, number: u64, start: Instant, at: u64) -> Option<u64> {
        match order.turn(number, start + millis(at), || number) {
            Turn::Contend => None,
            Turn::Wait { told, look_again } => {
                assert_eq!(told, number);
                Some((look_again - start).as_millis() as u64)
            }
        }
    }

    #[test]
    fn waiters_contend_in_the_order_in_which_they_came() {
        let start = Instant::now();
        let mut order = WaitOrder::default();
        let numbers = [(); 3].map(|()| order.number());
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(turn(&mut order, 1, start, 0), None);
        assert_eq!(turn(&mut order, 3, start, 0), Some(2_000));
        assert_eq!(turn(&mut order, 2, start, 0), Some(2_000));
        assert_eq!(turn(&mut order, 3, start, 0), Some(2_010));
        assert_eq!(order.leave(1, start), Some(2));
        assert_eq!(turn(&mut order, 2, start, 1_000), None);
        assert_eq!(order.leave(3, start), None);
        assert_eq!(order.leave(2, start), None);
        assert_eq!(turn(&mut order, 4, start, 1_000), None);
    }

    #[test]
    fn a_silent_waiter_is_passed_over() {
        let start = Instant::now();
        let mut order = WaitOrder::default();
        assert_eq!(turn(&mut order, 1, start, 0), None);
        order.expect(1, start + millis(500));
        for (number, at, look_again) in [
            (2, 0, Some(2_000)), // the contender may be another one by then
            (3, 0, Some(2_010)),
            (3, 2_500, Some(2_510)),
            (2, 2_499, Some(2_500)),
            (2, 2_500, None),
            (1, 3_000, Some(4_500)), // polled again, and before 3
            (3, 3_000, Some(4_510)),
        ] {
            assert_eq!(
                turn(&mut order, number, start, at),
                look_again,
                "{number} {at}"
            );
        }
        order.expect(1, start + millis(9_000)); // it does not contend
        assert_eq!(turn(&mut order, 3, start, 3_000), Some(4_510));
        assert_eq!(order.leave(2, start + millis(3_000)), Some(1));
        // It is not polled any more.
        assert_eq!(turn(&mut order, 3, start, 5_000), None);
        assert_eq!(order.leave(3, start), None);
    }

    #[test]
    fn a_waiter_that_steps_back_comes_after_the_others() {
        let start = Instant::now();
        let mut order = WaitOrder::default();
        assert_eq!(turn(&mut order, 1, start, 0), None);
        assert_eq!(order.step_back(1, start), None);
        assert_eq!(turn(&mut order, 2, start, 0), Some(2_000));
        assert_eq!(order.step_back(1, start), Some(2));
        assert_eq!(turn(&mut order, 9, start, 0), Some(2_000));
    }
}
