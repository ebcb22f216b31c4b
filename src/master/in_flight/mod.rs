//! What a master was sent and has not answered, and what waits to be sent.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    ChannelEvent, Mailbox, MasterConfig, Request,
    liveness::Liveness,
    mailbox::Change,
    owed::Owed,
    supervisor::Connection,
    unanswered::{Sent, Unanswered, What},
};
use crate::{
    core::{
        command::Reply,
        quorum::{Failure, Vote},
        timeout::Limits,
    },
    user_code::shielded,
};

/// The commands of one connection, in the order of the wire. Every one of them gets a vote by its
/// deadline, whatever the master answers.
///
/// A window bounds how many commands are unanswered: it grows with each answer, so that a master
/// that does not answer is not sent much. The rest waits here, in order, for one node timeout at
/// most.
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    mailbox: &'a Mailbox,
    terms: &'a MasterConfig,
    /// When the connection began to serve.
    began: Instant,
    /// The fastest answer, which the limits follow.
    round_trip: Duration,
    limits: Limits,
    /// A faster answer would shrink the limits.
    is_far: bool,
    sent: Unanswered,
    /// How many commands `sent` may hold.
    window: usize,
    /// Posted and not sent, oldest first.
    waiting: VecDeque<Arc<Request>>,
    owed: Owed,
    /// Changes of subscriptions that were not sent.
    changes: VecDeque<Change>,
    liveness: Liveness,
    /// When the last answer was there.
    pub(super) heard: Option<Instant>,
    /// A subscription was refused, and the log says so.
    is_deaf: bool,
}

impl<'a> InFlight<'a> {
    /// The window of a new connection, and the one after a master did not answer on the last one.
    pub(super) const WINDOW: usize = 1_024;
    pub(super) const CAREFUL_WINDOW: usize = 4;
    /// The most commands in flight: what a master 200 ms away answers at 80,000 a second.
    const MOST: usize = 16_384;

    pub(super) fn new(
        mailbox: &'a Mailbox,
        terms: &'a MasterConfig,
        round_trip: Duration,
        window: usize,
    ) -> Self {
        let began = (terms.now)();
        let limits = terms.node_timeout.limits(round_trip);
        let is_far = limits != terms.node_timeout.limits(Duration::ZERO);
        Self {
            mailbox,
            terms,
            began,
            round_trip,
            limits,
            is_far,
            sent: Unanswered::new(began),
            window,
            waiting: VecDeque::new(),
            owed: mailbox.serve(limits.timeout),
            changes: VecDeque::new(),
            liveness: Liveness::since(began),
            heard: None,
            is_deaf: false,
        }
    }

    /// The clock to read when replies come in.
    pub(super) fn clock(&self) -> fn() -> Instant {
        self.terms.now
    }

    pub(super) fn master(&self) -> usize {
        self.mailbox.master()
    }

    /// Returns how long the connection has served.
    pub(super) fn age(&self) -> Duration {
        (self.terms.now)().saturating_duration_since(self.began)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && !self.has_backlog()
    }

    /// Whether anything is still to be sent.
    fn has_backlog(&self) -> bool {
        !self.waiting.is_empty() || !self.owed.is_empty() || !self.changes.is_empty()
    }

    /// Sends what is owed and what was posted, in order, as far as the window allows.
    pub(super) fn send(
        &mut self,
        connection: &mut impl Connection,
        asks: &mut Vec<Arc<Request>>,
        changes: &mut Vec<Change>,
    ) {
        if asks.is_empty() && changes.is_empty() && !self.has_backlog() {
            return; // most polls are for a reply
        }
        let now = (self.terms.now)();
        for change in changes.drain(..) {
            // Only the last change of a channel counts, of those that wait.
            self.changes
                .retain(|earlier| earlier.channel != change.channel);
            self.changes.push_back(change);
        }
        if self.has_backlog() {
            self.send_waiting(connection, now);
        }
        for ask in asks.drain(..) {
            if self.waiting.is_empty() && self.has_room() {
                self.send_one(connection, ask, now);
            } else if self.waiting.len() < Self::MOST
                || ask.counter.owed_until(self.master()).is_some()
            {
                self.waiting.push_back(ask);
            } else {
                self.fail_unsent(ask, now);
            }
        }
    }

