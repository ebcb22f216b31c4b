//! The reasons why an attempt did not end in a lock.

use std::{fmt, time::Duration};

use super::{quorum::Outcome, round::Round};

/// The reason why an attempt did not end in a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Another client holds the lock. The lock becomes free after this time, unless that client
    /// extends or releases it first. `None` if the masters do not say when the lock becomes free.
    HeldFor(Option<Duration>),
    /// So many masters deny a right, or lack a command, that the others are no majority.
    MissingRight,
    /// Too many masters failed, so no one can get the lock.
    NoQuorum,
    /// Another kind of lock is held under the name.
    OtherKind,
    /// Another task of the same owner was in the middle of an attempt. Nothing was sent.
    OwnerBusy,
    /// Too many masters are in quarantine, so no majority can vote until this time has passed.
    Quarantined(Duration),
    /// The lock is free, but other waiters come first.
    Queued,
    /// Several attempts split the votes, so none of them has a majority.
    Split,
    /// A majority granted the lock, but too late to leave any validity. The duration is the time
    /// since the start of the round.
    TooSlow(Duration),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeldFor(None) => f.write_str("held by another holder"),
            Self::HeldFor(Some(left)) => write!(f, "held by another holder for {left:.1?} more"),
            Self::MissingRight => f.write_str("a right or a command is missing"),
            Self::NoQuorum => f.write_str("too few masters voted"),
            Self::OtherKind => f.write_str("held as another kind of lock"),
            Self::OwnerBusy => {
                f.write_str("another task of its owner is in the middle of an attempt")
            }
            Self::Quarantined(left) => {
                write!(
                    f,
                    "too many masters may have forgotten locks, for {left:.1?} more"
                )
            }
            Self::Queued => f.write_str("other waiters come first"),
            Self::Split => f.write_str("the vote was split"),
            Self::TooSlow(elapsed) => write!(f, "a majority took {elapsed:.1?} to grant it"),
        }
    }
}

impl Obstacle {
    /// Returns why an acquisition did not end in a lock. `round` is the round of the acquisition.
    /// `free_in` is the time after which the lock will be free, according to the masters. `elapsed`
    /// is the time since the start of the round.
    pub(crate) fn of(
        round: &Round,
        outcome: Outcome,
        free_in: Option<Duration>,
        elapsed: Duration,
    ) -> Self {
        if outcome == Outcome::TooLate {
            Self::TooSlow(elapsed)
        } else if round.lacks_rights() {
            Self::MissingRight
        } else if let Some(left) = round.quarantined() {
            Self::Quarantined(left)
        } else if round.lacks_masters() {
            Self::NoQuorum
        } else if round.is_other_kind() {
            Self::OtherKind
        } else if round.lets_others_pass() {
            // This stays the reason even if `free_in` shows that another client has the lock by
            // now.
            Self::Queued
        } else if free_in == Some(Duration::ZERO) {
            Self::Split
        } else {
            Self::HeldFor(free_in)
        }
    }

    /// Returns why `round` did not give the lock to a waiter in the queues. A waiter that is first
    /// in no queue waits until a master calls it, however long the lock will live.
    pub(crate) fn in_queue(round: &Round) -> Self {
        if round.lacks_rights() {
            Self::MissingRight
        } else if let Some(left) = round.quarantined() {
            Self::Quarantined(left)
        } else if round.lacks_masters() {
            Self::NoQuorum
        } else if round.next_candidate().is_some() {
            Self::Split // a majority is free, and other clients were faster
        } else if !round.is_next() {
            Self::HeldFor(None)
        } else if round.is_held_for_sure() {
            Self::HeldFor(round.free_in())
        } else {
            Self::Split
        }
    }

    /// Returns why `round` did not give a read-write lock to a reader in the queues. Readers do not
    /// compete, so after a split vote, a reader gains nothing by asking again soon.
    pub(crate) fn of_reader(round: &Round) -> Self {
        let free_in = round.free_in().filter(|_| !round.lets_others_pass());
        match Self::in_queue(round) {
            Self::Split if free_in != Some(Duration::ZERO) => Self::HeldFor(free_in),
            obstacle => obstacle,
        }
    }

