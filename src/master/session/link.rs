//! One connection to a master: its unanswered commands, and its time limits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    liveness::Liveness,
    unanswered::{Item, Sent, Unanswered},
};
use crate::{core::vote::verb::Verb, master::config::MasterConfig};

/// The commands that were sent over one connection, and what the connection has shown of the
/// master.
///
/// A window limits the number of unanswered commands. The window grows with each reply, so a silent
/// master gets only a few commands.
#[derive(Debug)]
pub(crate) struct Link {
    /// The time when the connection came into use, just after its dial.
    pub(crate) began: Instant,
    pub(crate) liveness: Liveness,
    pub(crate) sent: Unanswered,
    /// The most commands that may be in `sent`.
    pub(crate) window: usize,
    /// Set once the master has answered a command.
    pub(crate) has_answered: bool,
    /// Set while the health of the master shows an error.
    pub(crate) is_unfit: bool,
    /// Set once the master has lost all of its keys while the connection lasted.
    pub(crate) is_flushed: bool,
    /// Set if the last poll of the connection has left bytes unread.
    pub(crate) has_unread: bool,
    /// Set once the log has said that a subscription was refused.
    pub(crate) is_denial_logged: bool,
}

impl Link {
    /// The first window of a connection.
    pub(crate) const WINDOW: usize = 1_024;
    /// The first window of a connection if the master was silent on the connection before it.
    pub(crate) const CAREFUL_WINDOW: usize = 4;
    /// The largest window. With a round trip of 200 ms, it is enough for 80,000 commands a second.
    pub(crate) const MOST_IN_WINDOW: usize = 16_384;

    /// Creates the link of a new connection to `master`. Without a connection, the window is 0.
    pub(crate) fn new(
        config: &MasterConfig,
        master: usize,
        round_trip: Duration,
        window: usize,
    ) -> Self {
        let began = (config.now)();
        // If this process was stalled during the dial, the measured time is too long.
        let round_trip = round_trip.min(config.connect_timeout);
        Self {
            began,
            liveness: Liveness::new(config.node_timeout, round_trip, began),
            sent: Unanswered::default(),
            window,
            has_answered: false,
            is_unfit: config.health.is_unfit(master),
            is_flushed: false,
            has_unread: false,
            is_denial_logged: false,
        }
    }

    /// Notes that `item` was sent at `now`. `is_owed` is set if it is a release that was sent
    /// because the master is owed it.
    pub(crate) fn push(&mut self, item: Item, is_owed: bool, now: Instant) {
        if self.sent.is_empty() {
            // Renewals come seconds apart, and the connection of a holder is worth more than a
            // quick end: the master may only stand still for a moment.
            match &item {
                Item::Request(request) if request.command.verb() == Verb::Extend => {
                    self.liveness.restart(now);
                }
                _ => self.liveness.begin(now),
            }
        }
        let deadline = now + self.liveness.timeout();
        self.sent.push(item, is_owed, now, deadline);
    }

    /// Takes out the oldest command, whose reply came at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Result<Sent, Arc<str>> {
        let sent = self.sent.pop().ok_or("a reply came without a command")?;
        self.window = (self.window + 1).min(Self::MOST_IN_WINDOW);
        self.has_answered = true;
        self.liveness.restart(now);
        Ok(sent)
    }

    /// Returns whether nothing is unanswered, and the connection has been silent for a while.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.sent.is_empty() && self.liveness.is_idle(now)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.sent.len() < self.window
    }

    /// Returns the earliest deadline of an unanswered command, or of the connection.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        // The deadline of any open vote is earlier than that of the connection.
        self.sent.next_deadline().or_else(|| self.silence_ends())
    }

    /// Returns when to give the connection up if nothing more comes.
    pub(crate) fn silence_ends(&self) -> Option<Instant> {
        let is_waiting = !self.sent.is_empty();
        is_waiting.then(|| self.liveness.deadline()).flatten()
    }
}
