//! Majorities, and the count of yes and no.

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
