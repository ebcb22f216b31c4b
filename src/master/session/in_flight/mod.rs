//! The commands of one connection that have no reply yet. Some were sent, and others still wait to
//! be sent.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    listeners::Change,
    liveness::Liveness,
    mailbox::Mailbox,
    owed::{Owed, owed_until},
    request::Request,
    unanswered::{Item, Unanswered},
};
use crate::{
    core::vote::{Failure, Vote},
    master::{config::MasterConfig, health::LastHeard},
};

mod replies;
#[cfg(test)]
mod tests;
mod waiting;

/// The sending half of a connection. Bytes may stay in a buffer until the next poll.
pub(in crate::master) trait Transmit {
    /// Sends a command.
    fn send(&mut self, request: &Request);

    /// Begins or ends a subscription. The master replies with a confirmation or an error, in the
    /// order of sends.
    fn send_change(&mut self, change: &Change);

    /// Asks the master to report the next change of each key that the next command reads. The
    /// master answers this with a reply of its own.
    fn send_caching(&mut self);
}

/// The commands of one connection, in the order of sends. Every command gets a vote by its
/// deadline, whatever the master answers.
///
/// A window limits the number of unanswered commands. The window grows with each reply, so a silent
/// master gets only a few commands. Commands for which the window has no room wait here, in order,
/// for at most one node timeout. Releases that the master is owed wait until they are sent, because
/// the master answers. Their votes wait for up to the connect timeout more. If the master stops
/// answering, the connection is given up.
#[derive(Debug)]
pub(in crate::master) struct InFlight<'a> {
    mailbox: &'a Mailbox,
    config: &'a MasterConfig,
    /// The time when the connection came into use, just after its dial.
    began: Instant,
    liveness: Liveness,
    sent: Unanswered,
    /// The most commands that may be in `sent`.
    window: usize,
    /// The requests that were not sent, oldest first.
    waiting: VecDeque<Arc<Request>>,
    /// The releases that have waited for a node timeout, oldest first. They are sent before the
    /// requests in `waiting`.
    late: VecDeque<Arc<Request>>,
    /// The number of releases at the front of `late` that have a failed vote.
    failed: usize,
    owed: Owed,
    /// The change of the subscription that was not sent.
    change: Option<Change>,
    pub(in crate::master) last_reply: Option<Instant>,
    last_heard: Option<LastHeard>,
    /// Set while the health of the master shows an error.
    is_unfit: bool,
    /// Set once the master has lost all of its keys while the connection lasted.
    pub(in crate::master) is_flushed: bool,
    /// Set if the last poll of the connection has left bytes unread.
    pub(in crate::master) has_unread: bool,
    judgement: Option<Judgement>,
    /// Set once the log has said that a subscription was refused.
    is_denial_logged: bool,
}

impl<'a> InFlight<'a> {
    /// The most unanswered commands of a master that is not busy.
    const FEW: usize = 4;
    /// The first window of a connection.
    pub(in crate::master) const WINDOW: usize = 1_024;
    /// The first window of a connection if the master was silent on the connection before it.
    pub(in crate::master) const CAREFUL_WINDOW: usize = 4;
    /// The largest window. With a round trip of 200 ms, it is enough for 80,000 commands a second.
    const MAX_WINDOW: usize = 16_384;

    pub(in crate::master) fn new(
        mailbox: &'a Mailbox,
        config: &'a MasterConfig,
        round_trip: Duration,
        window: usize,
    ) -> Self {
        let began = (config.now)();
        // If this process was stalled during the dial, the measured time is too long.
        let round_trip = round_trip.min(config.connect_timeout);
        let liveness = Liveness::new(config.node_timeout, round_trip, began);
        Self {
            mailbox,
            config,
            began,
            liveness,
            sent: Unanswered::default(),
            window,
            waiting: VecDeque::new(),
            late: VecDeque::new(),
            failed: 0,
            owed: mailbox.serve(liveness.timeout()),
            change: None,
            last_reply: None,
            last_heard: config.health.last_heard(mailbox.master()),
            is_unfit: config.health.is_unfit(mailbox.master()),
            is_flushed: false,
            has_unread: false,
            judgement: None,
            is_denial_logged: false,
        }
    }