    /// Sends more where answers have made room. Returns whether there was something to send.
    pub(super) fn send_more(&mut self, connection: &mut impl Connection) -> bool {
        if !self.has_backlog() || !self.has_room() {
            return false;
        }
        let before = self.sent.len();
        self.send_waiting(connection, (self.terms.now)());
        self.sent.len() > before
    }

    fn send_waiting(&mut self, connection: &mut impl Connection, now: Instant) {
        while self.has_room()
            && let Some(Change { channel, listen }) = self.changes.pop_front()
        {
            connection.listen(&channel, listen);
            self.push(What::Change(channel), false, now);
        }
        while self.has_room()
            && let Some(release) = self.owed.next(self.master(), now, self.window)
        {
            connection.send(&release, self.master());
            self.push(What::Request(release), true, now);
        }
        while self.has_room()
            && let Some(ask) = self.waiting.pop_front()
        {
            if self.send_by(&ask) > now {
                self.send_one(connection, ask, now);
            } else {
                self.fail_unsent(ask, now);
            }
        }
    }

    fn has_room(&self) -> bool {
        self.sent.len() < self.window
    }

    fn send_one(&mut self, connection: &mut impl Connection, ask: Arc<Request>, now: Instant) {
        connection.send(&ask, self.master());
        self.push(What::Request(ask), false, now);
    }

    fn push(&mut self, what: What, is_owed: bool, now: Instant) {
        if self.sent.is_empty() {
            self.liveness = Liveness::since(now);
        }
        self.sent
            .push(what, is_owed, now, now + self.limits.timeout);
    }

    /// When a command that waits is given up. After the first dial the time starts again.
    fn send_by(&self, ask: &Request) -> Instant {
        ask.posted.max(self.began) + self.limits.timeout
    }

    /// Casts the vote of a command that was never sent.
    fn fail_unsent(&mut self, ask: Arc<Request>, now: Instant) {
        let master = self.master();
        let why = "not sent: too many commands are unanswered";
        let failure = Failure::Unreachable(why.into());
        ask.counter.count(master, Vote::Fail(failure), now);
        if ask.counter.owed_until(master).is_some() {
            self.owed.push(ask);
        }
    }

    /// Notes that bytes came in, whatever they are.
    #[cfg(feature = "redis")]
    pub(super) fn on_bytes(&mut self, now: Instant) {
        self.liveness.on_bytes(now);
    }

    /// Casts the vote that `reply` to the oldest command means. An error when nothing was asked.
    /// `now` was read after the reply was there.
    pub(super) fn answer(&mut self, reply: &Reply<'_>, now: Instant) -> Result<(), Arc<str>> {
        let sent = self.pop(now)?;
        let ask = match (sent.what, reply) {
            (What::Request(ask), _) => ask,
            (What::Change(channel), Reply::Error(error)) => {
                if !self.is_deaf {
                    self.is_deaf = true;
                    let master = self.mailbox.address();
                    shielded(|| {
                        tracing::warn!(%master, %error, "cannot subscribe: releases are noticed by polling");
                    });
                }
                self.mailbox.hear(&channel, ChannelEvent::Denied);
                return Ok(());
            }
            (What::Change(_), _) => {
                return Err("a reply where a subscription was to be confirmed".into());
            }
        };
        if self.is_far && !sent.is_resent {
            self.measure(now.saturating_duration_since(sent.at));
        }
        let master = self.master();
        if let Reply::Text(text) = reply {
            ask.counter.note(master, text);
        }
        let vote = ask.command.vote(reply);
        if matches!(vote, Vote::Fail(_)) && ask.counter.owed_until(master).is_some() {
            let random = (self.terms.random)();
            self.owed.failed(ask.clone(), sent.is_owed, now, random);
        } else {
            self.owed.succeeded(sent.is_owed);
        }
        ask.counter.count(master, vote, now);
        Ok(())
    }

    /// The oldest command, a change of subscriptions, is confirmed.
    pub(super) fn confirmed(&mut self, channel: &str, now: Instant) -> Result<(), Arc<str>> {
        // Looked at before it is removed: a command must keep its place until it has its vote.
        match self.sent.oldest() {
            Some(What::Change(changed)) if **changed == *channel => {}
            _ => return Err("a subscription was confirmed that was not next".into()),
        }
        self.pop(now)?;
        self.mailbox.hear(channel, ChannelEvent::Subscribed);
        Ok(())
    }

