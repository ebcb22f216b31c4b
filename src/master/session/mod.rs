//! The session with one master: the commands for it, and the connections that carry them.

use std::{collections::VecDeque, mem, sync::Arc, task::Context, time::Duration};

use self::{
    link::{Item, Link},
    listeners::Subscription,
    mailbox::{Mailbox, Posts},
    owed::{Owed, is_owed},
    request::Request,
};
use super::{config::MasterConfig, observer::MasterEvent};
use crate::{
    clock,
    core::{
        restart::{DataLoss, Sign},
        time::{rounded, tick::Tick},
        vote::{Failure, Vote},
    },
    panics::shielded,
};

pub(crate) mod link;
pub(crate) mod listeners;
pub(crate) mod mailbox;
pub(crate) mod owed;
mod replies;
pub(crate) mod request;
#[cfg(test)]
mod tests;

/// The sending half of a connection. Bytes may stay in a buffer until the next poll.
pub(crate) trait Transmit {
    /// Sends a command.
    fn send(&mut self, request: &Request);

    /// Begins or ends a subscription. The master replies with a confirmation or an error, in the
    /// order of sends.
    fn send_change(&mut self, change: &Subscription);

    /// Asks the master to report the next change of each key that the next command reads. The
    /// master answers this with a separate reply.
    fn send_caching(&mut self);

    /// Returns whether something has arrived that was not read, such as the end of the stream. If
    /// so, the task that polls the connection is woken.
    fn has_input(&self) -> bool;
}

/// The commands for one master, from the post to the vote. A session lasts as long as its
/// supervisor, and has at most one connection at a time.
///
/// Every command gets a vote by its deadline, whatever the master answers. Commands for which the
/// window of the connection has no room wait here, in order, for at most one node timeout. Commands
/// also wait for up to one node timeout during the first dial after a connection that worked.
/// [`Owed`] releases wait until they are sent, but get a failed vote if they wait for longer than
/// one node timeout and one connect timeout. If the master stops answering, the connection is given
/// up, and these releases wait for the next connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) config: MasterConfig,
    posts: Posts,
    /// The releases that have their votes and must still be sent.
    owed: Owed,
    /// The releases that could not be sent within a node timeout, oldest first. They are sent
    /// before the requests in `posts`.
    late: VecDeque<Arc<Request>>,
    /// The end of the quarantine, if there is one.
    quarantined_until: Option<Tick>,
    /// The current connection. If there is none, this is what is left of the last one.
    pub(crate) link: Link,
}

impl Session {
    /// A master with more unanswered commands than this counts as busy.
    const FEW: usize = 4;
    /// The largest number of requests that wait for room, apart from owed releases.
    const MOST_WAITING: usize = Link::MOST_IN_WINDOW;

    pub(crate) fn new(mailbox: Arc<Mailbox>, config: MasterConfig) -> Self {
        Self {
            posts: Posts::default(),
            owed: Owed::default(),
            late: VecDeque::new(),
            quarantined_until: None,
            link: Link::new(&config, mailbox.master(), Duration::ZERO, 0),
            mailbox,
            config,
        }
    }

    /// Notes that a dial has made a connection. The dial has measured `round_trip`, and `loss` is
    /// the loss of data that it found. `window` is the first window.
    pub(crate) fn connect(
        &mut self,
        round_trip: Duration,
        loss: Option<DataLoss>,
        reports_changes: bool,
        window: usize,
    ) {
        self.quarantine(loss);
        let (mailbox, config) = (&self.mailbox, &self.config);
        let until = self.quarantined_until;
        config.health.connected(mailbox.master(), round_trip, until);
        self.link = Link::new(config, mailbox.master(), round_trip, window);
        mailbox.up(self.link.liveness.timeout());
        self.set_reports_changes(reports_changes);
    }

    /// Notes that the connection is gone, and that a dial follows at once. Casts the open votes on
    /// what was sent, and on late releases. Other requests that were not sent wait for the dial.
    pub(crate) fn interrupt(&mut self, why: &Arc<str>) {
        self.owed.disconnect();
        self.mailbox.interrupt();
        self.posts.change = None; // the next connection subscribes anew
        let unknown = Failure::Disconnected(why.clone());
        for request in self.give_up_old(&unknown, &Failure::Unreachable(why.clone())) {
            self.owe(request);
        }
        self.mailbox.tell_all_keys();
    }

