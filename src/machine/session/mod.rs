//! The commands for one master, from the post to the vote, and the connections that carry them.

use std::{collections::VecDeque, mem, sync::Arc, task::Waker, time::Duration};

use self::{
    health::Health,
    link::{Item, Link},
    owed::Owed,
};
use super::{
    Now, VotesTo,
    out::{Effect, MasterEvent, Request},
    round::Rounds,
    waiters::{Topic, Waiters},
};
use crate::core::{
    config::Config,
    protocol::Ticket,
    restart::DataLoss,
    time::{Tick, rounded},
    view::{MasterHealth, MasterState},
    vote::{CastVote, Failure, ServerError, Vote},
};

pub(crate) mod health;
pub(crate) mod link;
pub(crate) mod owed;
mod replies;
#[cfg(test)]
mod tests;

/// The sending half of a connection. Bytes may stay in a buffer until the next poll.
pub(crate) trait Transmit {
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

/// The commands for one master, from the post to the vote. A session has at most one connection at
/// a time.
///
/// Requests are sent in the order of their posts. A release that is posted after its acquisition is
/// therefore executed after that acquisition.
///
/// Every command gets a vote by its deadline, whatever the master answers. Commands for which the
/// window of the connection has no room wait here, in order, for at most one response timeout.
/// Commands also wait for up to one response timeout during the first dial after a connection that
/// worked.
/// [`Owed`] releases wait until they are sent, but get a failed vote if they wait for longer than
/// one response timeout and one connect timeout. If the master stops answering, the connection is
/// given up, and these releases wait for the next connection.
pub(crate) struct Session {
    config: Arc<Config>,
    pub(crate) health: Health,
    /// The run id of the server that the last dial reached.
    pub(in crate::machine) server: Option<String>,
    /// The failure that every new request gets. `None` while there is a connection, during the very
    /// first dial, and during the first dial after a connection that worked.
    down: Option<Failure>,
    /// Set while there is a connection and the master reports changes of keys over it.
    pub(crate) reports_changes: bool,
    /// The requests whose votes are open, and that were not sent.
    waiting: VecDeque<Arc<Request>>,
    /// The channel to which the connection is subscribed.
    channel: Option<Arc<str>>,
    /// The change of the subscription to send before the requests.
    change: Option<Subscription>,
    /// The releases that have their votes and must still be sent.
    owed: Owed,
    /// The releases that could not be sent within a response timeout, oldest first. They are sent
    /// before the requests that wait.
    late: VecDeque<Arc<Request>>,
    /// The current connection. If there is none, this is what is left of the last one.
    pub(crate) link: Link,
    /// The task that serves this session.
    waker: Option<Waker>,
    /// The votes that the machine counts after a call.
    pub(in crate::machine) cast: Vec<(VotesTo, CastVote)>,
    /// The requests that may be [owed](Self::owe_given_up). The machine looks at them next.
    pub(in crate::machine) given_up: Vec<Arc<Request>>,
    /// The requests that the machine ends last.
    pub(in crate::machine) ended: Vec<Arc<Request>>,
}

/// The beginning or the end of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) channel: Arc<str>,
    pub(crate) begins: bool,
}

/// What a session sees in a step, and what it leaves. The rounds say which releases the master is
/// owed.
pub(crate) struct Cx<'a> {
    pub(in crate::machine) master: usize,
    pub(in crate::machine) rounds: &'a Rounds,
    pub(in crate::machine) waiters: &'a mut Waiters,
    pub(in crate::machine) out: &'a mut Vec<Effect>,
    pub(in crate::machine) is_abandoned: bool,
    pub(crate) now: Now,
}

impl Session {
    /// A master with more unanswered commands than this counts as busy.
    const FEW: usize = 4;
    /// The largest number of requests that wait for room, apart from owed releases.
    const MOST_WAITING: usize = Link::MOST_IN_WINDOW;

    /// Creates the session of a master before its first dial, with what is known of the master.
    pub(crate) fn new(config: Arc<Config>, known: MasterHealth, now: Tick) -> Self {
        Self {
            health: Health::new(known, now),
            server: None,
            down: None,
            reports_changes: false,
            waiting: VecDeque::new(),
            channel: None,
            change: None,
            owed: Owed::default(),
            late: VecDeque::new(),
            link: Link::new(&config, Duration::ZERO, 0, now),
            waker: None,
            cast: Vec::new(),
            given_up: Vec::new(),
            ended: Vec::new(),
            config,
        }
    }

