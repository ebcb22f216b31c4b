//! Further ballots for a fencing token: rounds with another candidate, while masters keep the
//! grants of the round before.

use super::{Claim, rounds::NextRound};
use crate::core::{
    identity::QueueOptions,
    round::{Outcome, Round},
};

/// The maximum number of further ballots in a row: one for counters that are above our candidate,
/// and one for a local clock that differs from the clocks of the masters. If neither helps, the
/// masters disagree on the time, and the attempt is lost like any other.
pub(crate) const MORE_BALLOTS: usize = 2;

impl Claim {
    /// Waits for the outcome of the newest round, and for the votes that tell whether another
    /// ballot can win.
    pub(crate) async fn decided_for_ballot(&self) -> Outcome {
        let outcome = self.decided().await;
        if outcome == Outcome::Lost {
            let round = self.newest_round();
            if round.read(Round::may_raise_ballot) {
                round.settled().await;
            }
        }
        outcome
    }

    /// Makes a round with another candidate for the fencing token if that can win. It can if a
    /// majority of masters are free and some of them have seen a later candidate, or if a majority
    /// of masters have another time. Returns whether there is such a round. Masters that granted
    /// the last round keep the grant meanwhile.
    pub(crate) fn raise_ballot(&self, queue: Option<QueueOptions>) -> bool {
        if self.counter.is_none() {
            return false;
        }
        let timestamps = &self.context.masters.timestamps;
        let round = self.newest_round();
        let candidate = round.read(Round::next_candidate);
        if let Some(candidate) = candidate {
            // Later candidates of this process are above this one.
            timestamps.note(candidate);
        } else if let Some(clock) = round.read(Round::skewed_to) {
            timestamps.correct(clock);
        } else {
            return false;
        }
        self.ask_again(NextRound {
            identity: None, // the masters keep the grants of this attempt
            queue,
            candidate,
        });
        true
    }
}
