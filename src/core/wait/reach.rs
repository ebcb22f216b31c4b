//! Waiters that reach too few masters. They step aside, so they do not delay other waiters.

use std::time::Duration;

use super::pauses::Backoff;
use crate::core::{
    time::tick::LeaseTick,
    vote::{Vote, round::Round},
};

/// Whether a client has lately reached a majority of masters. A round reaches a majority if a
/// majority of masters answer the round in time.
///
/// A client cannot win without answers from a majority, but some masters may still get its
/// requests. These masters would grant it locks that it cannot use, again and again. So a waiter
/// without a majority stops asking after half a waiter timeout. Until then, it keeps its position
/// in a queue, because the outage may be short. A waiter that stopped may come back when a majority
/// has answered one round in time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// The period in which no round reached a majority, from the start of its first round to the
    /// end of its last round.
    missed: Option<(LeaseTick, LeaseTick)>,
}

impl Reach {
    /// Returns whether `round`, which did not end in a lock, reached a majority. `None` if too few
    /// masters have answered so far. Also `None` if a majority replied in time, but too many
    /// replies are errors.
    pub(crate) fn of(round: &Round, is_too_slow: bool) -> Option<bool> {
        if is_too_slow {
            Some(false)
        } else if round.lacks_masters() {
            // Masters whose errors come in time can be reached, and have granted nothing.
            let is_replied = round.every_set_has_in_time(Vote::is_reply);
            (!is_replied).then_some(false)
        } else if round.every_set_has_in_time(Vote::is_answer) {
            Some(true)
        } else {
            round.is_settled().then_some(false)
        }
    }

    /// Notes whether a round reached a majority. The round began at `start` and ended at `now`.
    pub(crate) fn note(
        &mut self,
        is_reached: bool,
        (start, now): (LeaseTick, LeaseTick),
        waiter_timeout: Duration,
    ) {
        self.missed = (!is_reached).then(|| {
            let missed = self.recently_missed(start, waiter_timeout);
            (missed.map_or(start, |(start, _)| start), now)
        });
    }

    /// Returns whether waiters are aside at `now`. A waiter that is aside is out of the queues of
    /// its lock, and does not ask for the lock until a majority of masters answers in time. It
    /// keeps a ticket that a majority of masters has seen.
    pub(crate) fn is_aside(self, now: LeaseTick, waiter_timeout: Duration) -> bool {
        self.recently_missed(now, waiter_timeout)
            .is_some_and(|(start, end)| end.since(start) >= waiter_timeout / 2)
    }

    /// Returns `missed`, unless that period ended more than two waiter timeouts before `now`.
    fn recently_missed(
        self,
        now: LeaseTick,
        waiter_timeout: Duration,
    ) -> Option<(LeaseTick, LeaseTick)> {
        self.missed
            .filter(|(_, end)| now.since(*end) <= waiter_timeout * 2)
    }