    /// Notes that there is no connection. Casts all open votes, and keeps the releases that the
    /// master is owed.
    pub(crate) fn disconnect(&mut self, why: &Arc<str>) {
        self.owed.disconnect();
        let unknown = Failure::Disconnected(why.clone());
        // The votes are cast first, because they may decide which releases are owed.
        for request in self.give_up(&unknown, &Failure::Unreachable(why.clone())) {
            self.owe(request);
        }
        if self.mailbox.node_timeout().is_none() {
            let least = self.config.node_timeout.least();
            self.mailbox.set_node_timeout(least);
        }
    }

    /// Takes over what was posted. The next post wakes `cx`. Returns whether nothing more will be
    /// posted.
    pub(crate) fn take(&mut self, cx: &Context<'_>) -> bool {
        let before = self.posts.requests.len();
        let is_abandoned = self.mailbox.take(cx, &mut self.posts);
        if self.posts.requests.len() > Self::MOST_WAITING {
            let newest = before.max(Self::MOST_WAITING);
            for request in self.posts.requests.split_off(newest) {
                if request.is_owed_to(self.master()) {
                    self.posts.requests.push_back(request);
                } else {
                    self.fail_unsent(&request, clock::monotonic());
                }
            }
        }
        while let Some(release) = self.posts.failed.pop_front() {
            self.owe(release);
        }
        is_abandoned
    }

    /// Called while there is no connection. Drops the releases that the master is no longer owed.
    /// Gives up the requests that have waited for a node timeout, except during the very first
    /// dial. Returns when to call this method again.
    pub(crate) fn expire_unconnected(&mut self) -> Option<Tick> {
        let master = self.master();
        let mut next = None;
        if self.mailbox.node_timeout().is_some() {
            while let Some(request) = self.next_overdue(clock::monotonic()) {
                let why = format!(
                    "its connection ended, and no new one was there in {:?}",
                    rounded(self.link.liveness.timeout())
                );
                self.fail(
                    &request,
                    Failure::Unreachable(why.into()),
                    clock::monotonic(),
                );
                self.owe(request);
            }
            let oldest = self.posts.requests.front();
            next = oldest.map(|request| self.send_by(request));
        }
        self.owed.expire(master, clock::monotonic());
        let owed = self.owed.next_wake(master);
        next.into_iter().chain(owed).min()
    }

    /// Sends as much as the window allows: the change of the subscription, owed releases, late
    /// releases and requests, in this order. Returns whether it sent anything.
    pub(crate) fn send(&mut self, connection: &mut impl Transmit) -> bool {
        if !self.has_backlog() {
            return false; // most polls only read replies
        }
        let (now, before) = (clock::monotonic(), self.link.sent.len());
        if self.link.is_silent() {
            self.fail_waiting(now);
        }
        if self.link.is_idle(now) && connection.has_input() {
            return false; // the connection may have ended, so it is read first
        }
        if self.link.has_room()
            && let Some(change) = self.posts.change.take()
        {
            connection.send_change(&change);
            self.link
                .push(Item::Subscription(change.channel), false, now);
        }
        while self.link.has_room()
            && !self.owed.is_empty()
            && let Some(release) = self.owed.next(self.master(), now, self.link.window)
        {
            self.send_request(connection, release, true, now);
        }
        while self.link.has_room()
            && let Some(request) = self.next_request()
        {
            match self.quarantine_left(now) {
                Some(remaining) if request.command.verb().quarantine_applies() => {
                    self.fail(&request, Failure::Quarantined { remaining }, now);
                }
                _ => self.send_request(connection, request, false, now),
            }
        }
        self.owed.expire(self.master(), now);
        self.mailbox.set_busy(self.link.sent.len() > Self::FEW);
        self.link.sent.len() > before
    }

    /// Returns when to send, to end the quarantine or to call [`expire`](Self::expire) next, if no
    /// post and no reply comes first.
    pub(crate) fn next_wake(&mut self) -> Option<Tick> {
        let mut next = self.link.next_deadline();
        if self.has_backlog() {
            next = next.into_iter().chain(self.next_of_backlog()).min();
        }
        let next = next.map(|at| self.link.liveness.judged_at(at));
        next.into_iter().chain(self.quarantined_until).min()
    }