    /// Returns whether another attempt would be useless.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::MissingRight | Self::OtherKind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        time::tick::LeaseTick,
        vote::{Failure, Refusal, Verb, Vote, held_report::HeldReport, quorum::Quorum},
    };

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// Returns a round. Each letter is the vote of one master. `g` is granted, `h` is held by
    /// another, `q` is free but others come first, `k` is held as another kind, `s` is free but has
    /// seen a later candidate, `d` is denied, `f` is failed, and `r` is in quarantine.
    fn round(letters: &str) -> Round {
        let start = LeaseTick::some();
        let mut round = Round::open(Verb::Acquire, &Quorum::of(letters.len()), start, None);
        for (master, letter) in letters.chars().enumerate() {
            let vote = match letter {
                'g' => Vote::Grant,
                'h' => {
                    let report = HeldReport::owned(Some(seconds(5)), "u:1".to_owned(), 1, Some(1));
                    Vote::Refuse(Refusal::Held(report))
                }
                'q' => Vote::Refuse(Refusal::Queued { position: Some(2) }),
                'k' => Vote::Refuse(Refusal::OtherKind),
                's' => Vote::Refuse(Refusal::Stale { counter: 9 }),
                'd' => Vote::Fail(Failure::Rejected("NOPERM x".into())),
                'r' => Vote::Fail(Failure::Quarantined {
                    remaining: seconds(9),
                }),
                _ => Vote::Fail(Failure::timed_out(seconds(1))),
            };
            round.count_vote(master, vote, start);
        }
        round
    }

    #[test]
    fn refused_table() {
        use Obstacle::{HeldFor, MissingRight, NoQuorum, OtherKind, Quarantined, Queued, Split};
        let zero = Some(Duration::ZERO);
        for (letters, free_in, expected) in [
            ("hhg", Some(seconds(5)), HeldFor(Some(seconds(5)))),
            ("hhg", None, HeldFor(None)),
            ("ghg", zero, Split),
            ("gqq", zero, Queued),
            // Another holder has taken the lock since the masters answered.
            ("qqq", Some(seconds(10)), Queued),
            ("qhh", Some(seconds(5)), HeldFor(Some(seconds(5)))),
            ("kkg", None, OtherKind),
            ("ffg", None, NoQuorum),
            ("dfg", None, NoQuorum),
            ("ddg", None, MissingRight),
            ("ddf", None, MissingRight),
            ("ddr", None, MissingRight),
            ("rrg", None, Quarantined(seconds(9))),
        ] {
            let refused = Obstacle::of(
                &round(letters),
                Outcome::NoMajority,
                free_in,
                Duration::ZERO,
            );
            assert_eq!(refused, expected, "{letters} {free_in:?}");
        }
        let late = Obstacle::of(&round("ggg"), Outcome::TooLate, None, seconds(1));
        assert_eq!(late, Obstacle::TooSlow(seconds(1)));
    }

    #[test]
    fn another_kind_and_a_missing_right_are_final() {
        assert!(Obstacle::OtherKind.is_final() && Obstacle::MissingRight.is_final());
        assert!(!Obstacle::Split.is_final() && !Obstacle::NoQuorum.is_final());
    }

    #[test]
    fn in_queue_table() {
        use Obstacle::{HeldFor, MissingRight, NoQuorum, Quarantined, Split};
        for (letters, expected) in [
            ("dqd", MissingRight),
            ("qqq", HeldFor(None)), // not the next one
            ("hhh", HeldFor(Some(seconds(5)))),
            ("ghf", Split), // granted by a minority
            ("ssq", Split), // free, but others have offered later candidates
            ("sqq", HeldFor(None)),
            ("ffg", NoQuorum),
            ("rrg", Quarantined(seconds(9))),
        ] {
            assert_eq!(Obstacle::in_queue(&round(letters)), expected, "{letters}");
        }
    }

    #[test]
    fn of_reader_table() {
        use Obstacle::{HeldFor, NoQuorum, Split};
        let left = HeldFor(Some(seconds(5)));
        for (letters, expected) in [
            ("hhh", left.clone()),
            ("ghf", left.clone()), // nothing is gained by another attempt
            ("gghhk", left),
            ("gkf", HeldFor(None)), // no one says when a majority will be free
            ("gqf", HeldFor(None)), // a writer comes first, and its release calls the reader
            ("gghqf", Split),       // a majority may be free
            ("ggg", Split),         // too late
            ("ffg", NoQuorum),
        ] {
            let obstacle = Obstacle::of_reader(&round(letters));
            assert_eq!(obstacle, expected, "{letters}");
        }
    }
}
