//! The queue of requests to one master: callers post to it, and the supervisor empties it.

use std::{
    mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    listeners::{Change, Listener, Topic},
    owed::Owed,
    queue::{Phase, Queue},
    request::Request,
};
use crate::{
    core::vote::{Failure, Vote},
    master::observer::{MasterEvent, MasterObserver},
};

/// The queue of one master. Posting never blocks, never spawns a task and needs no runtime.
///
/// Requests are sent in the order of their posts. A release that is posted after its acquisition is
/// therefore executed after that acquisition.
#[derive(Debug)]
pub(crate) struct Mailbox {
    master: usize,
    observer: MasterObserver,
    now: fn() -> Instant,
    /// Set while the phase is `Serving`. The flag is read without the lock, so it may be out of
    /// date.
    is_serving: AtomicBool,
    /// Set while the phase is `Serving` and the master reports changes of keys.
    reports_changes: AtomicBool,
    /// Set if many commands had no reply when the last command was sent.
    is_busy: AtomicBool,
    /// The node timeout in microseconds. 0 until the first dial is over.
    node_timeout: AtomicU64,
    queue: Mutex<Queue>,
}

impl Mailbox {
    pub(crate) fn new(master: usize, observer: MasterObserver, now: fn() -> Instant) -> Self {
        Self {
            node_timeout: AtomicU64::new(0),
            master,
            observer,
            now,
            is_serving: AtomicBool::new(false),
            reports_changes: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            queue: Mutex::default(),
        }
    }

    pub(crate) fn master(&self) -> usize {
        self.master
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        self.observer.address()
    }

    pub(in crate::master) fn observer(&self) -> &MasterObserver {
        &self.observer
    }

    pub(in crate::master) fn clock(&self) -> fn() -> Instant {
        self.now
    }

    /// Posts `request`. If the request fails at once, returns the failure. The caller must then
    /// call [`fail`](Self::fail). Requests fail at once while the master is down, for example.
    #[must_use = "the vote must be cast"]
    pub(crate) fn post(&self, request: Arc<Request>) -> Option<Failure> {
        let mut queue = self.queue.lock();
        if let Some(failure) = queue.immediate_failure(&request, self.master, self.now) {
            queue.owe(self.master, &request);
            return Some(failure);
        }
        queue.requests.push(request);
        if queue.requests.len() == 1 {
            queue.wake();
        }
        None
    }

    /// Returns the node timeout of the master, or `None` until the first dial is over.
    pub(crate) fn node_timeout(&self) -> Option<Duration> {
        let micros = self.node_timeout.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    pub(in crate::master) fn set_node_timeout(&self, timeout: Duration) {
        let micros = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        self.node_timeout.store(micros, Ordering::Relaxed);
    }

    /// Returns whether there is a connection. The answer may be slightly out of date.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    /// Returns whether the supervisor has ended.
    pub(crate) fn is_closed(&self) -> bool {
        !self.is_serving() && self.queue.lock().is_closed()
    }

    /// Returns whether many commands had no reply when the last command was sent.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Tells `listener` of news about `topic`, on the current connection and all later ones.
    pub(crate) fn listen(&self, topic: &Topic, listener: Weak<dyn Listener>) {
        let mut queue = self.queue.lock();
        queue.listeners.add(topic, listener);
        if queue.listeners.must_change() {
            queue.wake();
        }
    }

    pub(crate) fn ignore(&self, topic: &Topic, listener: &Weak<dyn Listener>) {
        let mut queue = self.queue.lock();
        queue.listeners.remove(topic, listener);
        if queue.listeners.must_change() {
            queue.wake();
        }
    }

    /// Passes news about `topic` on to its listeners.
    pub(in crate::master) fn tell(&self, topic: &Topic) {
        let listeners = self.queue.lock().listeners.of(topic);
        for listener in listeners {
            listener.on_news(self.master, topic);
        }
    }

    /// Makes all listeners whose topic is in `about` look.
    pub(crate) fn tell_all(&self, about: impl Fn(&Topic) -> bool) {
        let listeners = self.queue.lock().listeners.all();
        for (topic, listener) in listeners {
            if about(&topic) {
                listener.on_news(self.master, &topic);
            }
        }
    }

    /// Returns whether there is a connection, and the master reports changes of keys over it.
    pub(crate) fn reports_changes(&self) -> bool {
        self.reports_changes.load(Ordering::Relaxed)
    }

    pub(in crate::master) fn set_reports_changes(&self, reports: bool) {
        self.reports_changes.store(reports, Ordering::Relaxed);
    }

    /// Notes that any key may have changed without a report.
    pub(in crate::master) fn may_have_changed(&self) {
        self.tell_all(|topic| matches!(topic, Topic::Key(_)));
    }

    #[cfg(test)]
    pub(crate) fn listeners(&self) -> usize {
        self.queue.lock().listeners.all().len()
    }

    /// Tells the supervisor that nothing will be posted any more. The supervisor ends once
    /// everything is delivered.
    pub(crate) fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.is_abandoned = true;
        queue.wake();
    }

