//! Whether a connection is still worth waiting for.

use std::time::Instant;

use crate::core::timeout::Limits;

/// When the master was last heard from. Counts only while something is in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Liveness {
    /// The last byte, or the first command that was sent after everything had been answered.
    byte: Instant,
    /// The last whole reply, or the same.
    reply: Instant,
    /// Silence was forgiven since then.
    is_forgiven: bool,
}

impl Liveness {
    /// Starts to count: nothing was in flight, and something is now.
    pub(super) fn since(now: Instant) -> Self {
        Self {
            byte: now,
            reply: now,
            is_forgiven: false,
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn on_bytes(&mut self, now: Instant) {
        self.byte = now;
    }

    pub(super) fn on_reply(&mut self, now: Instant) {
        *self = Self::since(now);
    }

    /// Starts to count anew at `now`, as this process was itself stalled and could read nothing.
    /// Once per reply: a process that is always late must give up a silent master all the same.
    pub(super) fn forgive(&mut self, now: Instant) -> bool {
        let is_first = !self.is_forgiven;
        if is_first {
            *self = Self {
                is_forgiven: true,
                ..Self::since(now)
            };
        }
        is_first
    }

    /// Returns when the connection is to be given up if nothing more is heard.
    pub(super) fn end(self, limits: Limits) -> Option<Instant> {
        let silence = self.byte.checked_add(limits.silence)?;
        let progress = self.reply.checked_add(limits.progress)?;
        Some(silence.min(progress))
    }
}