    /// A message came that nobody asked for just now.
    pub(super) fn message(&self, channel: &str, message: &str) {
        self.mailbox.hear(channel, ChannelEvent::Message(message));
    }

    /// Returns the oldest command, which a server without its script has not executed, if it may be
    /// sent once more. It is then the newest.
    #[cfg(feature = "redis")]
    pub(super) fn again(&mut self, now: Instant) -> Option<&Request> {
        self.liveness.on_reply(now);
        self.sent.again()
    }

    fn pop(&mut self, now: Instant) -> Result<Sent, Arc<str>> {
        let sent = self.sent.pop().ok_or("a reply to nothing")?;
        self.window = (self.window + 1).min(Self::MOST);
        self.heard = Some(now);
        self.liveness.on_reply(now);
        Ok(sent)
    }

    /// Lets the limits follow the fastest answer. A slower one may have waited for others.
    fn measure(&mut self, round_trip: Duration) {
        if round_trip < self.round_trip {
            self.round_trip = round_trip;
            self.limits = self.terms.node_timeout.limits(round_trip);
            self.is_far = self.limits != self.terms.node_timeout.limits(Duration::ZERO);
            self.mailbox.set_timeout(self.limits.timeout);
        }
    }

    /// When to call [`expire`](Self::expire), [`is_stuck`](Self::is_stuck) or
    /// [`send`](Self::send) next, if nothing comes in.
    pub(super) fn next_expiry(&mut self) -> Option<Instant> {
        // While votes are open their deadlines are soon enough for all.
        let next = self.sent.next_deadline();
        let next = next.or_else(|| self.end_of_patience());
        if !self.has_backlog() {
            return next;
        }
        let waiting = self.waiting.front().map(|ask| self.send_by(ask));
        let owed = self.owed.next_expiry(self.master(), self.terms.now);
        let retry = self.owed.next_send().filter(|_| self.has_room());
        [next, waiting, owed, retry].into_iter().flatten().min()
    }

    /// Casts the votes whose deadline is over, and forgets what is no longer owed.
    pub(super) fn expire(&mut self, now: Instant) {
        let (master, timeout) = (self.master(), self.limits.timeout);
        self.sent.expire(now, |ask| {
            let failure = Failure::TimedOut(timeout);
            ask.counter.count(master, Vote::Fail(failure), now);
        });
        while let Some(ask) = self.waiting.front()
            && self.send_by(ask) <= now
            && let Some(ask) = self.waiting.pop_front()
        {
            self.fail_unsent(ask, now);
        }
        let (gone, is_news) = self.owed.expire(master, now);
        drop(gone);
        if is_news {
            self.mailbox.say_given_up();
        }
    }

    /// Whether this process was stalled until long after `due`, so that answers may be there that
    /// were not read. They get a chance to be read before anything is given up, once per reply.
    pub(super) fn forgives(&mut self, due: Instant) -> bool {
        let now = (self.terms.now)();
        let was_stalled = now.saturating_duration_since(due) >= self.limits.timeout / 2;
        was_stalled && self.liveness.forgive(now)
    }

    /// Whether the master has been silent for too long at `now`.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.end_of_patience().is_some_and(|end| end <= now)
    }

    fn end_of_patience(&self) -> Option<Instant> {
        let is_waiting = !self.sent.is_empty();
        is_waiting.then(|| self.liveness.end(self.limits)).flatten()
    }

    /// Takes what was sent without an answer and what was not sent, with what its vote is if that
    /// is still open.
    pub(super) fn take_unanswered(
        &mut self,
        unknown: Failure,
        unsent: Failure,
    ) -> impl Iterator<Item = (Arc<Request>, Option<Failure>)> + use<> {
        let sent = self.sent.drain();
        let sent = sent.map(move |(ask, is_open)| (ask, is_open.then(|| unknown.clone())));
        let waiting = mem::take(&mut self.waiting).into_iter();
        let owed = self.owed.drain().map(|release| (release, None));
        sent.chain(waiting.map(move |ask| (ask, Some(unsent.clone()))))
            .chain(owed)
    }
}

impl Drop for InFlight<'_> {
    /// When a runtime ends its tasks, callers on another one may still wait.
    fn drop(&mut self) {
        let master = self.master();
        let now = (self.clock())();
        for (ask, open) in self.take_unanswered(Failure::Closed, Failure::Closed) {
            if let Some(failure) = open {
                ask.counter.count(master, Vote::Fail(failure), now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
