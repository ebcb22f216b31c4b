//! When a waiter that cannot win steps aside, so that it does not hold up those who can.

use std::time::{Duration, Instant};

use super::{
    retry::Backoff,
    round::{Outcome, Round},
};

/// Where a waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Without asking for the lock, until a majority of masters answer in time: out of the queues
    /// of a fair lock, and with its ticket.
    Aside,
    /// In the queues of the masters, or asking for the lock now and then.
    Queued,
}

/// The verdict of a lost round on whether this client can win at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chance {
    /// A majority of masters answered in time.
    Had,
    /// They did not.
    None,
    /// Too few masters have answered to tell.
    Unknown,
}

impl Chance {
    /// Returns what `round`, which did not end in a lock, says of the next one.
    pub(crate) fn of_round(round: &Round, outcome: Outcome) -> Self {
        if outcome == Outcome::TooLate {
            Self::None
        } else if round.lacks_masters() {
            // Masters that answer with errors are near enough, and granted nothing.
            if round.is_answered() {
                Self::Unknown
            } else {
                Self::None
            }
        } else if round.is_heard() {
            Self::Had
        } else if round.is_settled() {
            Self::None
        } else {
            Self::Unknown
        }
    }
}

/// Whether a majority of masters have answered in time lately.
///
/// A client that hears from no majority cannot win, but its requests may still arrive. It is then
/// granted what it cannot use, again and again. So it may ask for half a patience, for the sake of
/// its place in a queue if the outage is a short one. After that, one round decides whether it may
/// come back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chances {
    unable: Option<Unable>,
}

#[derive(Clone, Copy, Debug)]
struct Unable {
    /// When the first of the rounds began.
    since: Instant,
    /// When the last of them was over.
    until: Instant,
}

impl Chances {
    /// Returns what still counts for a waiter that comes at `now`: nothing that is old.
    pub(crate) fn at(self, now: Instant, patience: Duration) -> Self {
        let is_new = |unable: &Unable| now.saturating_duration_since(unable.until) <= patience * 2;
        Self {
            unable: self.unable.filter(is_new),
        }
    }

    /// Notes what a round says that began at `start` and was over at `now`, and was not won.
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

    /// Where to wait after what was noted.
    pub(crate) fn position(self, patience: Duration) -> Position {
        let lasted = |unable: Unable| unable.until.saturating_duration_since(unable.since);
        match self.unable.map(lasted) {
            Some(lasted) if lasted >= patience / 2 => Position::Aside,
            Some(_) | None => Position::Queued,
        }
    }

    /// How long to wait before the masters are asked whether they answer in time.
    pub(crate) fn probes(patience: Duration) -> Backoff {
        Backoff::between(patience / 4, patience)
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

    const PATIENCE: Duration = Duration::from_secs(3);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// `g` granted, `h` held by another, `f` timed out, `q` quarantined, `-` not answered yet.
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
    fn a_waiter_that_cannot_win_for_half_a_patience_steps_aside() {
        use Outcome::{Lost, TooLate};
        use Position::{Aside, Queued};
        let origin = Instant::now();
        for (name, rounds) in [
            (
                "others hold it",
                vec![(0, "hhh", Lost, Queued), (9_000, "ghh", Lost, Queued)],
            ),
            (
                "no majority",
                vec![
                    (0, "fff", Lost, Queued),
                    (1_300, "ffh", Lost, Queued),
                    (1_450, "qfg", Lost, Aside), // over 50 ms after it began
                    (9_000, "fff", Lost, Aside), // one round decides
                    (9_100, "fhh", Lost, Queued),
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
                "what is not known changes nothing",
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
                assert_eq!(chances.position(PATIENCE), expected, "{name} {at}");
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
            let mut chances = chances.at(now, PATIENCE);
            chances.note(Chance::None, now, now);
            assert_eq!(chances.position(PATIENCE), expected, "{at}");
        }
    }
}