    /// Returns the delays of a waiter that is aside. After each delay, it checks whether masters
    /// answer in time.
    pub(crate) fn delays(waiter_timeout: Duration) -> Backoff {
        Backoff::between(waiter_timeout / 4, waiter_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::vote::{
        Failure, Refusal, Verb, Vote,
        quorum::{Outcome, Quorum},
    };

    const WAITER_TIMEOUT: Duration = Duration::from_secs(3);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Returns a round. Each letter is the vote of one master. `g` is granted, `h` is held by
    /// another, `f` is timed out, `q` is quarantined, and `-` is not answered yet.
    fn round(letters: &str, start: LeaseTick) -> Round {
        let mut round = Round::open(Verb::Acquire, &Quorum::of(letters.len()), start, None);
        for (master, letter) in letters.chars().enumerate() {
            let vote = match letter {
                'g' => Vote::Grant,
                'h' => Vote::Refuse(Refusal::held(None)),
                'f' => Vote::Fail(Failure::timed_out(millis(50))),
                'q' => Vote::Fail(Failure::Quarantined {
                    remaining: millis(9),
                }),
                _ => continue,
            };
            round.count_vote(master, vote, start);
        }
        round
    }

    #[test]
    fn a_waiter_that_cannot_win_for_half_its_timeout_steps_aside() {
        use Outcome::{NoMajority, TooLate};
        const CONTENDING: bool = false;
        const ASIDE: bool = true;
        let origin = LeaseTick::some();
        for (name, rounds) in [
            (
                "another holder",
                vec![
                    (0, "hhh", NoMajority, CONTENDING),
                    (9_000, "ghh", NoMajority, CONTENDING),
                ],
            ),
            (
                "no majority",
                vec![
                    (0, "fff", NoMajority, CONTENDING),
                    (1_300, "ffh", NoMajority, CONTENDING),
                    (1_450, "qfg", NoMajority, ASIDE), // ends at 1,500 ms, after half the timeout
                    (7_000, "fff", NoMajority, ASIDE),
                    (9_100, "fhh", NoMajority, CONTENDING), // one round is enough to come back
                    (9_200, "fff", NoMajority, CONTENDING),
                    (10_700, "fff", NoMajority, ASIDE),
                ],
            ),
            (
                "an outage that is short, twice",
                vec![
                    (0, "fff", NoMajority, CONTENDING),
                    (1_400, "fff", NoMajority, CONTENDING),
                    (1_500, "hhf", NoMajority, CONTENDING),
                    (1_600, "fff", NoMajority, CONTENDING),
                    (3_000, "fff", NoMajority, CONTENDING),
                ],
            ),
            (
                "grants that come too late",
                vec![
                    (0, "ggg", TooLate, CONTENDING),
                    (1_450, "ggg", TooLate, ASIDE),
                ],
            ),
            (
                "an unknown reach changes nothing",
                vec![
                    (0, "fh-", NoMajority, CONTENDING),
                    (1_000, "fff", NoMajority, CONTENDING),
                    (2_000, "fh-", NoMajority, CONTENDING),
                    (2_450, "fff", NoMajority, ASIDE),
                    (2_600, "fh-", NoMajority, ASIDE),
                ],
            ),
        ] {
            let mut reach = Reach::default();
            for (at, letters, outcome, expected) in rounds {
                let start = origin + millis(at);
                let is_too_slow = outcome == TooLate;
                let now = start + millis(50);
                if let Some(is_reached) = Reach::of(&round(letters, start), is_too_slow) {
                    reach.note(is_reached, (start, now), WAITER_TIMEOUT);
                }
                assert_eq!(reach.is_aside(now, WAITER_TIMEOUT), expected, "{name} {at}");
            }
        }
    }

    #[test]
    fn a_waiter_that_is_aside_checks_after_a_quarter_of_its_timeout_at_least() {
        let delays = Reach::delays(WAITER_TIMEOUT);
        assert_eq!(delays.delay(0, 0), millis(750));
        assert!(delays.delay(9, u64::MAX) <= WAITER_TIMEOUT);
        assert!(delays.delay(9, u64::MAX) > millis(2_999));
    }

    #[test]
    fn old_failures_do_not_count() {
        let origin = LeaseTick::some();
        let mut reach = Reach::default();
        reach.note(false, (origin, origin + millis(1_500)), WAITER_TIMEOUT);
        for (at, expected) in [(7_500, true), (7_501, false)] {
            let now = origin + millis(at);
            assert_eq!(reach.is_aside(now, WAITER_TIMEOUT), expected, "{at}");
        }
        // The next outage counts from its own beginning. Waiters are aside again when it has lasted
        // half the waiter timeout.
        let again = origin + millis(7_501);
        for (at, expected) in [(0, false), (1_449, false), (1_450, true)] {
            let start = again + millis(at);
            let now = start + millis(50);
            reach.note(false, (start, now), WAITER_TIMEOUT);
            assert_eq!(reach.is_aside(now, WAITER_TIMEOUT), expected, "{at}");
        }
    }
}
