//! One connection to a master: its unanswered commands, and the rules for giving up the connection.

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use crate::{
    core::{
        config::Config,
        time::{Limits, ResponseTimeout, RoundTrip, Tick},
        vote::Verb,
    },
    machine::out::Request,
};

/// The commands that were sent over one connection, and what the connection has shown of the
/// master.
///
/// A window limits the number of unanswered commands. The window grows with each reply, so a silent
/// master gets no more commands than the first window allows.
pub(crate) struct Link {
    /// The time when the connection came into use, just after its dial.
    pub(crate) began: Tick,
    pub(crate) liveness: Liveness,
    pub(crate) sent: Unanswered,
    /// The largest number of commands that may be in `sent`.
    pub(crate) window: usize,
    pub(crate) has_answered: bool,
    /// Set once the master has reported that all of its keys were deleted or replaced.
    pub(crate) is_flushed: bool,
    /// Set once the log has said that a subscription was refused.
    pub(crate) is_denial_logged: bool,
}

impl Link {
    /// The first window of a connection.
    pub(crate) const WINDOW: usize = 256;
    /// The largest window. With a round trip of 200 ms, it is enough for 80,000 commands a second.
    pub(crate) const MOST_IN_WINDOW: usize = 16_384;

    /// Creates the link of a connection that came into use at `began`. Without a connection, the
    /// window is 0.
    pub(crate) fn new(config: &Config, round_trip: Duration, window: usize, began: Tick) -> Self {
        // If this process was stalled during the dial, the measured time is too long.
        let round_trip = round_trip.min(config.connect_timeout);
        Self {
            began,
            liveness: Liveness::new(config.response_timeout, round_trip, began),
            sent: Unanswered::default(),
            window,
            has_answered: false,
            is_flushed: false,
            is_denial_logged: false,
        }
    }

