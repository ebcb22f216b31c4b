//! The vote of one master, and the count of votes.

use std::{fmt, sync::Arc, time::Duration};

use crate::core::kind::held_report::HeldReport;

/// The answer of one master in a round.
///
/// A refusal says that the client does not get the lock on that master, or does not hold it there.
/// A failure says nothing about the lock. After some failures, the master may have executed the
/// command: see [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the three answers are the algorithm; a match on them should be complete"
)]
pub enum Vote {
    /// The master did what was asked.
    Grant,
    /// The master answered that the client cannot acquire, extend or release the lock there.
    Refuse(Refusal),
    /// The master gave no answer that counts as a vote.
    Fail(Failure),
}

impl Vote {
    /// Returns the vote of a master whose reply cannot be read.
    pub(crate) fn nonsense() -> Self {
        Self::Fail(Failure::Rejected("a reply that makes no sense".into()))
    }
}

/// The reason why a master refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The lock is not held there: it expired or was released, or the master lost it. In the votes
    /// on a release, this may also mean that another holder has the lock there.
    Gone,
    /// Another holder has the lock there.
    Held(HeldReport),
    /// A lock of another kind is held there under the name.
    OtherKind,
    /// The fair lock is free there, but other waiters come first.
    Queued {
        /// The position of this client in that master's queue, starting at 1. `None` for an attempt
        /// that does not wait.
        position: Option<u64>,
    },
    /// The proposed fencing token is not larger than the master's counter.
    Stale {
        /// The largest proposed token that the master has accepted.
        counter: u64,
    },
    /// The client's clock differs too much from the master's clock. The master therefore gives the
    /// client no position in the queue of a fair lock, or accepts no fencing token from it.
    Skewed {
        /// The time since 1970 on the master's clock.
        clock: Duration,
    },
}

impl Refusal {
    /// Returns the refusal of a mutex that has another holder.
    pub(crate) fn held(remaining: Option<Duration>) -> Self {
        Self::Held(HeldReport::mutex(remaining))
    }
}

/// The reason why a master gave no answer that counts as a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The coordinator was dropped, or its runtime has shut down. If the command was sent before
    /// that, the master may have executed it.
    Closed,
    /// The connection broke after the command was sent. The master may have executed the command.
    Disconnected(Arc<str>),
    /// The master may have forgotten locks, and has no vote until all forgotten locks have ended.
    /// The command was not sent.
    Quarantined {
        /// The time until the quarantine ends.
        remaining: Duration,
    },
    /// The master answered with an error, such as `OOM`, `LOADING`, `READONLY` or `NOPERM`.
    Rejected(Arc<str>),
    /// The master did not answer within the node timeout, which is given here. The master may have
    /// executed the command, or may execute it later.
    TimedOut(Duration),
    /// The command was never sent. There is no connection, or the master has not kept up with the
    /// commands before.
    Unreachable(Arc<str>),
}

impl Failure {
    /// Returns whether the master may have executed the command.
    pub(crate) fn may_have_executed(&self) -> bool {
        match self {
            Self::Closed | Self::Disconnected(_) | Self::TimedOut(_) => true,
            // A server that answers with an error has not executed the command. Before the error, a
            // script may have removed dead waiters from a queue. The script has changed nothing of
            // this client.
            Self::Quarantined { .. } | Self::Rejected(_) | Self::Unreachable(_) => false,
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grant => f.write_str("granted"),
            Self::Refuse(refusal) => refusal.fmt(f),
            Self::Fail(failure) => failure.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("holds nothing"),
            Self::Held(report) => report.fmt(f),
            Self::OtherKind => f.write_str("held as another kind of lock"),
            Self::Queued { position: None } => f.write_str("free, but others wait"),
            Self::Queued {
                position: Some(position),
            } => write!(f, "free, position {position} in the queue"),
            Self::Skewed { .. } => f.write_str("free, but the clocks are too far apart"),
            Self::Stale { .. } => f.write_str("free, but has seen a later fencing token"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Disconnected(why) => write!(f, "connection lost: {why}"),
            Self::Quarantined { remaining } => {
                write!(f, "may have forgotten locks, no vote for {remaining:.1?}")
            }
            Self::Rejected(reply) => write!(f, "answered {reply}"),
            Self::TimedOut(after) => write!(f, "no answer in {after:?}"),
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
        }
    }
}

/// Returns the size of a majority of `masters`. Any two majorities share a master.
pub(crate) fn majority(masters: usize) -> usize {
    masters / 2 + usize::from(!mutant!(QuorumIsHalf))
}

/// The state of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority can no longer be reached.
    Lost,
    /// Both outcomes are still possible.
    Pending,
    /// A majority said yes.
    Won,
}

/// A count of yes and no, at most one for each master. A majority is a majority of all masters that
/// are configured. If only the masters that can be reached were counted, two disjoint "majorities"
/// could win.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    // These are bytes to save memory, because every lock that is held keeps a tally. There are at
    // most 64 masters.
    masters: u8,
    yes: u8,
    no: u8,
}

