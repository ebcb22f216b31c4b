//! The check whether a connection is still worth waiting for.

use std::time::{Duration, Instant};

use crate::core::timeout::{Limits, NodeTimeout};

/// The limits for waiting for a master, and the time since which it has been silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness {
    node_timeout: NodeTimeout,
    /// The shortest time that a reply took, while replies were measured. A slower reply may have
    /// waited for the replies before it.
    round_trip: Duration,
    limits: Limits,
    /// Set if a faster reply could lower the limits. Most masters are so near that none can.
    can_improve: bool,
    /// The time of the last byte, or of a command that was sent after all others had been answered.
    last_byte: Instant,
    /// The time of the last whole reply, or of such a command.
    last_reply: Instant,
    /// Set once a stall of this process was forgiven, until the next [`restart`](Self::restart).
    is_forgiven: bool,
}

impl Liveness {
    pub(super) fn new(node_timeout: NodeTimeout, round_trip: Duration, now: Instant) -> Self {
        let limits = node_timeout.limits(round_trip);
        Self {
            node_timeout,
            round_trip,
            limits,
            can_improve: limits != node_timeout.limits(Duration::ZERO),
            last_byte: now,
            last_reply: now,
            is_forgiven: false,
        }
    }

    /// Returns how long one command may take.
    pub(super) fn timeout(&self) -> Duration {
        self.limits.timeout
    }

    /// Notes that a whole reply came, or that a command was sent while no other was unanswered.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.last_byte, self.last_reply) = (now, now);
        self.is_forgiven = false;
    }

    /// Notes that bytes came, whatever they are.
    #[cfg(feature = "redis")]
    pub(super) fn on_bytes(&mut self, now: Instant) {
        self.last_byte = now;
    }

    /// Lowers the limits if a reply at `now` to a command that was sent at `sent` is the fastest so
    /// far. Returns whether they may have changed.
    pub(super) fn measure(&mut self, sent: Instant, now: Instant) -> bool {
        if !self.can_improve {
            return false;
        }
        let round_trip = now.saturating_duration_since(sent);
        if round_trip >= self.round_trip {
            return false;
        }
        self.round_trip = round_trip;
        self.limits = self.node_timeout.limits(round_trip);
        self.can_improve = self.limits != self.node_timeout.limits(Duration::ZERO);
        true
    }

    /// Restarts at `now` if this process was stalled until long after `due`, so that replies may
    /// have arrived that it has not read. Returns whether it restarted. Does so at most once
    /// between two replies: a process that is always late must give up a silent master all the
    /// same.
    pub(super) fn forgive_stall(&mut self, due: Instant, now: Instant) -> bool {
        let was_stalled = now.saturating_duration_since(due) >= self.limits.timeout / 2;
        let is_forgiven = was_stalled && !self.is_forgiven;
        if is_forgiven {
            self.restart(now);
            self.is_forgiven = true;
        }
        is_forgiven
    }

    /// Returns when to give the connection up if nothing more comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let silence = self.last_byte.checked_add(self.limits.silence)?;
        let progress = self.last_reply.checked_add(self.limits.progress)?;
        Some(silence.min(progress))
    }
}