    /// Notes that `item` was sent at `now`. `is_owed` is set if `item` is a release that was owed
    /// to the master.
    #[inline]
    pub(crate) fn push(&mut self, item: Item, is_owed: bool, now: Tick) {
        if self.sent.is_empty() {
            // Renewals come seconds apart. The silence before a renewal does not count, so that a
            // holder keeps its connection to a master that only stands still for a moment.
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
    #[inline]
    pub(crate) fn pop(&mut self, now: Tick) -> Result<Sent, Arc<str>> {
        let sent = self.sent.pop().ok_or("a reply came without a command")?;
        self.window = (self.window + 1).min(Self::MOST_IN_WINDOW);
        self.has_answered = true;
        self.liveness.restart(now);
        if let Item::Request(_) = &sent.item {
            self.measure(&sent, now);
        }
        Ok(sent)
    }

    /// Measures the reply to `sent`, which came at `now`.
    ///
    /// If this process has not noticed the end of the deadline, it was stalled, and the reply says
    /// nothing about the master. Neither does the reply to a command that was sent twice, or that
    /// has no deadline.
    #[inline]
    fn measure(&mut self, sent: &Sent, now: Tick) {
        if sent.at < self.liveness.measured_at || sent.is_resent || sent.is_owed {
            return;
        }
        let unnoticed = sent.deadline + self.liveness.timeout() / 2;
        let is_stalled = !sent.is_expired && unnoticed <= now;
        if !is_stalled {
            self.liveness.measure(sent.at, now);
        }
    }

    /// Returns whether the connection counts as idle and has no unanswered command.
    pub(crate) fn is_idle(&self, now: Tick) -> bool {
        self.sent.is_empty() && self.liveness.is_idle(now)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.sent.len() < self.window
    }

    /// Returns the earliest deadline of an unanswered command, or of the connection.
    pub(crate) fn next_deadline(&mut self) -> Option<Tick> {
        // Every open vote has an earlier deadline than the connection.
        self.sent.next_deadline().or_else(|| self.silence_ends())
    }

    /// Notes that deadlines up to `now` are over. Returns whether to give the connection up.
    pub(crate) fn is_over(&mut self, now: Tick) -> bool {
        let is_over = |link: &Self| link.silence_ends().is_some_and(|end| end <= now);
        self.liveness.is_silent |= is_over(self);
        is_over(self) // only the silence may be over
    }

    /// Returns whether the master has left commands unanswered for so long that it gets no more
    /// requests.
    pub(crate) fn is_silent(&self) -> bool {
        self.liveness.is_silent && !self.sent.is_empty()
    }

    /// Returns when the master counts as silent if nothing more comes. If it does already, returns
    /// when to give the connection up.
    fn silence_ends(&self) -> Option<Tick> {
        let is_waiting = !self.sent.is_empty();
        is_waiting.then(|| self.liveness.deadline())
    }
}

/// The unanswered commands of one connection, oldest first. Replies come in the same order. A
/// command whose deadline is over gets a failed vote and stays here, because its reply may still
/// come.
#[derive(Default)]
pub(crate) struct Unanswered {
    commands: VecDeque<Sent>,
    /// The number of commands at the front that are known to have their vote.
    expired: usize,
    /// The number of commands that were sent twice. If there are any, deadlines may be out of
    /// order.
    resent: usize,
}

pub(crate) struct Sent {
    pub(crate) item: Item,
    pub(crate) at: Tick,
    deadline: Tick,
    /// Set if the vote has been cast, or if the command has no vote.
    is_expired: bool,
    /// Set if the command is a release that was owed to the master.
    pub(crate) is_owed: bool,
    /// Set if the command was sent a second time, with its script.
    pub(crate) is_resent: bool,
}

pub(crate) enum Item {
    /// The request to report the next change of each key that the next command reads.
    Caching,
    /// The change of a subscription to this channel.
    Subscription(Arc<str>),
    Request(Arc<Request>),
}

impl Unanswered {
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds a command that was sent at `now`. The response timeout begins at `now`, because a stall
    /// of this process before the send is no fault of the master.
    #[inline]
    pub(crate) fn push(&mut self, item: Item, is_owed: bool, now: Tick, deadline: Tick) {
        let latest = self.commands.back().map(|sent| sent.deadline);
        self.commands.push_back(Sent {
            is_expired: is_owed || !matches!(item, Item::Request(_)),
            item,
            at: now,
            // The timeout may have become shorter. Deadlines stay in order because of `max`.
            deadline: latest.map_or(deadline, |latest| latest.max(deadline)),
            is_owed,
            is_resent: false,
        });
    }

    pub(crate) fn oldest(&self) -> Option<&Item> {
        self.commands.front().map(|sent| &sent.item)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Sent> {
        let sent = self.commands.pop_front()?;
        self.expired = self.expired.saturating_sub(1);
        self.resent -= usize::from(sent.is_resent);
        Some(sent)
    }

    /// Moves the oldest command to the end and returns it, if it may be sent again. Each command
    /// may be sent at most twice. A command that takes a lock must not be sent again after the
    /// command that gives the lock back. The lock would otherwise stay taken.
    pub(crate) fn resend(&mut self, reports_changes: bool) -> Option<Arc<Request>> {
        /// The largest number of commands that are searched for the command that gives the lock
        /// back.
        const MOST: usize = 1_024;
        let mut commands = self.commands.iter();
        let oldest = commands.next()?;
        let Item::Request(request) = &oldest.item else {
            return None;
        };
        let undoes = |sent: &Sent| match &sent.item {
            Item::Request(later) => later.command.undoes(&request.command),
            Item::Subscription(_) | Item::Caching => false,
        };
        let takes = request.command.is_acquisition();
        if oldest.is_resent || takes && (self.len() > MOST || commands.any(undoes)) {
            return None;
        }
        let request = request.clone();
        let sent = self.pop()?;
        if request.command.watch && reports_changes {
            self.push(Item::Caching, false, sent.at, sent.deadline);
        }
        self.resent += 1;
        self.commands.push_back(Sent {
            is_resent: true,
            ..sent
        });
        Some(request)
    }

    /// Returns the earliest deadline of an open vote.
    pub(crate) fn next_deadline(&mut self) -> Option<Tick> {
        while self
            .commands
            .get(self.expired)
            .is_some_and(|sent| sent.is_expired)
        {
            self.expired += 1;
        }
        if self.resent == 0 {
            return self.commands.get(self.expired).map(|sent| sent.deadline);
        }
        let open = self.commands.iter().filter(|sent| !sent.is_expired);
        open.map(|sent| sent.deadline).min()
    }

    /// Calls `give_up` with each request that has an open vote and whose deadline is over at `now`,
    /// and with the time that it had. After that, the vote is no longer open.
    pub(crate) fn expire(&mut self, now: Tick, mut give_up: impl FnMut(&Request, Duration)) {
        let first = self.expired.min(self.commands.len());
        for sent in self.commands.range_mut(first..) {
            let is_over = sent.is_expired || sent.deadline <= now;
            if !is_over && self.resent == 0 {
                return; // deadlines are in order
            }
            if is_over
                && !mem::replace(&mut sent.is_expired, true)
                && let Item::Request(request) = &sent.item
            {
                give_up(request, sent.deadline.since(sent.at));
            }
        }
    }

    /// Takes out all requests. Each comes with a flag that is `true` if its vote is open.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Arc<Request>, bool)> + use<> {
        (self.expired, self.resent) = (0, 0);
        let commands = mem::take(&mut self.commands).into_iter();
        commands.filter_map(|sent| match sent.item {
            Item::Request(request) => Some((request, !sent.is_expired)),
            Item::Subscription(_) | Item::Caching => None,
        })
    }
}

/// The time limits of a connection, and the times from which the silence of its master counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    response_timeout: ResponseTimeout,
    round_trip: RoundTrip,
    /// Only the reply to a command that was sent after this time is measured. It is the time of the
    /// last measurement, so that many commands in flight are measured once, or of a stall.
    measured_at: Tick,
    limits: Limits,
    /// The time when the last byte came. A later send replaces this time if no other command was
    /// unanswered.
    last_byte: Tick,
    /// The time when the last whole reply came. A send that replaces `last_byte` also replaces it.
    last_reply: Tick,
    /// How long no byte had come when the oldest unanswered command was sent. Cleared by the next
    /// byte.
    silence: Duration,
    /// Set when a stall of this process is forgiven. Cleared by the next
    /// [`restart`](Self::restart).
    is_forgiven: bool,
    /// Set once the master has been silent for too long. Cleared by the next byte.
    is_silent: bool,
    /// Set if the last poll of the connection has left bytes unread.
    pub(crate) has_unread: bool,
    judgement: Option<Judgement>,
}

/// A judgement of the deadlines that are over.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    /// The time at which a deadline was found to be over.
    until: Tick,
    /// The time at which all deadlines up to `until` are judged.
    from: Tick,
}