    /// Posts a request. Returns the failure if the request fails at once.
    #[inline]
    pub(in crate::machine) fn post(
        &mut self,
        cx: &Cx<'_>,
        request: &Arc<Request>,
    ) -> Option<Failure> {
        if let Some(failure) = self.down.clone() {
            if failure != Failure::Closed {
                self.given_up.push(request.clone());
                self.wake();
            }
            return Some(failure);
        }
        if self.waiting.len() >= Self::MOST_WAITING && !cx.is_owed(request) {
            return Some(unsent());
        }
        self.waiting.push_back(request.clone());
        if self.waiting.len() == 1 {
            self.wake();
        }
        None
    }

    /// Sends a change of the subscription, if one is needed. The channel is subscribed while the
    /// waiter with the ticket `called` waits for its turn.
    pub(in crate::machine) fn resubscribe(&mut self, called: Option<&Ticket>) {
        if self.health.is_connected()
            && let Some(change) = self.take_change(called)
        {
            // A change replaces one that was not sent yet, because there is only one channel.
            self.change = Some(change);
            self.wake();
        }
    }

    /// Returns the change of the subscription that must be sent now, and counts it as sent.
    pub(super) fn take_change(&mut self, called: Option<&Ticket>) -> Option<Subscription> {
        let change = match (called, &self.channel) {
            (Some(ticket), None) => Subscription {
                channel: ticket.channel().into(),
                begins: true,
            },
            (None, Some(channel)) => Subscription {
                channel: channel.clone(),
                begins: false,
            },
            (Some(_), Some(_)) | (None, None) => return None,
        };
        self.channel = Some(change.channel.clone()).filter(|_| change.begins);
        Some(change)
    }

    /// Wakes the task that serves this session. It is a tokio task, so its waker is no code of the
    /// program.
    pub(in crate::machine) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// From now on, what happens wakes this task.
    pub(crate) fn set_waker(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    /// Returns the response timeout, or `None` until the first dial is over.
    pub(crate) fn response_timeout(&self) -> Option<Duration> {
        (self.health.is_dialled()).then(|| self.link.liveness.timeout())
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.link.sent.len() > Self::FEW
    }

    /// Notes that a dial has made a connection. The dial has measured `round_trip`, and `loss` is
    /// the loss of data that it found.
    pub(crate) fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        round_trip: Duration,
        loss: Option<DataLoss>,
        reports_changes: bool,
    ) {
        let now = cx.now.monotonic;
        (self.health.quarantined_until).take_if(|until| *until <= now);
        if let Some(loss) = loss {
            self.begin_quarantine(cx, loss);
        }
        self.health.change(MasterState::Connected, cx.now.monotonic);
        self.health.known.round_trip = Some(round_trip);
        self.health.last_heard = Some(cx.now.monotonic);
        // A server that loads its data refuses dials, so it has loaded the data by now.
        let error = self.health.known.error.as_deref().map(ServerError::of);
        if error == Some(ServerError::Loading) {
            self.takes_locks(cx);
        }
        self.link = Link::new(&self.config, round_trip, Link::WINDOW, cx.now.monotonic);
        self.down = None;
        self.channel = None;
        self.reports_changes = reports_changes;
        if !reports_changes {
            let error = "CLIENT TRACKING is refused".into();
            cx.tell(MasterEvent::ReportsNothing { error });
        }
        self.change = self.take_change(cx.waiters.called());
    }

    /// Notes that there is no connection. Casts the open votes on what was sent, and on late
    /// releases. If `is_redialled`, a dial follows at once, and other requests wait for it.
    /// Otherwise, casts their votes, too. Keeps the releases that the master is owed.
    pub(crate) fn disconnect(&mut self, cx: &mut Cx<'_>, why: &Arc<str>, is_redialled: bool) {
        let unknown = Failure::Disconnected(why.clone());
        let unsent = Failure::Unreachable(why.clone());
        self.end_link(cx, MasterState::Down(why.clone()), &unknown, &unsent);
        if !is_redialled {
            self.give_up(unsent);
        }
    }

    /// Notes that nothing serves this session any more. Casts all open votes.
    pub(crate) fn close(&mut self, cx: &mut Cx<'_>) {
        self.end_link(cx, MasterState::Closed, &Failure::Closed, &Failure::Closed);
        self.give_up(Failure::Closed);
        self.ended.append(&mut self.given_up);
        self.ended.extend(mem::take(&mut self.owed.releases));
    }

    /// Called while there is no connection. Drops the releases that the master is no longer owed.
    /// Gives up the requests that have waited for a response timeout, except during the very first
    /// dial.
    pub(crate) fn expire_unconnected(&mut self, cx: &Cx<'_>) {
        if self.health.is_dialled() {
            while let Some(request) = self.next_overdue(cx.now.monotonic) {
                let why = format!(
                    "its connection ended, and no new one was there in {:?}",
                    rounded(self.link.liveness.timeout())
                );
                self.fail(&request, Failure::Unreachable(why.into()));
                self.given_up.push(request);
            }
        }
        self.owed.expire(cx, &mut self.ended);
    }

