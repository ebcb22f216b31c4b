//! Further ballots for a fencing token. Each is a round with another candidate. Meanwhile, masters
//! keep the grants of the round before.

use super::{Claim, rounds::NextRound};
use crate::core::{
    kind::identity::QueueOptions,
    vote::round::{Outcome, Round},
};

/// The maximum number of further ballots in a row. One is for counters that are above our
/// candidate. The other is for a local clock that differs from the clocks of the masters. If both
/// fail, the masters disagree on the time, and the attempt is lost.
pub(crate) const MORE_BALLOTS: usize = 2;

impl Claim {
    /// Waits for the outcome of the newest round. If the round is lost and the missing votes may
    /// show that another ballot can win, waits for these votes, too.
    pub(crate) async fn decided_for_ballot(&self, will_retry: bool) -> Outcome {
        let outcome = self.decided(will_retry).await;
        if outcome == Outcome::Lost {
            let round = self.newest_round();
            if round.read(Round::may_raise_ballot) {
                // Does not wait for a first connection, because the round may hold grants.
                self.settled(&round).await;
            }
        }
        outcome
    }

    /// Posts a round with another candidate for the fencing token if the round can win. Returns
    /// whether a round was posted. Masters that granted the last round keep the grant meanwhile.
    ///
    /// The round can win if a majority of masters are free, and some of them have seen a larger
    /// candidate. It can also win if a majority of masters say that the time in the last candidate
    /// is wrong.
    pub(crate) fn raise_ballot(&self, queue: Option<QueueOptions>) -> bool {
        if self.counter.is_none() {
            return false;
        }
        let timestamps = &self.context.masters.timestamps;
        let round = self.newest_round();
        let candidate = round.read(Round::next_candidate);
        if let Some(candidate) = candidate {
            // Later timestamps of this coordinator are above `candidate`.
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
            watch: false,
        });
        true
    }
}