    /// Judges a deadline at `due` that is over. Returns the time up to which deadlines may be
    /// judged: see [`Liveness`](link::Liveness::judge_deadline).
    pub(crate) fn judge_deadline(&mut self, due: Tick) -> Option<Tick> {
        let (now, has_unread) = (clock::monotonic(), self.link.has_unread);
        self.link.liveness.judge_deadline(due, now, has_unread)
    }

    /// Casts a failed vote on each request whose deadline is over at `now`. Returns whether the
    /// master has been silent for too long.
    pub(crate) fn expire(&mut self, now: Tick) -> bool {
        let (mailbox, liveness) = (&self.mailbox, &self.link.liveness);
        let (round_trip, silence) = (liveness.round_trip(), liveness.silence());
        self.link.sent.expire(now, |request, after| {
            let late = Failure::TimedOut {
                after,
                round_trip,
                silence,
            };
            mailbox.cast(request, Vote::Fail(late), now);
        });
        while let Some(release) = self.late.front()
            && self.confirmed_by(release) <= now
            && let Some(release) = self.late.pop_front()
        {
            self.fail_unsent(&release, now);
            self.owe(release);
        }
        while let Some(request) = self.next_overdue(now) {
            if is_owed(&request, self.master(), now) {
                self.late.push_back(request);
            } else {
                self.fail_unsent(&request, now);
            }
        }
        self.link.is_over(now)
    }

    /// Returns whether every command has been delivered.
    pub(crate) fn is_empty(&self) -> bool {
        self.link.sent.is_empty() && !self.has_backlog()
    }

    fn master(&self) -> usize {
        self.mailbox.master()
    }

    /// Returns whether there is anything to send.
    fn has_backlog(&self) -> bool {
        !self.posts.requests.is_empty()
            || !self.late.is_empty()
            || !self.owed.is_empty()
            || self.posts.change.is_some()
    }

    /// Fails the requests that wait, but for releases that must be sent.
    fn fail_waiting(&mut self, now: Tick) {
        let why: Arc<str> = "it has left earlier commands unanswered for too long".into();
        for request in mem::take(&mut self.posts.requests) {
            if request.is_owed_to(self.master()) {
                self.posts.requests.push_back(request);
            } else {
                self.fail(&request, Failure::Unreachable(why.clone()), now);
            }
        }
    }

    /// Takes out the next request to send after the owed releases.
    fn next_request(&mut self) -> Option<Arc<Request>> {
        let late = self.late.pop_front();
        late.or_else(|| self.posts.requests.pop_front())
    }

    /// Takes out the oldest request, if it has waited for too long at `now`.
    fn next_overdue(&mut self, now: Tick) -> Option<Arc<Request>> {
        let oldest = self.posts.requests.front()?;
        let is_overdue = self.send_by(oldest) <= now;
        is_overdue.then(|| self.posts.requests.pop_front())?
    }

    fn send_request(
        &mut self,
        connection: &mut impl Transmit,
        request: Arc<Request>,
        is_owed: bool,
        now: Tick,
    ) {
        if self.watches(&request) {
            connection.send_caching();
            self.link.push(Item::Caching, false, now);
        }
        connection.send(&request);
        self.link.push(Item::Request(request), is_owed, now);
    }

    fn next_of_backlog(&self) -> Option<Tick> {
        let waiting = self.posts.requests.front();
        let waiting = waiting.map(|request| self.send_by(request));
        let late = self.late.front();
        let late = late.map(|release| self.confirmed_by(release));
        let owed = self.owed.next_wake(self.master());
        let retry = self.owed.next_send().filter(|_| self.link.has_room());
        [waiting, late, owed, retry].into_iter().flatten().min()
    }

    /// Returns when a waiting `request` is given up: one node timeout after its post, or after the
    /// connection came into use if that was later.
    fn send_by(&self, request: &Request) -> Tick {
        request.posted.max(self.link.began) + self.link.liveness.timeout()
    }

    /// Returns when a late `release` gets a failed vote, so that its caller can go on. The release
    /// itself still waits to be sent.
    fn confirmed_by(&self, release: &Request) -> Tick {
        self.send_by(release) + self.config.connect_timeout
    }

