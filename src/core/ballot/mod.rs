//! Fencing tokens: the candidates, and the rule by which a master accepts or refuses a candidate.

use std::sync::Arc;

#[cfg(test)]
mod explore;

/// The most further ballots of an attempt. Each is a round with another candidate for the fencing
/// token. One is for counters that are above our candidate. The other is for a local clock that
/// differs from the clocks of the masters. If both fail, the masters disagree on the time, and the
/// attempt is lost.
pub(crate) const MORE_BALLOTS: u32 = 2;

/// The counter of a fenced lock, and the candidate that an attempt offers for its fencing token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ballot {
    /// The key of the counter on the masters.
    pub(crate) counter: Arc<str>,
    /// The number that the attempt offers. It is close to the microseconds since 1970, and below
    /// 2^53. It becomes the token if a majority of masters accept it.
    pub(crate) candidate: u64,
}

/// A master's answer to a candidate.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BallotReply {
    /// The master accepts the candidate. Its counter is then at least the candidate.
    Accepted,
    /// The candidate is too far from the master's clock.
    Skewed,
    /// The counter is as high as the candidate, or higher.
    Stale,
}

/// Returns a master's answer to a candidate. This is the rule of `lua/shared/ballot.lua` for the
/// search in [`explore`]. The lock is free, or the same attempt holds it (`is_mine`). `window` is 0
/// when a key is put back. Then neither the counter nor the distance to the clock matters, and the
/// counter keeps its value if it is higher.
#[cfg(test)]
pub(crate) fn ballot_reply(
    candidate: u64,
    counter: u64,
    is_mine: bool,
    clock: u64,
    window: u64,
) -> BallotReply {
    if window == 0 || candidate == counter && is_mine {
        BallotReply::Accepted
    } else if candidate <= counter {
        BallotReply::Stale
    } else if candidate < clock.saturating_sub(window)
        || candidate > clock.saturating_add(window).max(counter.saturating_add(1))
    {
        BallotReply::Skewed
    } else {
        BallotReply::Accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballot_table() {
        use BallotReply::{Accepted, Skewed, Stale};
        for (candidate, counter, is_mine, clock, window, expected) in [
            (100, 99, false, 100, 10, Accepted),
            (100, 100, false, 100, 10, Stale), // another attempt may have won with this candidate
            (100, 100, true, 100, 10, Accepted), // the same attempt
            (100, 101, true, 100, 10, Stale),
            (90, 0, false, 100, 10, Accepted),
            (89, 0, false, 100, 10, Skewed),
            (110, 0, false, 100, 10, Accepted),
            (111, 0, false, 100, 10, Skewed),
            (121, 120, false, 100, 10, Accepted), // one above a counter that is above the clock
            (122, 120, false, 100, 10, Skewed),
            (50, 0, false, 100, 0, Accepted), // the key is put back
            (50, 50, false, 100, 0, Accepted),
            (50, 51, false, 100, 0, Accepted), // a rival has raised the counter
        ] {
            assert_eq!(
                ballot_reply(candidate, counter, is_mine, clock, window),
                expected,
                "{candidate} {counter} {is_mine}"
            );
        }
    }
}
