//! What masters vote on.

use super::Vote;

/// The name of an action on a lock: see [`Action`](crate::core::protocol::command::Action).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Acquire,
    Break,
    Extend,
    Heal,
    Inspect,
    Probe,
    Release,
    Yield,
}

impl Verb {
    /// Returns whether a quarantine keeps a master from voting on this verb.
    pub(crate) fn quarantine_applies(self) -> bool {
        match self {
            Self::Acquire | Self::Extend | Self::Heal | Self::Probe => true,
            Self::Break | Self::Inspect | Self::Release | Self::Yield => false,
        }
    }

    /// Returns whether this verb may leave a key on a master that did not have it before. A master
    /// that grants such a verb takes locks.
    pub(crate) fn takes(self) -> bool {
        match self {
            Self::Acquire | Self::Heal | Self::Probe => true,
            Self::Break | Self::Extend | Self::Inspect | Self::Release | Self::Yield => false,
        }
    }

    /// Returns the word for a grant of this verb.
    pub(crate) fn granted_word(self) -> &'static str {
        match self {
            Self::Acquire => "granted",
            Self::Break => "broken",
            Self::Extend | Self::Heal => "confirmed",
            Self::Inspect => "answered",
            Self::Probe => "can vote",
            Self::Release | Self::Yield => "released",
        }
    }

    /// Returns whether `vote` counts towards the majority that this verb needs.
    pub(crate) fn is_done(self, vote: &Vote) -> bool {
        match (self, vote) {
            (_, Vote::Grant) => true,
            (_, Vote::Fail(_)) => false,
            // A key that is gone, or that belongs to another holder, counts as released.
            (Self::Break | Self::Release | Self::Yield, Vote::Refuse(_)) => true,
            (
                Self::Acquire | Self::Extend | Self::Heal | Self::Inspect | Self::Probe,
                Vote::Refuse(_),
            ) => false,
        }
    }
}

#[cfg(test)]
impl Verb {
    pub(crate) const ALL: [Self; 8] = [
        Self::Acquire,
        Self::Break,
        Self::Extend,
        Self::Heal,
        Self::Inspect,
        Self::Probe,
        Self::Release,
        Self::Yield,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::vote::{Failure, Refusal};

    #[test]
    fn a_quarantine_applies_to_what_relies_on_the_memory_of_a_master() {
        let applies = Verb::ALL.map(Verb::quarantine_applies);
        assert_eq!(
            applies,
            [true, false, true, true, false, true, false, false]
        );
    }

    #[test]
    fn votes_count_as_done_depending_on_the_verb() {
        let gone = Vote::Refuse(Refusal::Gone);
        let failed = Vote::Fail(Failure::Closed);
        for verb in Verb::ALL {
            let is_release = matches!(verb, Verb::Break | Verb::Release | Verb::Yield);
            assert!(verb.is_done(&Vote::Grant), "{verb:?}");
            assert_eq!(verb.is_done(&gone), is_release, "{verb:?}");
            assert!(!verb.is_done(&failed), "{verb:?}");
        }
    }

    #[test]
    fn acquisitions_healings_and_probes_may_leave_a_key() {
        let takes = Verb::ALL.map(Verb::takes);
        assert_eq!(takes, [true, false, false, true, false, true, false, false]);
    }
}