    /// Returns the clock to read when replies come.
    pub(in crate::master) fn clock(&self) -> fn() -> Instant {
        self.config.now
    }

    pub(in crate::master) fn master(&self) -> usize {
        self.mailbox.master()
    }

    /// Returns how long the connection has been in use.
    pub(in crate::master) fn age(&self) -> Duration {
        (self.config.now)().saturating_duration_since(self.began)
    }

    pub(in crate::master) fn is_empty(&self) -> bool {
        self.sent.is_empty() && !self.has_backlog()
    }

    /// Returns whether there is anything to send.
    fn has_backlog(&self) -> bool {
        !self.waiting.is_empty()
            || !self.late.is_empty()
            || !self.owed.is_empty()
            || self.change.is_some()
    }

    /// Sends `change`, owed releases and `requests`, in this order, as far as the window allows.
    /// Keeps the rest for later, and empties the vector.
    pub(in crate::master) fn send(
        &mut self,
        connection: &mut impl Transmit,
        requests: &mut Vec<Arc<Request>>,
        change: Option<Change>,
    ) {
        if requests.is_empty() && change.is_none() && !self.has_backlog() {
            return; // most polls only read replies
        }
        let now = (self.config.now)();
        if change.is_some() {
            self.change = change; // replaces the one that waits, because there is one channel
        }
        if self.has_backlog() {
            self.send_backlog(connection, now);
            self.drop_releases(now);
        }
        for request in requests.drain(..) {
            if self.waiting.is_empty() && self.has_room() {
                self.send_request(connection, request, false, now);
            } else if self.waiting.len() < Self::MAX_WINDOW || request.is_owed_to(self.master()) {
                self.waiting.push_back(request);
            } else {
                self.fail_unsent(&request, now);
            }
        }
        self.mailbox.set_busy(self.sent.len() > Self::FEW);
    }

    /// Sends more commands if replies have made room in the window. Returns whether it sent any.
    pub(in crate::master) fn send_more(&mut self, connection: &mut impl Transmit) -> bool {
        let before = self.sent.len();
        if self.has_backlog() && self.has_room() {
            self.send_backlog(connection, (self.config.now)());
        }
        self.sent.len() > before
    }

    fn send_backlog(&mut self, connection: &mut impl Transmit, now: Instant) {
        while self.has_room()
            && let Some(change) = self.change.take()
        {
            connection.send_change(&change);
            self.push(Item::Change(change.channel), false, now);
        }
        while self.has_room()
            && let Some(release) = self.owed.next(self.master(), now, self.window)
        {
            self.send_request(connection, release, true, now);
        }
        while self.has_room()
            && let Some(request) = self.late.pop_front().or_else(|| self.waiting.pop_front())
        {
            self.failed = self.failed.saturating_sub(1);
            self.send_request(connection, request, false, now);
        }
    }

    fn has_room(&self) -> bool {
        self.sent.len() < self.window
    }

    fn send_request(
        &mut self,
        connection: &mut impl Transmit,
        request: Arc<Request>,
        is_owed: bool,
        now: Instant,
    ) {
        if self.watches(&request) {
            connection.send_caching();
            self.push(Item::Caching, false, now);
        }
        connection.send(&request);
        self.push(Item::Request(request), is_owed, now);
    }

    fn push(&mut self, item: Item, is_owed: bool, now: Instant) {
        if self.sent.is_empty() {
            self.liveness.restart(now);
        }
        let deadline = now + self.liveness.timeout();
        self.sent.push(item, is_owed, now, deadline);
    }

