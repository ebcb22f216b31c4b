//! The consequences of a vote on an extension.

use super::{Vote, master_set::MasterSet, quorum::Outcome, round::Round};

/// A consequence of a vote on an extension. It is a value, because it is carried out later, after
/// the round is unlocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A majority of any set says that the caller does not hold the lock.
    Disowned,
    /// A majority had confirmed the extension before this vote. The masters in this set lost the
    /// key.
    Heal(MasterSet),
    /// This vote completes the majority that confirms the extension. The masters in this set lost
    /// the key.
    Renewed(MasterSet),
}

impl Effect {
    /// Returns the consequence of the vote of `master`, if it has one. The vote has just been
    /// counted in `round`. `before` is the outcome of the round before that vote.
    pub(crate) fn of_vote(round: &Round, before: Outcome, master: usize) -> Option<Self> {
        let gone = round.masters(Vote::is_gone);
        match round.outcome() {
            Outcome::Won if before == Outcome::Pending => Some(Self::Renewed(gone)),
            Outcome::Won if gone.contains(master) => Some(Self::Heal(MasterSet::only(master))),
            Outcome::Lost if round.is_disowned() => Some(Self::Disowned),
            Outcome::Won | Outcome::Lost | Outcome::Pending | Outcome::TooLate => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::{
        vote::verb::Verb,
        vote::{Failure, Refusal, quorum::Quorum},
    };

    /// Counts one vote for each letter, and returns the effects. `g` is granted, `n` is no key, `h`
    /// is held by another, and `f` is failed.
    fn effects(letters: &str) -> Vec<Option<Effect>> {
        #[expect(clippy::disallowed_methods, reason = "an origin for the table")]
        let start = std::time::Instant::now();
        let mut round = Round::open(Verb::Extend, &Quorum::of(letters.len()), start, None);
        let votes = letters.chars().enumerate();
        let effect = |(master, letter)| {
            let before = round.outcome();
            let vote = match letter {
                'g' => Vote::Grant,
                'n' => Vote::Refuse(Refusal::Gone),
                'h' => Vote::Refuse(Refusal::held(None)),
                _ => Vote::Fail(Failure::timed_out(Duration::ZERO)),
            };
            round.on_vote(master, vote, start);
            Effect::of_vote(&round, before, master)
        };
        votes.map(effect).collect()
    }

    #[test]
    fn effect_table() {
        let (disowned, only) = (Some(Effect::Disowned), MasterSet::only);
        let heal = |gone| Some(Effect::Heal(gone));
        let renewed = |gone| Some(Effect::Renewed(gone));
        for (letters, expected) in [
            ("gg", vec![None, renewed(MasterSet::NONE)]),
            ("ngg", vec![None, None, renewed(only(0))]),
            ("ggn", vec![None, renewed(MasterSet::NONE), heal(only(2))]),
            ("ggh", vec![None, renewed(MasterSet::NONE), None]),
            ("nhg", vec![None, disowned, disowned]),
            ("nfg", vec![None, None, None]),
            ("fhn", vec![None, None, disowned]),
        ] {
            assert_eq!(effects(letters), expected, "{letters}");
        }
    }
}
