//! The targets of the events that the crate logs. They are part of the API: programs filter by
//! them.

/// The target for locks: acquired, renewed, in doubt, released and lost.
pub(crate) const LOCK: &str = "quorlock::lock";
/// The target for masters: connected, down, without a vote.
pub(crate) const MASTER: &str = "quorlock::master";