    /// Returns when to call [`expire`](Self::expire) and [`send`](Self::send) next, if no reply and
    /// no request comes before.
    pub(in crate::master) fn next_expiry(&mut self) -> Option<Instant> {
        let next = self.next_deadline()?;
        Some(
            self.judgement
                .map_or(next, |judgement| next.max(judgement.from)),
        )
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        // The deadline of any open vote is earlier than that of the connection.
        let next = self.sent.next_deadline().or_else(|| self.silence_ends());
        if !self.has_backlog() {
            return next;
        }
        let waiting = self.waiting.front().map(|request| self.send_by(request));
        let late = self.late.front();
        let late = late.map(|release| owed_until(release, self.master(), self.config.now));
        let failing = self.late.get(self.failed);
        let failing = failing.map(|release| self.confirmed_by(release));
        let owed = self.owed.next_expiry(self.master(), self.config.now);
        let retry = self.owed.next_send().filter(|_| self.has_room());
        [next, waiting, late, failing, owed, retry]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the time up to which deadlines may be judged, if a deadline at `due` is over.
    ///
    /// Returns `None` when a deadline is found to be over, because replies may have arrived that
    /// were not read. The caller must then wait for a new timer, and read, before it calls this
    /// method again: the runtime looks at its sockets before it fires timers. If the deadline was
    /// noticed late, this process was stalled, and so may have been the masters on the same
    /// machine. Then they get that time again, for at most one node timeout. So do masters that
    /// send faster than this process reads.
    pub(in crate::master) fn judged_until(&mut self, due: Instant) -> Option<Instant> {
        if mutant!(ForgivesNoStall) {
            return Some(due);
        }
        let (now, timeout) = ((self.config.now)(), self.liveness.timeout());
        if let Some(judgement) = self.judgement.take_if(|old| due <= old.from) {
            if now >= judgement.from && (!self.has_unread || now >= judgement.from + timeout) {
                return Some(judgement.until);
            }
            self.judgement = Some(judgement);
            return None;
        }
        self.liveness.forgive_stall(due, now);
        self.judgement = Some(Judgement {
            until: now,
            from: now + now.saturating_duration_since(due).min(timeout),
        });
        None
    }

    /// Casts a failed vote on each request whose deadline is over at `now`. Returns whether the
    /// master has been silent for too long.
    pub(in crate::master) fn expire(&mut self, now: Instant) -> bool {
        let (mailbox, timeout) = (self.mailbox, self.liveness.timeout());
        self.sent.expire(now, |request| {
            mailbox.cast(request, Vote::Fail(Failure::TimedOut(timeout)), now);
        });
        self.sort_waiting(now);
        self.silence_ends().is_some_and(|end| end <= now)
    }

    fn silence_ends(&self) -> Option<Instant> {
        let is_waiting = !self.sent.is_empty();
        is_waiting.then(|| self.liveness.deadline()).flatten()
    }

    /// Gives all requests back to the mailbox after the connection broke.
    pub(in crate::master) fn disconnect(&mut self, why: &Arc<str>) {
        let unsent = Failure::Unreachable(why.clone());
        let unknown = Failure::Disconnected(why.clone());
        self.mailbox
            .down(self.take_unanswered(unknown, unsent), why);
    }

    /// Takes out all requests, each with the vote to cast, or with `None` if its vote has been
    /// cast. The vote is `unknown` for a request that was sent, and `unsent` for any other request.
    fn take_unanswered(
        &mut self,
        unknown: Failure,
        unsent: Failure,
    ) -> impl Iterator<Item = (Arc<Request>, Option<Failure>)> + use<> {
        let sent = self.sent.drain();
        let sent = sent.map(move |(request, is_open)| (request, is_open.then(|| unknown.clone())));
        let failed = mem::take(&mut self.failed);
        let late = mem::take(&mut self.late).into_iter().enumerate();
        let open = unsent.clone();
        let late = late.map(move |(at, release)| (release, (at >= failed).then(|| open.clone())));
        let waiting = mem::take(&mut self.waiting).into_iter();
        let owed = self.owed.drain().map(|release| (release, None));
        let waiting = waiting.map(move |request| (request, Some(unsent.clone())));
        sent.chain(late).chain(waiting).chain(owed)
    }
}

/// A judgement of the deadlines that are over.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    /// The time at which a deadline was found to be over.
    until: Instant,
    /// The time at which all deadlines up to `until` are judged.
    from: Instant,
}

impl Drop for InFlight<'_> {
    /// Casts the open votes. When a runtime drops its tasks, callers on another runtime may still
    /// wait for votes.
    fn drop(&mut self) {
        let now = (self.config.now)();
        for (request, open) in self.take_unanswered(Failure::Closed, Failure::Closed) {
            if let Some(failure) = open {
                self.fail(&request, failure, now);
            }
        }
    }
}