    /// Keeps `request` if it is a release that the master is owed.
    fn owe(&mut self, request: Arc<Request>) {
        if request.is_owed_to(self.master()) && self.owed.push(request) {
            self.mailbox.observer().on(MasterEvent::ReleasesGivenUp);
        }
    }

    /// Casts all open votes, and makes later requests fail at once with `unsent`. Requests that
    /// were sent fail with `unknown`. Returns all requests, because some may be owed releases.
    fn give_up(&mut self, unknown: &Failure, unsent: &Failure) -> Vec<Arc<Request>> {
        self.mailbox.down(unsent.clone(), &mut self.posts);
        let mut given_up = self.give_up_old(unknown, unsent);
        let (now, posts) = (clock::monotonic(), mem::take(&mut self.posts));
        for request in posts.requests {
            self.fail(&request, unsent.clone(), now);
            given_up.push(request);
        }
        given_up.extend(posts.failed);
        self.mailbox.tell_all_keys();
        given_up
    }

    /// Casts the open votes on the requests that were sent, with `unknown`, and on the late
    /// releases, with `unsent`. Returns these requests.
    fn give_up_old(&mut self, unknown: &Failure, unsent: &Failure) -> Vec<Arc<Request>> {
        let now = clock::monotonic();
        let mut given_up = Vec::new();
        for (request, is_open) in self.link.sent.drain() {
            if is_open {
                self.fail(&request, unknown.clone(), now);
            }
            given_up.push(request);
        }
        for release in mem::take(&mut self.late) {
            self.fail(&release, unsent.clone(), now);
            given_up.push(release);
        }
        given_up
    }

    fn fail(&self, request: &Request, failure: Failure, now: Tick) {
        self.mailbox.cast(request, Vote::Fail(failure), now);
    }

    /// Casts a failed vote on a request that was not sent, because it has waited for too long, or
    /// because too many requests wait already.
    fn fail_unsent(&self, request: &Request, now: Tick) {
        let why = "not sent: too many commands are unanswered";
        self.fail(request, Failure::Unreachable(why.into()), now);
    }
}

/// The quarantine of the master: its beginning, its end and the time that is left. It goes on while
/// the master is down.
impl Session {
    /// Notes that there is a connection. `loss` is the loss of data that its dial found.
    fn quarantine(&mut self, loss: Option<DataLoss>) {
        let now = clock::monotonic();
        self.quarantined_until.take_if(|until| *until <= now);
        if let Some(loss) = loss {
            self.begin_quarantine(loss, now);
        }
    }

    /// Ends the quarantine, if it is over at `now`, and reports this. Returns whether it ended now.
    pub(crate) fn end_quarantine(&mut self, now: Tick) -> bool {
        let end = self.quarantined_until.take_if(|until| *until <= now);
        if end.is_some() {
            self.mailbox.observer().on(MasterEvent::VotesAgain);
            self.config.health.votes_again(self.mailbox.master());
        }
        end.is_some()
    }

    /// Returns how long after `now` the quarantine ends, if it has not ended.
    fn quarantine_left(&self, now: Tick) -> Option<Duration> {
        let left = self.quarantined_until?.since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Begins a quarantine that lasts until the locks that the master may have forgotten have
    /// expired. The first dial after a loss of data finds a sign of it, such as a new run id. Later
    /// dials find only the record of the loss, which is no news.
    fn begin_quarantine(&mut self, loss: DataLoss, now: Tick) {
        let left = self.config.quarantine_length.saturating_sub(loss.age);
        if left.is_zero() {
            return;
        }
        let is_known = loss.sign == Sign::Earlier && self.quarantined_until.is_some();
        if !is_known {
            let why = loss.sign.text();
            let observer = self.mailbox.observer();
            observer.on(MasterEvent::Quarantined { left, why });
            self.config.health.quarantined(self.mailbox.master(), why);
        }
        self.quarantined_until = Some(now + left);
    }
}

impl Drop for Session {
    /// Casts the open votes, because a runtime may drop this task, or the task may panic, while
    /// callers wait.
    fn drop(&mut self) {
        // A panic may be unwinding this task already. Another one must not leave this method.
        shielded(|| drop(self.give_up(&Failure::Closed, &Failure::Closed)));
        shielded(|| self.config.health.closed(self.master()));
    }
}
