//! Waiters that cannot win: they step aside, so that they do not hold up the others.

use std::time::{Duration, Instant};

use super::{
    retry::Backoff,
    round::{Outcome, Round},
};

/// The position of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Out of the queues of a fair lock. The waiter does not ask for the lock until a majority of
    /// masters answer in time. It keeps its ticket if a majority of masters have seen it.
    Aside,
    /// In the queues of the masters. A waiter for a lock of another kind makes attempts.
    Queued,
}

/// The chance of this client to win, as far as one round shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chance {
    /// A majority of masters answered in time.
    Had,
    /// No majority of masters answered in time.
    None,
    /// Too few masters have answered to tell, or too many of the answers in time are errors.
    Unknown,
}

impl Chance {
    /// Returns the chance that `round` showed, which did not end in a lock.
    pub(crate) fn of_round(round: &Round, outcome: Outcome) -> Self {
        if outcome == Outcome::TooLate {
            Self::None
        } else if round.lacks_masters() {
            // Masters that answer with errors can be reached in time, and have granted nothing.
            if round.majority_replied_in_time() {
                Self::Unknown
            } else {
                Self::None
            }
        } else if round.majority_answered_in_time() {
            Self::Had
        } else if round.is_settled() {
            Self::None
        } else {
            Self::Unknown
        }
    }
}

/// The chances of waiters, by whether a majority of masters has answered in time lately.
///
/// A client that hears from no majority cannot win, but its requests may still arrive. Masters then
/// grant it locks that it cannot use, again and again. So it may ask for half a waiter timeout,
/// which keeps its position in a queue if the outage is short. After that, it may come back when a
/// majority has answered one round in time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chances {
    unable: Option<Unable>,
}

/// A time in which no majority of masters answered in time.
#[derive(Clone, Copy, Debug)]
struct Unable {
    /// The start of the first round that no majority answered in time.
    since: Instant,
    /// The end of the last such round.
    until: Instant,
}

impl Chances {
    /// Returns the chances of a waiter that comes at `now`. Failures that ended more than two
    /// waiter timeouts before do not count for it.
    pub(crate) fn at(self, now: Instant, waiter_timeout: Duration) -> Self {
        let age = |unable: &Unable| now.saturating_duration_since(unable.until);
        Self {
            unable: self
                .unable
                .filter(|unable| age(unable) <= waiter_timeout * 2),
        }
    }

    /// Notes the chance that a round showed, which began at `start` and ended at `now`.
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

    /// Returns the position for the next wait.
    pub(crate) fn position(self, waiter_timeout: Duration) -> Position {
        let lasted = |unable: Unable| unable.until.saturating_duration_since(unable.since);
        match self.unable.map(lasted) {
            Some(lasted) if lasted >= waiter_timeout / 2 => Position::Aside,
            Some(_) | None => Position::Queued,
        }
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
        command::Verb,
        quorum::{Failure, Refusal, Vote},
    };

    const WAITER_TIMEOUT: Duration = Duration::from_secs(3);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Returns a round with the vote of each letter: `g` granted, `h` held by another, `f` timed
    /// out, `q` quarantined, `-` not answered yet.
    fn round(letters: &str, start: Instant) -> Round {
        let mut round = Round::open(Verb::Acquire, letters.len(), start, None);
        for (master, letter) in letters.chars().enumerate() {
            let vote = match letter {
                'g' => Vote::Grant,
                'h' => Vote::Refuse(Refusal::held(None)),
                'f' => Vote::Fail(Failure::TimedOut(millis(50))),
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
        use Position::{Aside, Queued};
        let origin = Instant::now();
        for (name, rounds) in [
            (
                "another holder",
                vec![(0, "hhh", Lost, Queued), (9_000, "ghh", Lost, Queued)],
            ),
            (
                "no majority",
                vec![
                    (0, "fff", Lost, Queued),
                    (1_300, "ffh", Lost, Queued),
                    (1_450, "qfg", Lost, Aside), // over 50 ms after it began
                    (9_000, "fff", Lost, Aside),
                    (9_100, "fhh", Lost, Queued), // one round is enough to come back
                    (9_200, "fff", Lost, Queued),
                    (10_700, "fff", Lost, Aside),
                ],
            ),
            (
                "an outage that is short, twice",
                vec![
                    (0, "fff", Lost, Queued),
                    (1_400, "fff", Lost, Queued),
                    (1_500, "hhf", Lost, Queued),
                    (1_600, "fff", Lost, Queued),
                    (3_000, "fff", Lost, Queued),
                ],
            ),
            (
                "grants that come too late",
                vec![(0, "ggg", TooLate, Queued), (1_450, "ggg", TooLate, Aside)],
            ),
            (
                "unknown chances change nothing",
                vec![
                    (0, "fh-", Lost, Queued),
                    (1_000, "fff", Lost, Queued),
                    (2_000, "fh-", Lost, Queued),
                    (2_450, "fff", Lost, Aside),
                    (2_600, "fh-", Lost, Aside),
                ],
            ),
        ] {
            let mut chances = Chances::default();
            for (at, letters, outcome, expected) in rounds {
                let start = origin + millis(at);
                let chance = Chance::of_round(&round(letters, start), outcome);
                chances.note(chance, start, start + millis(50));
                assert_eq!(chances.position(WAITER_TIMEOUT), expected, "{name} {at}");
            }
        }
    }

    #[test]
    fn old_failures_do_not_count_against_a_new_waiter() {
        let origin = Instant::now();
        let mut chances = Chances::default();
        chances.note(Chance::None, origin, origin);
        for (at, expected) in [(6_000, Position::Aside), (6_001, Position::Queued)] {
            let now = origin + millis(at);
            let mut chances = chances.at(now, WAITER_TIMEOUT);
            chances.note(Chance::None, now, now);
            assert_eq!(chances.position(WAITER_TIMEOUT), expected, "{at}");
        }
    }
}
