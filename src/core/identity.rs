//! The identities by which masters tell attempts at a lock apart.

use std::{sync::Arc, time::Duration};

use super::{lease::CLOCK_WINDOW, name::Token};

/// The identity of one attempt at a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The token of an attempt at a mutex.
    Token(Token),
    /// An attempt at a reentrant lock.
    Owner(OwnerAttempt),
    /// An attempt at a fair lock.
    Ticket(FairAttempt),
}

impl Identity {
    /// Returns the token of a mutex.
    pub(crate) fn token(&self) -> Option<&Token> {
        let Self::Token(token) = self else {
            return None;
        };
        Some(token)
    }

    /// Returns the owner and its attempt. A mutex has none.
    pub(crate) fn owner(&self) -> Option<&OwnerAttempt> {
        match self {
            Self::Token(_) => None,
            Self::Owner(owner) => Some(owner),
            Self::Ticket(fair) => Some(&fair.owner),
        }
    }
}

/// One attempt of an owner. A later attempt has a larger number, so that a command of an earlier
/// attempt does no harm when it arrives late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerAttempt {
    pub(crate) owner: Arc<str>,
    pub(crate) attempt: u64,
}

/// An attempt of an owner at a fair lock, with the ticket for its position in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FairAttempt {
    pub(crate) owner: OwnerAttempt,
    pub(crate) ticket: Ticket,
}

/// The entry of a waiter in a queue: the time when it came, in microseconds as 16 digits, and its
/// owner. Tickets are compared as strings, also by the masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(Arc<str>);

impl Ticket {
    pub(crate) fn new(micros: u64, owner: &str) -> Self {
        Self(format!("{micros:016}:{owner}").into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the owner in the text of a ticket.
    pub(crate) fn owner_of(ticket: &str) -> &str {
        ticket.split_once(':').map_or(ticket, |(_, owner)| owner)
    }
}

impl std::borrow::Borrow<str> for Ticket {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The options for a waiter in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueOptions {
    /// The time after which a waiter that has not asked again counts as dead.
    pub(crate) waiter_timeout: Duration,
    /// `true` if no majority has seen the ticket before. The time in a fresh ticket is checked.
    pub(crate) is_fresh: bool,
}

impl QueueOptions {
    /// Returns the waiter timeout in milliseconds, and the window in microseconds. A window of 0
    /// stands for no check.
    pub(super) fn in_words(self) -> [u64; 2] {
        let window = if self.is_fresh {
            CLOCK_WINDOW
        } else {
            Duration::ZERO
        };
        [whole_millis(self.waiter_timeout), window.as_micros() as u64]
    }
}

/// Returns `duration` in milliseconds.
pub(super) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
