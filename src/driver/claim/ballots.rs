//! Ballots for fencing tokens: another round with a higher number, in place.

use super::{Claim, rounds::NextRound};
use crate::core::{
    identity::QueueOptions,
    round::{Outcome, Round},
};

/// The most further ballots in a row: one for counters that are ahead of ours, and one for a clock
/// that differs from those of the masters. If neither helps, the masters disagree on the time, and
/// the claim waits like any other.
pub(crate) const MORE_BALLOTS: usize = 2;

impl Claim {
    /// Waits for the outcome of the newest round, and for the votes that tell whether another
    /// ballot can win.
    pub(crate) async fn decided_for_ballot(&self) -> Outcome {
        let outcome = self.decided().await;
        if outcome == Outcome::Lost {
            let round = self.newest_round();
            if round.read(Round::may_need_another_ballot) {
                round.settled().await;
            }
        }
        outcome
    }

    /// Asks once more with a higher number for the fencing token, if that can win: a majority of
    /// masters are free and have seen a later number, or have another time. Returns whether it did.
    /// Masters that granted the last round keep the grant meanwhile.
    pub(crate) fn raise_ballot(&self, queue: Option<QueueOptions>) -> bool {
        if self.counter.is_none() {
            return false;
        }
        let timestamps = &self.context.masters.timestamps;
        let round = self.newest_round();
        let candidate = round.read(Round::next_candidate);
        if let Some(candidate) = candidate {
            // The next ballot of this process begins with this number.
            timestamps.note(candidate);
        } else if let Some(clock) = round.read(Round::skewed_to) {
            timestamps.correct(clock);
        } else {
            return false;
        }
        self.ask_again(NextRound {
            identity: None, // the grants are still good
            queue,
            candidate,
        });
        true
    }
}