    /// Sends as much as the window allows: the change of the subscription, owed releases, late
    /// releases and requests, in this order. Returns whether it sent anything.
    pub(crate) fn send(&mut self, cx: &Cx<'_>, connection: &mut impl Transmit) -> bool {
        if !self.has_backlog() {
            return false; // most polls only read replies
        }
        let (now, before) = (cx.now.monotonic, self.link.sent.len());
        if self.link.is_silent() {
            self.fail_waiting(cx);
        }
        if self.link.is_idle(now) && connection.has_input() {
            return false; // the connection may have ended, so it is read first
        }
        if self.link.has_room()
            && let Some(change) = self.change.take()
        {
            connection.send_change(&change);
            self.link
                .push(Item::Subscription(change.channel), false, now);
        }
        while self.link.has_room()
            && let Some((request, is_owed)) = self.next_request(cx)
        {
            if let Some(remaining) = self.health.quarantine_left(now)
                && request.command.verb().quarantine_applies()
            {
                self.fail(&request, Failure::Quarantined { remaining });
                self.ended.push(request);
                continue;
            }
            if self.watches(&request) {
                connection.send_caching();
                self.link.push(Item::Caching, false, now);
            }
            connection.send(&request);
            self.link.push(Item::Request(request), is_owed, now);
        }
        self.owed.expire(cx, &mut self.ended);
        self.link.sent.len() > before
    }

    /// Returns when to send, to end the quarantine or to call [`expire`](Self::expire) next, if no
    /// post and no reply comes first.
    pub(crate) fn next_wake(&mut self, cx: &Cx<'_>) -> Option<Tick> {
        let mut next = self.link.next_deadline();
        if self.has_backlog() {
            next = next.into_iter().chain(self.next_of_backlog(cx)).min();
        }
        let next = next.map(|at| self.link.liveness.judged_at(at));
        next.into_iter().chain(self.health.quarantined_until).min()
    }

    /// Casts a failed vote on each request whose deadline is over at `now`. Returns whether the
    /// master has been silent for too long.
    pub(crate) fn expire(&mut self, cx: &Cx<'_>, now: Tick) -> bool {
        let (cast, liveness) = (&mut self.cast, &self.link.liveness);
        let (round_trip, silence) = (liveness.round_trip(), liveness.silence());
        self.link.sent.expire(now, |request, after| {
            let late = Failure::TimedOut {
                after,
                round_trip,
                silence,
            };
            cast.push((request.votes_to, Vote::Fail(late).into()));
        });
        while let Some(release) = self.late.front()
            && self.confirmed_by(release) <= now
            && let Some(release) = self.late.pop_front()
        {
            self.fail(&release, unsent());
            self.given_up.push(release);
        }
        let (mut has_failed, mut put_off) = (false, VecDeque::new());
        while let Some(request) = self.next_overdue(now) {
            if !cx.is_owed(&request) {
                has_failed = true;
                self.fail(&request, unsent());
                self.ended.push(request);
            } else if has_failed {
                // The votes may decide that it is not owed. They are counted after this call.
                put_off.push_back(request);
            } else {
                self.late.push_back(request);
            }
        }
        if !put_off.is_empty() {
            put_off.append(&mut self.waiting);
            self.waiting = put_off;
        }
        self.link.is_over(now)
    }

    /// Returns whether the machine has done all that the last step asks for.
    pub(crate) fn is_settled(&self) -> bool {
        self.cast.is_empty() && self.given_up.is_empty() && self.ended.is_empty()
    }

    /// Returns whether every command has been delivered, and nothing more will be posted.
    pub(crate) fn is_done(&self, cx: &Cx<'_>) -> bool {
        cx.is_abandoned && self.is_empty() && self.is_settled()
    }

    /// Returns whether every command has been delivered.
    pub(crate) fn is_empty(&self) -> bool {
        self.link.sent.is_empty() && !self.has_backlog()
    }

    fn has_backlog(&self) -> bool {
        !self.waiting.is_empty()
            || !self.late.is_empty()
            || !self.owed.is_empty()
            || self.change.is_some()
    }

    /// Fails the requests that wait, but for releases that must be sent.
    fn fail_waiting(&mut self, cx: &Cx<'_>) {
        let why: Arc<str> = "it has left earlier commands unanswered for too long".into();
        for request in mem::take(&mut self.waiting) {
            if cx.is_owed(&request) {
                self.waiting.push_back(request);
            } else {
                self.fail(&request, Failure::Unreachable(why.clone()));
                self.ended.push(request);
            }
        }
    }