impl Tally {
    pub(crate) fn new(masters: usize) -> Self {
        debug_assert!(masters <= usize::from(u8::MAX / 2));
        Self {
            masters: masters as u8,
            yes: 0,
            no: 0,
        }
    }

    pub(crate) fn count(&mut self, yes: bool) -> Verdict {
        if yes {
            self.yes += 1;
        } else {
            self.no += 1;
        }
        self.verdict()
    }

    /// Leaves one master out of the count, for a mutant.
    pub(crate) fn leave_out(&mut self) -> Verdict {
        self.masters -= 1;
        self.verdict()
    }

    pub(crate) fn is_complete(self) -> bool {
        self.yes + self.no == self.masters
    }

    fn verdict(self) -> Verdict {
        let need = majority(usize::from(self.masters));
        if usize::from(self.yes) >= need {
            Verdict::Won
        } else if usize::from(self.masters - self.no) < need {
            Verdict::Lost
        } else {
            Verdict::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_vote_shows_its_reason() {
        let text = |text: &str| Arc::<str>::from(text);
        let (millis, clock) = (Duration::from_millis, Duration::ZERO);
        for (vote, expected) in [
            (Vote::Grant, "granted"),
            (Vote::Refuse(Refusal::Gone), "holds nothing"),
            (Vote::Refuse(Refusal::held(None)), "held by another holder"),
            (
                Vote::Refuse(Refusal::OtherKind),
                "held as another kind of lock",
            ),
            (
                Vote::Refuse(Refusal::Queued { position: None }),
                "free, but others wait",
            ),
            (
                Vote::Refuse(Refusal::Queued { position: Some(2) }),
                "free, position 2 in the queue",
            ),
            (
                Vote::Refuse(Refusal::Skewed { clock }),
                "free, but the clocks are too far apart",
            ),
            (
                Vote::Refuse(Refusal::Stale { counter: 1 }),
                "free, but has seen a later fencing token",
            ),
            (Vote::Fail(Failure::Closed), "closed"),
            (
                Vote::Fail(Failure::Disconnected(text("reset"))),
                "connection lost: reset",
            ),
            (
                Vote::Fail(Failure::Quarantined {
                    remaining: millis(1_500),
                }),
                "may have forgotten locks, no vote for 1.5s",
            ),
            (Vote::Fail(Failure::Rejected(text("OOM"))), "answered OOM"),
            (
                Vote::Fail(Failure::TimedOut(millis(50))),
                "no answer in 50ms",
            ),
            (
                Vote::Fail(Failure::Unreachable(text("refused"))),
                "unreachable: refused",
            ),
        ] {
            assert_eq!(vote.to_string(), expected);
        }
    }

    #[test]
    fn a_command_may_have_been_executed_if_it_was_sent_and_not_answered() {
        let why = || Arc::<str>::from("why");
        let time = Duration::from_secs(1);
        for (failure, may_have) in [
            (Failure::Closed, true),
            (Failure::Disconnected(why()), true),
            (Failure::TimedOut(time), true),
            (Failure::Quarantined { remaining: time }, false),
            (Failure::Rejected(why()), false),
            (Failure::Unreachable(why()), false),
        ] {
            assert_eq!(failure.may_have_executed(), may_have, "{failure}");
        }
    }

    #[test]
    fn verdict_table() {
        use Verdict::{Lost, Pending, Won};
        for (masters, answers, verdict) in [
            (1, "y", Won),
            (1, "n", Lost),
            (2, "y", Pending), // an even N needs more than half
            (2, "n", Lost),
            (3, "yy", Won),
            (3, "yn", Pending),
            (3, "ynn", Lost),
            (4, "yy", Pending),
            (4, "nn", Lost), // two of four are no majority
            (5, "yy", Pending),
            (5, "yynn", Pending),
            (5, "yyy", Won),
            (5, "nnn", Lost),
        ] {
            let mut tally = Tally::new(masters);
            let mut last = Pending;
            for answer in answers.chars() {
                last = tally.count(answer == 'y');
            }
            assert_eq!(last, verdict, "{masters} {answers}");
        }
    }

    proptest! {
        #[test]
        fn two_majorities_share_a_master(masters in 1..=64usize) {
            prop_assert!(2 * majority(masters) > masters);
            prop_assert!(2 * (majority(masters) - 1) <= masters); // one less is not enough
        }

        #[test]
        fn a_complete_count_is_decided_and_a_decision_stands(
            answers in prop::collection::vec(any::<bool>(), 1..=16),
        ) {
            let mut tally = Tally::new(answers.len());
            let mut decided = Verdict::Pending;
            for &yes in &answers {
                let verdict = tally.count(yes);
                if decided != Verdict::Pending {
                    prop_assert_eq!(verdict, decided);
                }
                decided = verdict;
            }
            prop_assert!(tally.is_complete());
            let won = 2 * answers.iter().filter(|yes| **yes).count() > answers.len();
            prop_assert_eq!(decided, if won { Verdict::Won } else { Verdict::Lost });
        }
    }
}