impl Liveness {
    /// A connection counts as idle once no byte has come for this time. Something between this
    /// program and the master may have forgotten such a connection, or the end of the stream may
    /// have come while this process was frozen.
    const IDLE: Duration = Duration::from_secs(1);

    pub(crate) fn new(response_timeout: ResponseTimeout, round_trip: Duration, now: Tick) -> Self {
        let round_trip = RoundTrip::first(round_trip);
        Self {
            response_timeout,
            round_trip,
            measured_at: now,
            limits: response_timeout.limits(round_trip),
            last_byte: now,
            last_reply: now,
            silence: Duration::ZERO,
            is_forgiven: false,
            is_silent: false,
            has_unread: false,
            judgement: None,
        }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.limits.timeout
    }

    /// Notes that a command is sent while no other is unanswered.
    pub(crate) fn begin(&mut self, now: Tick) {
        let silence = now.since(self.last_byte);
        self.restart(now);
        self.silence = silence;
    }

    /// Notes that a whole reply came, or that a command is sent for which earlier silence does not
    /// count.
    pub(crate) fn restart(&mut self, now: Tick) {
        (self.last_byte, self.last_reply) = (now, now);
        self.silence = Duration::ZERO;
        (self.is_forgiven, self.is_silent) = (false, false);
    }

    /// Notes that bytes came, even if they do not complete a reply.
    pub(crate) fn on_bytes(&mut self, now: Tick) {
        self.last_byte = now;
        self.silence = Duration::ZERO;
        self.is_silent = false;
    }

    /// Returns whether no byte has come for so long that the connection counts as idle.
    pub(crate) fn is_idle(&self, now: Tick) -> bool {
        now.since(self.last_byte) >= Self::IDLE
    }

    /// Returns how long the connection was silent before the oldest unanswered command, if it
    /// counted as idle then and is still silent.
    pub(crate) fn silence(&self) -> Option<Duration> {
        (self.silence >= Self::IDLE).then_some(self.silence)
    }

    /// Measures a reply that came at `now`, to a command that was sent at `sent`.
    fn measure(&mut self, sent: Tick, now: Tick) {
        self.measured_at = now;
        self.round_trip.add(now.since(sent));
        self.limits = self.response_timeout.limits(self.round_trip);
    }

    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip.smoothed()
    }

    /// Returns the time up to which deadlines may be judged, if a deadline at `due` is over at
    /// `now`.
    ///
    /// Returns `None` when a deadline is first found to be over, because replies may have arrived
    /// that were not read. The caller must then wait for a new timer, and read, before it calls
    /// this method again: the runtime looks at its sockets before it fires timers. If the deadline
    /// was noticed late, this process was stalled, and masters on the same machine may have been
    /// stalled, too. Then the masters get the delay as extra time, at most one response timeout.
    /// Masters that send faster than this process reads get up to one response timeout more.
    pub(crate) fn judge_deadline(&mut self, due: Tick, now: Tick) -> Option<Tick> {
        let timeout = self.timeout();
        if let Some(judgement) = self.judgement.take_if(|old| due <= old.from) {
            if now >= judgement.from && (!self.has_unread || now >= judgement.from + timeout) {
                return Some(judgement.until);
            }
            self.judgement = Some(judgement);
            return None;
        }
        self.forgive_stall(due, now);
        self.judgement = Some(Judgement {
            until: now,
            from: now + now.since(due).min(timeout),
        });
        None
    }

    pub(crate) fn judged_at(&self, due: Tick) -> Tick {
        self.judgement
            .map_or(due, |judgement| due.max(judgement.from))
    }

    /// Returns when the master counts as silent if nothing more comes. If it does already, returns
    /// when to give the connection up.
    fn deadline(&self) -> Tick {
        let limit = match self.silence() {
            Some(_) => self.limits.silence / ResponseTimeout::SILENT_TIMEOUTS,
            None if self.is_silent => self.limits.end,
            None => self.limits.silence,
        };
        (self.last_byte + limit).min(self.last_reply + self.limits.progress)
    }

    /// Calls [`restart`](Self::restart) if this process was stalled until long after `due`. Replies
    /// may have arrived during the stall, and this process has not read them.
    ///
    /// At most one stall is forgiven between two replies. Even a process that is always late must
    /// give up a silent master.
    fn forgive_stall(&mut self, due: Tick, now: Tick) {
        let was_stalled = now.since(due) >= self.limits.timeout / 2;
        if was_stalled {
            self.measured_at = now;
        }
        if was_stalled && !self.is_forgiven {
            self.restart(now);
            self.is_forgiven = true;
        }
    }
}
