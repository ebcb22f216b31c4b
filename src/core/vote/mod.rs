//! Votes: the vote of one master, the count of votes, and the round that they decide.

pub(crate) mod effect;
pub(crate) mod master_set;
pub(crate) mod quorum;
pub(crate) mod refused;
pub(crate) mod round;
pub(crate) mod votes;
