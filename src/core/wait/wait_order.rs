//! The order in which the waiters of one process contend for a lock.

use std::{collections::BTreeSet, time::Duration};

use crate::core::time::LeaseTick;

/// The waiters of this process for one lock. They contend on the masters one at a time, in the
/// order in which they came.
///
/// A waiter is a future, and a future can stay alive without being polled. So the waiter that
/// contends says when it will act next. If it does not act, it is passed over and another waiter
/// contends. The other waiters lose a short time, and only once: a waiter that was passed over has
/// no turn until it is polled again.
#[derive(Debug, Default)]
pub(crate) struct WaitOrder {
    /// The waiters that have asked for their turn. The contender is not among them.
    waiting: BTreeSet<u64>,
    /// The waiter that contends, and the time at which it counts as silent if it has not acted.
    contender: Option<(u64, LeaseTick)>,
    /// The number of the newest waiter.
    newest: u64,
}

impl WaitOrder {
    /// A waiter that is late by this time counts as silent.
    const GRACE: Duration = Duration::from_secs(2);

    /// Returns a number for a new waiter. It is larger than all numbers before it.
    pub(crate) fn number(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// Asks at `now` for the turn of waiter `number`. Returns `None` if the waiter may contend.
    /// Otherwise returns the latest time to ask again. A waiter calls this method before each
    /// attempt. If it gets no turn, it calls again when it is woken, or at the returned time.
    pub(crate) fn ask_for_turn(&mut self, number: u64, now: LeaseTick) -> Option<LeaseTick> {
        let look_again = match self.contender {
            Some((contender, due)) if contender != number => due,
            Some(_) | None => now,
        };
        if look_again <= now {
            self.waiting.remove(&number);
            self.contend(number, now);
            return None;
        }
        // If the contender changes before `look_again`, only the new contender is woken. So this
        // waiter must ask again soon.
        let soon = now + Self::GRACE;
        self.waiting.insert(number);
        Some(look_again.min(soon))
    }

    /// Notes that waiter `number` will not act before `at`. Does nothing if the waiter does not
    /// contend.
    pub(crate) fn expect(&mut self, number: u64, at: LeaseTick) {
        if self.contends(number) {
            self.contend(number, at);
        }
    }

    /// Notes that the contender should act soon after `now`, because the event for which it waits
    /// has come. Returns the contender, which must be woken.
    pub(crate) fn on_event(&mut self, now: LeaseTick) -> Option<u64> {
        let (contender, due) = self.contender.as_mut()?;
        *due = (*due).min(now + Self::GRACE);
        Some(*contender)
    }

    /// Removes waiter `number` if other waiters wait. If the turn passes to one of these, returns
    /// that waiter, which must be woken. The removed waiter needs a new number, and so comes after
    /// all others.
    pub(crate) fn step_back(&mut self, number: u64, now: LeaseTick) -> Option<u64> {
        if self.waiting.is_empty() {
            return None;
        }
        self.leave(number, now)
    }

    /// Removes waiter `number`. If the turn passes to another waiter, returns that waiter, which
    /// must be woken.
    pub(crate) fn leave(&mut self, number: u64, now: LeaseTick) -> Option<u64> {
        self.waiting.remove(&number);
        if !self.contends(number) {
            return None;
        }
        self.contender = None;
        let next = self.waiting.pop_first()?;
        self.contend(next, now);
        Some(next)
    }

    pub(crate) fn contends(&self, number: u64) -> bool {
        self.contender
            .is_some_and(|(contender, _)| contender == number)
    }

    fn contend(&mut self, number: u64, at: LeaseTick) {
        self.contender = Some((number, at + Self::GRACE));
    }
}

#[cfg(test)]
mod tests {
    use testkit::times::millis;

    use super::*;

    /// Returns when waiter `number` asks again, in milliseconds after `start`. `None` if the waiter
    /// contends.
    fn turn(order: &mut WaitOrder, number: u64, start: LeaseTick, at: u64) -> Option<u64> {
        let look_again = order.ask_for_turn(number, start + millis(at))?;
        Some(look_again.since(start).as_millis() as u64)
    }

    #[test]
    fn waiters_contend_in_the_order_in_which_they_came() {
        let start = LeaseTick::some();
        let mut order = WaitOrder::default();
        let numbers = [(); 3].map(|()| order.number());
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(turn(&mut order, 1, start, 0), None);
        assert_eq!(turn(&mut order, 3, start, 0), Some(2_000));
        assert_eq!(turn(&mut order, 2, start, 0), Some(2_000));
        assert_eq!(order.leave(1, start), Some(2));
        assert_eq!(turn(&mut order, 2, start, 1_000), None);
        assert_eq!(order.leave(3, start), None);
        assert_eq!(order.leave(2, start), None);
        assert_eq!(turn(&mut order, 4, start, 1_000), None);
    }

    #[test]
    fn a_silent_waiter_is_passed_over() {
        let start = LeaseTick::some();
        let mut order = WaitOrder::default();
        assert_eq!(turn(&mut order, 1, start, 0), None);
        order.expect(1, start + millis(500));
        for (number, at, look_again) in [
            (2, 0, Some(2_000)), // by then another waiter may contend
            (3, 0, Some(2_000)),
            (2, 2_499, Some(2_500)),
            (2, 2_500, None),
            (1, 3_000, Some(4_500)), // it is polled again, and still comes before waiter 3
            (3, 3_000, Some(4_500)),
        ] {
            assert_eq!(
                turn(&mut order, number, start, at),
                look_again,
                "{number} {at}"
            );
        }
        order.expect(1, start + millis(9_000)); // waiter 1 does not contend
        assert_eq!(turn(&mut order, 3, start, 3_000), Some(4_500));
        assert_eq!(order.leave(2, start + millis(3_000)), Some(1));
        // Waiter 1 is not polled any more.
        assert_eq!(turn(&mut order, 3, start, 5_000), None);
        assert_eq!(order.leave(3, start), None);
    }

    #[test]
    fn a_waiter_acts_soon_after_its_event() {
        let start = LeaseTick::some();
        let mut order = WaitOrder::default();
        assert_eq!(order.on_event(start), None);
        assert_eq!(turn(&mut order, 1, start, 0), None);
        order.expect(1, start + millis(9_000));
        assert_eq!(order.on_event(start + millis(1_000)), Some(1));
        assert_eq!(turn(&mut order, 2, start, 2_999), Some(3_000));
        order.on_event(start + millis(2_000)); // a later event changes nothing
        assert_eq!(turn(&mut order, 2, start, 3_000), None);
    }

    #[test]
    fn a_waiter_that_steps_back_comes_after_the_others() {
        let start = LeaseTick::some();
        let mut order = WaitOrder::default();
        assert_eq!(turn(&mut order, 1, start, 0), None);
        assert_eq!(order.step_back(1, start), None);
        assert_eq!(turn(&mut order, 2, start, 0), Some(2_000));
        assert_eq!(order.step_back(1, start), Some(2));
        assert_eq!(turn(&mut order, 9, start, 0), Some(2_000));
    }
}
