//! Waiters that cannot win. They step aside, so they do not delay the others.

use std::time::{Duration, Instant};

use super::retry::Backoff;
use crate::core::vote::{Vote, quorum::Outcome, round::Round};

/// The chance of this client to win, judged from one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chance {
    /// A majority of masters answered in time.
    Had,
    /// No majority of masters answered in time.
    None,
    /// Too few masters have answered so far, or too many of the answers in time are errors.
    Unknown,
}

impl Chance {
    /// Returns the chance that `round` showed. The round did not end in a lock.
    pub(crate) fn of_round(round: &Round, outcome: Outcome) -> Self {
        if outcome == Outcome::TooLate {
            Self::None
        } else if round.lacks_masters() {
            // Masters that answer with errors in time can be reached, and have granted nothing.
            if round.every_set_has_in_time(Vote::is_reply) {
                Self::Unknown
            } else {
                Self::None
            }
        } else if round.every_set_has_in_time(Vote::is_answer) {
            Self::Had
        } else if round.is_settled() {
            Self::None
        } else {
            Self::Unknown
        }
    }
}

/// The chances of waiters. They depend on whether a majority of masters has answered in time
/// lately.
///
/// A client cannot win without answers from a majority, but some masters may still get its
/// requests. These masters would grant it locks that it cannot use, again and again. So a waiter
/// without a majority stops asking after half a waiter timeout. Until then, it keeps its position
/// in a queue, because the outage may be short. A waiter that stopped may come back when a majority
/// has answered one round in time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chances {
    unable: Option<Unable>,
}

/// A period without a round that a majority of masters answered in time.
#[derive(Clone, Copy, Debug)]
struct Unable {
    /// The start of the first round in the period.
    since: Instant,
    /// The end of the last round in the period.
    until: Instant,
}

impl Chances {
    /// Returns the chances of a waiter that comes at `now`. Failures do not count for this waiter
    /// if they ended more than two waiter timeouts before.
    pub(crate) fn at(self, now: Instant, waiter_timeout: Duration) -> Self {
        let age = |unable: &Unable| now.saturating_duration_since(unable.until);
        Self {
            unable: self
                .unable
                .filter(|unable| age(unable) <= waiter_timeout * 2),
        }
    }

    /// Notes the chance that a round showed. The round began at `start` and ended at `now`.
    pub(crate) fn note(&mut self, chance: Chance, start: Instant, now: Instant) {
        match chance {
            Chance::Had => self.unable = None,
            Chance::None => {
                let since = self.unable.map_or(start, |unable| unable.since);
                self.unable = Some(Unable { since, until: now });
            }
            Chance::Unknown => {}
        }
    }

    /// Returns whether the waiter steps aside. Then it is out of the queues of the lock, and does
    /// not ask for the lock until a majority of masters answer in time. It keeps its ticket if a
    /// majority of masters have seen the ticket.
    pub(crate) fn is_aside(self, waiter_timeout: Duration) -> bool {
        let lasted = |unable: Unable| unable.until.saturating_duration_since(unable.since);
        (self.unable).is_some_and(|unable| lasted(unable) >= waiter_timeout / 2)
    }

    /// Returns the delays after which a waiter that is aside checks whether masters answer in time.
    pub(crate) fn delays(waiter_timeout: Duration) -> Backoff {
        Backoff::between(waiter_timeout / 4, waiter_timeout)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "an origin for the tables")]

    use super::*;
    use crate::core::{
        vote::verb::Verb,
        vote::{Failure, Refusal, Vote, quorum::Quorum},
    };

    const WAITER_TIMEOUT: Duration = Duration::from_secs(3);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Returns a round with the vote of each letter. `g` is granted, `h` is held by another, `f` is
    /// timed out, `q` is quarantined, and `-` is not answered yet.
    fn round(letters: &str, start: Instant) -> Round {
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
            round.on_vote(master, vote, start);
        }
        round
    }

    #[test]
    fn a_waiter_that_cannot_win_for_half_its_timeout_steps_aside() {
        use Outcome::{Lost, TooLate};
        const CONTENDING: bool = false;
        const ASIDE: bool = true;
        let origin = Instant::now();
        for (name, rounds) in [
            (
                "another holder",
                vec![
                    (0, "hhh", Lost, CONTENDING),
                    (9_000, "ghh", Lost, CONTENDING),
                ],
            ),
            (
                "no majority",
                vec![
                    (0, "fff", Lost, CONTENDING),
                    (1_300, "ffh", Lost, CONTENDING),
                    (1_450, "qfg", Lost, ASIDE), // ends at 1,500 ms, after half the timeout
                    (9_000, "fff", Lost, ASIDE),
                    (9_100, "fhh", Lost, CONTENDING), // one round is enough to come back
                    (9_200, "fff", Lost, CONTENDING),
                    (10_700, "fff", Lost, ASIDE),
                ],
            ),
            (
                "an outage that is short, twice",
                vec![
                    (0, "fff", Lost, CONTENDING),
                    (1_400, "fff", Lost, CONTENDING),
                    (1_500, "hhf", Lost, CONTENDING),
                    (1_600, "fff", Lost, CONTENDING),
                    (3_000, "fff", Lost, CONTENDING),
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
                "unknown chances change nothing",
                vec![
                    (0, "fh-", Lost, CONTENDING),
                    (1_000, "fff", Lost, CONTENDING),
                    (2_000, "fh-", Lost, CONTENDING),
                    (2_450, "fff", Lost, ASIDE),
                    (2_600, "fh-", Lost, ASIDE),
                ],
            ),
        ] {
            let mut chances = Chances::default();
            for (at, letters, outcome, expected) in rounds {
                let start = origin + millis(at);
                let chance = Chance::of_round(&round(letters, start), outcome);
                chances.note(chance, start, start + millis(50));
                assert_eq!(chances.is_aside(WAITER_TIMEOUT), expected, "{name} {at}");
            }
        }
    }

    #[test]
    fn a_waiter_that_is_aside_checks_after_a_quarter_of_its_timeout_at_least() {
        let delays = Chances::delays(WAITER_TIMEOUT);
        assert_eq!(delays.delay(0, 0), millis(750));
        assert!(delays.delay(9, u64::MAX) <= WAITER_TIMEOUT);
        assert!(delays.delay(9, u64::MAX) > millis(2_999));
    }

    #[test]
    fn old_failures_do_not_count_against_a_new_waiter() {
        let origin = Instant::now();
        let mut chances = Chances::default();
        chances.note(Chance::None, origin, origin);
        for (at, expected) in [(6_000, true), (6_001, false)] {
            let now = origin + millis(at);
            let mut chances = chances.at(now, WAITER_TIMEOUT);
            chances.note(Chance::None, now, now);
            assert_eq!(chances.is_aside(WAITER_TIMEOUT), expected, "{at}");
        }
    }
}
