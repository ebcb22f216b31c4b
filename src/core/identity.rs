//! In whose name a lock is asked for.

use std::{sync::Arc, time::Duration};

use super::name::Token;

/// What tells one attempt at a lock from all others, on the masters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Of who only looks.
    Nobody,
    /// Of a mutex.
    Token(Token),
    /// Of a reentrant lock: an owner, and which of its attempts. A later attempt has a larger number, so
    /// that a command that comes late harms nobody.
    Owner { owner: Arc<str>, attempt: u64 },
    /// Of a fair lock: with the place in the queue, too.
    Ticket {
        owner: Arc<str>,
        attempt: u64,
        ticket: Ticket,
    },
}

/// Where a waiter stands: microseconds of the time when it came, as 16 digits, and the owner. Tickets are
/// compared as strings, by the masters, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(Arc<str>);

impl Ticket {
    pub(crate) fn new(micros: u64, owner: &str) -> Self {
        Self(format!("{micros:016}:{owner}").into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The owner whose `ticket` this is.
    pub(crate) fn owner_of(ticket: &str) -> &str {
        ticket.split_once(':').map_or(ticket, |(_, owner)| owner)
    }
}

/// How a waiter wants to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueOptions {
    /// Who does not ask again for so long counts as dead.
    pub(crate) patience: Duration,
    /// Whether no majority has seen the ticket before: then its time must be about right.
    pub(crate) is_fresh: bool,
}

impl QueueOptions {
    /// How far the time in a fresh ticket may be from a master's clock: what a client whose clock is wrong can
    /// gain at most over others.
    const WINDOW: Duration = Duration::from_secs(1);

    /// In milliseconds, and the window in microseconds, zero for any.
    pub(super) fn in_words(self) -> (u64, u64) {
        let millis = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        let window = if self.is_fresh {
            Self::WINDOW
        } else {
            Duration::ZERO
        };
        (millis, window.as_micros() as u64)
    }
}

impl std::borrow::Borrow<str> for Ticket {
    fn borrow(&self) -> &str {
        &self.0
    }
}
