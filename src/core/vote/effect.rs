//! The consequences of a vote on an extension.

use super::{
    Vote,
    master_set::MasterSet,
    round::{Outcome, Round},
};

/// A consequence of a vote on an extension. It is a value, because it is carried out later, after
/// the round is unlocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// This vote completes the majority that confirms the extension. `heal` holds the masters that
    /// lost the key.
    Renewed {
        heal: MasterSet,
    },
    /// A majority had confirmed the extension before this vote. The masters in this set lost the
    /// key.
    Heal(MasterSet),
    /// A majority of any set says that the caller does not hold the lock.
    Disowned,
}

impl Effect {
    /// Returns the consequence of the vote of `master`. The vote has just been counted in `round`.
    /// `before` is the outcome of the round before that vote.
    pub(crate) fn of_vote(round: &Round, before: Outcome, master: usize) -> Self {
        let missing = round.masters(Vote::is_gone);
        match round.outcome() {
            _ if mutant!(MinorityExtends) && matches!(round.vote(master), Some(Vote::Grant)) => {
                Self::Renewed { heal: missing }
            }
            Outcome::Won if before == Outcome::Pending => Self::Renewed { heal: missing },
            Outcome::Won if missing.contains(master) => Self::Heal(MasterSet::only(master)),
            Outcome::Lost if round.is_disowned() => Self::Disowned,
            Outcome::Won | Outcome::Lost | Outcome::Pending | Outcome::TooLate => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::{
        kind::command::Verb,
        vote::{Failure, Refusal, quorum::Quorum},
    };

    /// Counts one vote for each letter, and returns the effects. `g` is granted, `n` is no key, `h`
    /// is held by another, and `f` is failed.
    fn effects(letters: &str) -> Vec<Effect> {
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
                _ => Vote::Fail(Failure::TimedOut(Duration::ZERO)),
            };
            round.on_vote(master, vote, start);
            Effect::of_vote(&round, before, master)
        };
        votes.map(effect).collect()
    }

    #[test]
    fn effect_table() {
        use Effect::{Disowned, Heal, None, Renewed};
        let only = MasterSet::only;
        let renewed = |heal| Renewed { heal };
        for (letters, expected) in [
            ("gg", vec![None, renewed(MasterSet::NONE)]),
            ("ngg", vec![None, None, renewed(only(0))]),
            ("ggn", vec![None, renewed(MasterSet::NONE), Heal(only(2))]),
            ("ggh", vec![None, renewed(MasterSet::NONE), None]),
            ("nhg", vec![None, Disowned, Disowned]),
            ("nfg", vec![None, None, None]),
            ("fhn", vec![None, None, Disowned]),
        ] {
            assert_eq!(effects(letters), expected, "{letters}");
        }
    }
}