    /// Moves the posted requests into `requests`, which must be empty. Returns the change of the
    /// subscription to send before them. The next post wakes `cx`.
    pub(in crate::master) fn take(
        &self,
        cx: &Context<'_>,
        requests: &mut Vec<Arc<Request>>,
    ) -> Option<Change> {
        let mut queue = self.queue.lock();
        mem::swap(&mut queue.requests, requests);
        queue.set_waker(cx);
        queue.listeners.take_change()
    }

    /// Returns whether the mailbox is empty and nothing more will be posted.
    pub(in crate::master) fn is_done(&self) -> bool {
        self.queue.lock().is_done()
    }

    /// Resolves with the next instant at which to call [`expire`](Self::expire), or with `None`
    /// once the mailbox is done. Used while there is no connection.
    pub(in crate::master) fn poll_next_expiry(&self, cx: &Context<'_>) -> Poll<Option<Instant>> {
        let mut queue = self.queue.lock();
        queue.set_waker(cx);
        if queue.is_done() {
            return Poll::Ready(None);
        }
        let next = queue.owed.next_expiry(self.master, self.now);
        next.map_or(Poll::Pending, |at| Poll::Ready(Some(at)))
    }

    /// Gives up the releases that are no longer owed at `now`.
    pub(in crate::master) fn expire(&self, now: Instant) {
        let (expired, must_log) = self.queue.lock().owed.expire(self.master, now);
        drop(expired); // the lock is free: the drop may wake a task that posts
        if must_log {
            self.observer.on(MasterEvent::ReleasesGivenUp);
        }
    }

    /// Begins a quarantine that ends at `until`. Queued requests that would take or keep a lock
    /// fail at once.
    pub(in crate::master) fn quarantine(&self, until: Instant) {
        if mutant!(IgnoresQuarantine) {
            return;
        }
        let mut queue = self.queue.lock();
        queue.quarantine = Some(until);
        let applies = |request: &mut Arc<Request>| request.command.verb.quarantine_applies();
        let refused: Vec<_> = queue.requests.extract_if(.., applies).collect();
        let left = until.saturating_duration_since((self.now)());
        drop(queue);
        for request in refused {
            self.fail(&request, Failure::Quarantined { remaining: left });
        }
    }

    /// Returns the end of the quarantine, if it has not ended.
    pub(in crate::master) fn quarantined_until(&self) -> Option<Instant> {
        let until = self.queue.lock().quarantine;
        until.filter(|until| *until > (self.now)())
    }

    /// Notes that there is a connection with this node timeout. Returns the releases that the
    /// master is owed.
    pub(in crate::master) fn serve(&self, timeout: Duration) -> Owed {
        self.set_node_timeout(timeout);
        let mut queue = self.queue.lock();
        queue.phase = Phase::Serving;
        self.is_serving.store(true, Ordering::Relaxed);
        queue.listeners.connect();
        mem::take(&mut queue.owed)
    }

    /// Notes that there is no connection. Every request fails at once until a dial succeeds.
    /// `unanswered` has the requests that are left from the last connection. Each comes with the
    /// vote to cast, or with `None` if its vote has been cast.
    pub(in crate::master) fn down(
        &self,
        unanswered: impl IntoIterator<Item = (Arc<Request>, Option<Failure>)>,
        why: &Arc<str>,
    ) {
        let unsent = Failure::Unreachable(why.clone());
        let mut queue = self.queue.lock();
        queue.phase = Phase::Down(unsent.clone());
        self.is_serving.store(false, Ordering::Relaxed);
        self.set_reports_changes(false);
        let queued = mem::take(&mut queue.requests);
        drop(queue);
        let queued = queued.into_iter();
        let queued = queued.map(|request| (request, Some(unsent.clone())));
        self.fail_all(unanswered.into_iter().chain(queued).collect());
        self.may_have_changed();
    }

    /// Fails all queued requests and all later ones. Called when the supervisor ends.
    pub(in crate::master) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.phase = Phase::Down(Failure::Closed);
        self.is_serving.store(false, Ordering::Relaxed);
        self.set_reports_changes(false);
        let queued = mem::take(&mut queue.requests);
        let owed = mem::take(&mut queue.owed);
        drop(queue);
        drop(owed); // the lock is free: the drop may wake a task that posts
        for request in queued {
            self.fail(&request, Failure::Closed);
        }
        self.may_have_changed();
    }

    /// Casts the vote of the master on `request`. `now` was read after the vote was known. The
    /// caller must hold no mutex, because the vote may wake a task.
    pub(in crate::master) fn cast(&self, request: &Request, vote: Vote, now: Instant) {
        self.observer.voted(&vote);
        request.votes_to.count(self.master, vote, now);
    }

    /// Casts a failed vote. The caller must hold no mutex.
    pub(crate) fn fail(&self, request: &Request, failure: Failure) {
        self.cast(request, Vote::Fail(failure), (self.now)());
    }

    /// Casts the open votes in order. The lock is free meanwhile, because a vote may wake a task
    /// that posts. Then keeps the releases that the master is owed. The votes come first, because
    /// they may decide which releases are owed.
    fn fail_all(&self, requests: Vec<(Arc<Request>, Option<Failure>)>) {
        for (request, failure) in &requests {
            if let Some(failure) = failure {
                self.fail(request, failure.clone());
            }
        }
        let mut queue = self.queue.lock();
        for (request, _) in &requests {
            queue.owe(self.master, request);
        }
    }
}