    /// Takes out the next request to send, and says whether it is an owed release.
    fn next_request(&mut self, cx: &Cx<'_>) -> Option<(Arc<Request>, bool)> {
        if !self.owed.is_empty()
            && let Some(release) = (self.owed).next(cx, self.link.window, &mut self.ended)
        {
            return Some((release, true));
        }
        let late = self.late.pop_front();
        let next = late.or_else(|| self.waiting.pop_front());
        next.map(|request| (request, false))
    }

    /// Takes out the oldest request, if it has waited for too long at `now`.
    fn next_overdue(&mut self, now: Tick) -> Option<Arc<Request>> {
        let oldest = self.waiting.front()?;
        let is_overdue = self.send_by(oldest) <= now;
        is_overdue.then(|| self.waiting.pop_front())?
    }

    /// Returns when to look at the backlog next: to send, or to call
    /// [`expire_unconnected`](Self::expire_unconnected) or [`expire`](Self::expire).
    pub(crate) fn next_of_backlog(&self, cx: &Cx<'_>) -> Option<Tick> {
        let waiting = self.waiting.front().filter(|_| self.health.is_dialled());
        let waiting = waiting.map(|request| self.send_by(request));
        let late = self.late.front();
        let late = late.map(|release| self.confirmed_by(release));
        let owed = self.owed.next_wake(cx);
        let retry = self.owed.next_send().filter(|_| self.link.has_room());
        [waiting, late, owed, retry].into_iter().flatten().min()
    }

    /// Returns when a waiting `request` is given up: one response timeout after its post, or after
    /// the connection came into use if that was later.
    fn send_by(&self, request: &Request) -> Tick {
        request.posted.max(self.link.began) + self.link.liveness.timeout()
    }

    /// Returns when a late `release` gets a failed vote, so that its caller can go on. The release
    /// itself still waits to be sent.
    fn confirmed_by(&self, release: &Request) -> Tick {
        self.send_by(release) + self.config.connect_timeout
    }

    /// Keeps those of the requests that were given up that are releases, and that the master is
    /// owed. The machine has counted the votes on all of them, because votes may decide what is
    /// owed.
    pub(in crate::machine) fn owe_given_up(&mut self, cx: &mut Cx<'_>) {
        for request in mem::take(&mut self.given_up) {
            if !cx.is_owed(&request) {
                self.ended.push(request);
            } else if self.owed.push(request, &mut self.ended) {
                cx.tell(MasterEvent::ReleasesGivenUp);
            }
        }
    }

    /// Makes later requests, and those that wait, fail at once with `unsent`.
    fn give_up(&mut self, unsent: Failure) {
        for request in mem::take(&mut self.waiting) {
            self.fail(&request, unsent.clone());
            self.given_up.push(request);
        }
        self.down = Some(unsent);
    }

    /// Notes that there is no connection. The next one subscribes anew. Casts the open votes on the
    /// requests that were sent, with `unknown`, and on the late releases, with `unsent`.
    fn end_link(
        &mut self,
        cx: &mut Cx<'_>,
        state: MasterState,
        unknown: &Failure,
        unsent: &Failure,
    ) {
        self.owed.disconnect();
        self.reports_changes = false;
        self.change = None;
        self.change_state(cx, state);
        for (request, is_open) in self.link.sent.drain() {
            if is_open {
                self.fail(&request, unknown.clone());
            }
            self.given_up.push(request);
        }
        for release in mem::take(&mut self.late) {
            self.fail(&release, unsent.clone());
            self.given_up.push(release);
        }
        self.tell_all_keys(cx);
    }

    fn fail(&mut self, request: &Request, failure: Failure) {
        let vote = Vote::Fail(failure).into();
        self.cast.push((request.votes_to, vote));
    }
}

/// The failure of a request that was not sent, because it has waited for too long, or because too
/// many requests wait already.
fn unsent() -> Failure {
    Failure::Unreachable("not sent: too many commands are unanswered".into())
}

impl Cx<'_> {
    pub(crate) fn tell(&mut self, event: MasterEvent) {
        self.out.push(Effect::News(self.master, event));
    }

    pub(crate) fn hear(&mut self, topic: &Topic) {
        (self.waiters).hear(self.master, topic, self.now.lease, self.out);
    }

    /// Returns the time until which the master is owed `request`, if it is: see
    /// [`Rounds::owed_until`].
    fn owed_until(&self, request: &Request) -> Option<Tick> {
        let round = request.votes_to.round;
        let until = self.rounds.owed_until(round, self.master);
        until.filter(|until| *until > self.now.monotonic)
    }

    fn is_owed(&self, request: &Request) -> bool {
        self.owed_until(request).is_some()
    }
}
