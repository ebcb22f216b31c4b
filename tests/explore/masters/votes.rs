//! The votes of masters, and what a client does after them.

use std::time::Duration;

use super::START;
use crate::core::{
    time::tick::LeaseTick,
    vote::{
        CastVote, Failure, Refusal, Slot, Verb, Vote,
        quorum::{Outcome, Quorum},
        round::Round,
    },
};

/// The vote of a master, without what no model needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::explore) enum Cast {
    #[default]
    None,
    Failed,
    /// Granted, with the slot, or 0 for a lock without slots.
    Granted(u8),
    Refused,
    Skewed,
    /// Refused, with the counter in microseconds from the start.
    Stale(u32),
}

/// What a client does after some votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::explore) struct Decision {
    pub(in crate::explore) outcome: Outcome,
    /// The slot that was won, or 0.
    pub(in crate::explore) slot: u8,
    /// The candidate for the next ballot, in microseconds from the start.
    pub(in crate::explore) next: Option<u32>,
    /// The next ballot needs another clock.
    pub(in crate::explore) is_skewed: bool,
}

/// Counts the votes of a round.
pub(in crate::explore) fn decided(
    verb: Verb,
    quorum: &Quorum,
    votes: impl Iterator<Item = (usize, Cast)>,
) -> Decision {
    let start = LeaseTick::some();
    let mut round = Round::open(verb, quorum, start, Some(start + Duration::from_secs(1)));
    for (master, cast) in votes {
        let refused = |refusal| CastVote::from(Vote::Refuse(refusal));
        let vote = match cast {
            Cast::None => continue,
            Cast::Failed => Vote::Fail(Failure::timed_out(Duration::ZERO)).into(),
            Cast::Granted(slot) => CastVote::of(Vote::Grant, Slot::new(slot.into())),
            Cast::Refused => refused(Refusal::held(None)),
            Cast::Skewed => refused(Refusal::Skewed {
                clock: Duration::ZERO,
            }),
            Cast::Stale(counter) => refused(Refusal::Stale {
                counter: START + u64::from(counter),
            }),
        };
        round.count_vote(master, vote, start);
    }
    let next = round.next_candidate().map(|next| (next - START) as u32);
    Decision {
        outcome: round.outcome(),
        slot: round.slot().map_or(0, Slot::number) as u8,
        next,
        is_skewed: round.skewed_to().is_some(),
    }
}
