//! The rules for giving up a silent connection.

use std::time::{Duration, Instant};

use crate::core::time::timeout::{Limits, NodeTimeout};

/// The time limits of a connection, and the times from which the silence of its master counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    node_timeout: NodeTimeout,
    /// The shortest time of a measured reply. Longer times are ignored, because a slow reply may
    /// have waited for earlier replies.
    round_trip: Duration,
    limits: Limits,
    /// Set if a faster reply could lower the limits. Most masters are near, and have the lowest
    /// limits already.
    can_improve: bool,
    /// The time when the last byte came. A later send replaces this time if no other command was
    /// unanswered.
    last_byte: Instant,
    /// The time when the last whole reply came. A later send replaces this time in the same case.
    last_reply: Instant,
    /// The time without a byte before the oldest unanswered command was sent. Cleared by the next
    /// byte.
    silence: Duration,
    /// Set when a stall of this process is forgiven. Cleared by the next
    /// [`restart`](Self::restart).
    is_forgiven: bool,
    judgement: Option<Judgement>,
}

/// A judgement of the deadlines that are over.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    /// The time at which a deadline was found to be over.
    until: Instant,
    /// The time at which all deadlines up to `until` are judged.
    from: Instant,
}

impl Liveness {
    /// The time without a byte after which a connection counts as idle. Something between this
    /// program and the master may have forgotten such a connection, or the end of the stream may
    /// have come while this process was frozen.
    const IDLE: Duration = Duration::from_secs(1);

    pub(crate) fn new(node_timeout: NodeTimeout, round_trip: Duration, now: Instant) -> Self {
        let limits = node_timeout.limits(round_trip);
        Self {
            node_timeout,
            round_trip,
            limits,
            can_improve: limits != node_timeout.limits(Duration::ZERO),
            last_byte: now,
            last_reply: now,
            silence: Duration::ZERO,
            is_forgiven: false,
            judgement: None,
        }
    }

    /// Returns how long one command may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.limits.timeout
    }

    /// Notes that a command is sent while no other is unanswered.
    pub(crate) fn begin(&mut self, now: Instant) {
        let silence = now.saturating_duration_since(self.last_byte);
        self.restart(now);
        self.silence = silence;
    }

    /// Notes that a whole reply came, or that a command is sent as if the connection had been in
    /// use.
    pub(crate) fn restart(&mut self, now: Instant) {
        (self.last_byte, self.last_reply) = (now, now);
        self.silence = Duration::ZERO;
        self.is_forgiven = false;
    }

    /// Notes that bytes came, even if they do not complete a reply.
    pub(crate) fn on_bytes(&mut self, now: Instant) {
        self.last_byte = now;
        self.silence = Duration::ZERO;
    }

    /// Returns whether no byte has come for so long that the connection counts as idle.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_byte) >= Self::IDLE
    }

    /// Returns how long the connection was silent before the oldest unanswered command, if it
    /// counted as idle and is still silent.
    pub(crate) fn silence(&self) -> Option<Duration> {
        (self.silence >= Self::IDLE).then_some(self.silence)
    }

    /// Measures a reply that came at `now`, to a command that was sent at `sent`. Lowers the limits
    /// if the reply is the fastest so far. Returns whether the limits may have changed.
    pub(crate) fn measure(&mut self, sent: Instant, now: Instant) -> bool {
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

    /// Returns the time up to which deadlines may be judged, if a deadline at `due` is over at
    /// `now`. `has_unread` is set if bytes that have arrived are not read.
    ///
    /// Returns `None` when a deadline is found to be over, because replies may have arrived that
    /// were not read. The caller must then wait for a new timer, and read, before it calls this
    /// method again: the runtime looks at its sockets before it fires timers. If the deadline was
    /// noticed late, this process was stalled, and so may have been the masters on the same
    /// machine. Then they get that time again, for at most one node timeout. So do masters that
    /// send faster than this process reads.
    pub(crate) fn judged_until(
        &mut self,
        due: Instant,
        now: Instant,
        has_unread: bool,
    ) -> Option<Instant> {
        let timeout = self.timeout();
        if let Some(judgement) = self.judgement.take_if(|old| due <= old.from) {
            if now >= judgement.from && (!has_unread || now >= judgement.from + timeout) {
                return Some(judgement.until);
            }
            self.judgement = Some(judgement);
            return None;
        }
        self.forgive_stall(due, now);
        self.judgement = Some(Judgement {
            until: now,
            from: now + now.saturating_duration_since(due).min(timeout),
        });
        None
    }

    /// Returns when a deadline at `due` is judged.
    pub(crate) fn judged_at(&self, due: Instant) -> Instant {
        self.judgement
            .map_or(due, |judgement| due.max(judgement.from))
    }

    /// Returns when to give the connection up if nothing more comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let limit = match self.silence() {
            Some(_) => self.limits.silence / NodeTimeout::SILENT_TIMEOUTS,
            None => self.limits.silence,
        };
        let silence = self.last_byte.checked_add(limit)?;
        let progress = self.last_reply.checked_add(self.limits.progress)?;
        Some(silence.min(progress))
    }

    /// Calls [`restart`](Self::restart) if this process was stalled until long after `due`. Replies
    /// may have arrived during the stall, and this process has not read them.
    ///
    /// At most one stall is forgiven between two replies. Even a process that is always late must
    /// give up a silent master.
    fn forgive_stall(&mut self, due: Instant, now: Instant) {
        let was_stalled = now.saturating_duration_since(due) >= self.limits.timeout / 2;
        if was_stalled && !self.is_forgiven {
            self.restart(now);
            self.is_forgiven = true;
        }
    }
}
