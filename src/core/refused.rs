//! The reasons why an attempt did not end in a lock.

use std::time::Duration;

use super::round::{Outcome, Round};

/// The reason why an attempt did not end in a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another client holds the lock, for this long unless it extends or releases the lock. `None`
    /// if the masters do not say how long.
    HeldUntil(Option<Duration>),
    /// Too many masters failed for anyone to get the lock.
    NoQuorum,
    /// Another kind of lock is held under the name.
    OtherKind,
    /// Another task of the same owner was in the middle of an attempt. Nothing was sent.
    OwnerBusy,
    /// So many masters are in quarantine that the others are no majority, for this long.
    Quarantined(Duration),
    /// The fair lock is free, but other waiters come first.
    Queued,
    /// No one has a majority: several attempts split the votes.
    Split,
    /// A majority granted the lock this long after the start, which left no validity.
    TooSlow(Duration),
}

impl Refused {
    /// Returns why `round`, an acquisition, did not end in a lock. The masters say that the lock
    /// will be free in `free_in`, and `elapsed` has passed since the start of the round.
    pub(crate) fn of(
        round: &Round,
        outcome: Outcome,
        free_in: Option<Duration>,
        elapsed: Duration,
    ) -> Self {
        if outcome == Outcome::TooLate {
            Self::TooSlow(elapsed)
        } else if let Some(left) = round.quarantined() {
            Self::Quarantined(left)
        } else if round.lacks_masters() {
            Self::NoQuorum
        } else if round.is_other_kind() {
            Self::OtherKind
        } else if round.lets_others_pass() {
            // Whoever has taken it since then, which `free_in` may tell of.
            Self::Queued
        } else if free_in == Some(Duration::ZERO) {
            Self::Split
        } else {
            Self::HeldUntil(free_in)
        }
    }

    /// Returns why `round` did not give a fair lock to a waiter in the queues. A waiter that is not
    /// the next one waits for a call, whatever is left of the TTL.
    pub(crate) fn in_queue(round: &Round) -> Self {
        if let Some(left) = round.quarantined() {
            Self::Quarantined(left)
        } else if round.lacks_masters() {
            Self::NoQuorum
        } else if !round.is_next() {
            Self::HeldUntil(None)
        } else if round.is_held_by_one() {
            Self::HeldUntil(round.free_in())
        } else {
            Self::Split
        }
    }

    /// Returns whether another attempt would be of no use.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::OtherKind)
    }
}
