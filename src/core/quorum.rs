//! What one master says, and when enough of them have said it.

use std::{fmt, sync::Arc, time::Duration};

use super::held_report::HeldReport;

/// What one master answered.
///
/// Never a bool: a refusal is knowledge ("somebody else has it here"), a failure is ignorance ("it may
/// have done what was asked").
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the three answers are the algorithm; a match on them should be complete"
)]
pub enum Vote {
    /// The master did what was asked.
    Grant,
    /// The master answered, and the lock there is not ours to take, extend or delete.
    Refuse(Refusal),
    /// The master gave no answer that counts.
    Fail(Failure),
}

/// Why a master refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Nothing is held there: the lock expired, was released, or the master lost it.
    Gone,
    /// Another client holds the lock there.
    Held(HeldReport),
    /// It is held there as another kind of lock.
    OtherKind,
    /// It is free there, and others come first.
    Queued {
        /// The position of the client that asked in that master's queue: 1 is next. `None` for an
        /// attempt that does not wait.
        position: Option<u64>,
    },
    /// The candidate for the fencing token is not above the master's counter.
    Stale {
        /// The largest candidate that was accepted there.
        counter: u64,
    },
    /// The ticket for the queue, or the candidate for the fencing token, has a time that is too far from the
    /// master's.
    Skewed {
        /// The master's clock, since 1970.
        clock: Duration,
    },
}

impl Refusal {
    /// Returns the refusal of a mutex that another client holds.
    pub(crate) fn held(remaining: Option<Duration>) -> Self {
        Self::Held(HeldReport::mutex(remaining))
    }
}

/// Why a master gave no answer that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Its supervisor is gone: the coordinator was dropped, or its runtime shut down.
    Closed,
    /// The connection broke after the command was sent. It may have been executed.
    Disconnected(Arc<str>),
    /// It may have forgotten locks, and has no vote until all those are over. Nothing was sent.
    Quarantined {
        /// How long the quarantine still lasts.
        remaining: Duration,
    },
    /// It answered with an error, such as `OOM`, `LOADING`, `READONLY` or `NOPERM`.
    Rejected(Arc<str>),
    /// No answer within the node timeout. The command may have been, or may yet be, executed.
    TimedOut(Duration),
    /// The command was never sent: there is no connection, or the master does not keep up with what
    /// was sent before.
    Unreachable(Arc<str>),
}

impl Failure {
    /// Whether the master may have done what was asked.
    pub(crate) fn may_have_executed(&self) -> bool {
        match self {
            Self::Closed | Self::Disconnected(_) | Self::TimedOut(_) => true,
            // What a server refuses with an error it does not do. A script may have swept a queue by then, and nothing
            // that is ours.
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

/// The least number of masters that any two majorities of `masters` share one of.
pub(crate) fn majority(masters: usize) -> usize {
    masters / 2 + 1
}

/// Where a count stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority can no longer be reached.
    Lost,
    /// Both ends are still open.
    Pending,
    /// A majority said yes.
    Won,
}

/// Counts one yes or no per master, of all masters that are configured: counting only those that can be
/// reached would let two disjoint "majorities" win.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    // In bytes, as every lock that is held keeps one; there are 64 masters at most.
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
    fn verdict_table() {
        use Verdict::{Lost, Pending, Won};
        for (masters, answers, verdict) in [
            (1, "y", Won),
            (1, "n", Lost),
            (2, "y", Pending), // an even N needs all but half of it
            (2, "n", Lost),
            (3, "yy", Won),
            (3, "yn", Pending),
            (3, "ynn", Lost),
            (4, "yy", Pending),
            (4, "nn", Lost), // two yes of four is no majority
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
        fn two_majorities_meet(masters in 1..=64usize) {
            prop_assert!(2 * majority(masters) > masters);
            prop_assert!(2 * (majority(masters) - 1) <= masters); // and none is larger than it must be
        }

        #[test]
        fn a_complete_count_is_decided_and_a_decision_stands(answers in prop::collection::vec(any::<bool>(), 1..=16)) {
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
