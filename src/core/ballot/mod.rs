//! Fencing tokens: the candidates. The rule by which a master accepts or refuses a candidate is in
//! `lua/shared/ballot.lua`.

use std::sync::Arc;

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
