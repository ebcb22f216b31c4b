//! The part of a session with which callers post requests to a master and listen to its news.

use std::{
    any::Any,
    collections::VecDeque,
    mem,
    panic::resume_unwind,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    listeners::{Listener, Listeners, Subscription, Topic},
    request::Request,
};
use crate::{
    core::{
        time::tick::Tick,
        vote::{Failure, SlotVote},
    },
    master::observer::{MasterObserver, outcome_word},
    panics::{caught, shielded},
};

/// The queue of one master. Posting never blocks, never spawns a task and needs no runtime.
///
/// Requests are sent in the order of their posts. A release that is posted after its acquisition is
/// therefore executed after that acquisition.
#[derive(Debug)]
pub(crate) struct Mailbox {
    master: usize,
    observer: MasterObserver,
    /// Set while there is a connection. The flag is read without the mutex, so it may be out of
    /// date.
    is_serving: AtomicBool,
    /// Set while there is a connection and the master reports changes of keys over it.
    reports_changes: AtomicBool,
    /// Set if many commands had no reply when the last command was sent.
    is_busy: AtomicBool,
    /// The node timeout in microseconds. 0 until the first dial is over.
    node_timeout: AtomicU64,
    queue: Mutex<Queue>,
}

impl Mailbox {
    pub(crate) fn new(master: usize, observer: MasterObserver) -> Self {
        Self {
            node_timeout: AtomicU64::new(0),
            master,
            observer,
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

    pub(crate) fn observer(&self) -> &MasterObserver {
        &self.observer
    }

    /// Posts `request`. If the request fails at once, returns the failure. The caller must then
    /// [cast](Self::cast) this failure as the vote. Requests fail at once while the master is down.
    #[must_use = "the vote must be cast"]
    pub(crate) fn post(&self, request: Arc<Request>) -> Option<Failure> {
        let mut queue = self.queue.lock();
        let failure = queue.down.clone();
        let posts = match failure {
            None => &mut queue.posts.requests,
            Some(Failure::Closed) => return failure,
            Some(_) if !request.is_owed_to(self.master) => return failure,
            Some(_) => &mut queue.posts.failed,
        };
        posts.push_back(request);
        if posts.len() == 1 {
            queue.wake();
        }
        failure
    }

    /// Returns the node timeout of the master, or `None` until the first dial is over.
    pub(crate) fn node_timeout(&self) -> Option<Duration> {
        let micros = self.node_timeout.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    pub(crate) fn set_node_timeout(&self, timeout: Duration) {
        let micros = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        self.node_timeout.store(micros, Ordering::Relaxed);
    }

    /// Returns whether there is a connection. The answer may be slightly out of date.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    /// Returns whether many commands had no reply when the last command was sent.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Passes news about `topic` to `listener`, on the current connection and all later ones.
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
    pub(crate) fn tell(&self, topic: &Topic) {
        let listeners = self.queue.lock().listeners.of(topic);
        for listener in listeners {
            listener.on_news(self.master, topic);
        }
    }

    /// For each topic that `about` accepts, passes news on to the listeners of the topic.
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

    pub(crate) fn set_reports_changes(&self, reports: bool) {
        self.reports_changes.store(reports, Ordering::Relaxed);
    }

    /// Tells the listeners of each key that the key may have changed without a report.
    pub(crate) fn tell_all_keys(&self) {
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

    /// Moves what was posted into `posts`. The next post wakes `cx`. Returns whether nothing more
    /// will be posted.
    pub(crate) fn take(&self, cx: &Context<'_>, posts: &mut Posts) -> bool {
        let mut queue = self.queue.lock();
        if let Some(panic) = queue.panic.take() {
            drop(queue);
            resume_unwind(panic);
        }
        queue.move_to(posts);
        if self.is_serving()
            && let Some(change) = queue.listeners.take_change()
        {
            // A change replaces one that was not sent yet, because there is only one channel.
            posts.change = Some(change);
        }
        match &queue.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => queue.waker = Some(cx.waker().clone()),
        }
        queue.is_abandoned
    }

    /// Notes that there is a connection with this node timeout.
    pub(crate) fn up(&self, timeout: Duration) {
        self.set_node_timeout(timeout);
        let mut queue = self.queue.lock();
        queue.down = None;
        self.is_serving.store(true, Ordering::Relaxed);
        queue.listeners.connect();
    }

    /// Notes that there is no connection. Requests wait for the dial that follows.
    pub(crate) fn interrupt(&self) {
        self.is_serving.store(false, Ordering::Relaxed);
        self.set_reports_changes(false);
    }

    /// Notes that there is no connection. From now on, every request fails at once with `failure`.
    /// Moves what was posted before into `posts`.
    pub(crate) fn down(&self, failure: Failure, posts: &mut Posts) {
        let mut queue = self.queue.lock();
        queue.down = Some(failure);
        self.interrupt();
        queue.move_to(posts);
    }

    /// Casts the vote of the master on `request`. `now` was read after the vote was known. The
    /// caller must hold no mutex, because the vote may wake a task. If code of the program panics
    /// here, the supervisor panics later.
    pub(crate) fn cast(&self, request: &Request, vote: impl Into<SlotVote>, now: Tick) {
        let vote = vote.into();
        let outcome = outcome_word(vote.vote());
        let keep = |panic| self.keep(panic);
        caught(|| request.votes_to.count(self.master, vote, now)).unwrap_or_else(keep);
        caught(|| request.votes_to.wake()).unwrap_or_else(keep);
        caught(|| self.observer.voted(outcome)).unwrap_or_else(keep);
    }

    /// Keeps the first panic for the supervisor.
    fn keep(&self, panic: Box<dyn Any + Send>) {
        let mut panic = Some(panic);
        let mut queue = self.queue.lock();
        if queue.panic.is_none() {
            mem::swap(&mut queue.panic, &mut panic);
            queue.wake();
        }
        drop(queue);
        shielded(|| drop(panic));
    }
}

/// The contents of a mailbox, which a mutex protects.
#[derive(Debug, Default)]
struct Queue {
    /// The failure that every new request gets. `None` while there is a connection, during the very
    /// first dial, and during the first dial after a connection that worked.
    down: Option<Failure>,
    posts: Posts,
    listeners: Listeners,
    /// The waker of the supervisor.
    waker: Option<Waker>,
    is_abandoned: bool,
    /// The first panic of the program's code when a vote was cast.
    panic: Option<Box<dyn Any + Send>>,
}

/// Requests for one master that wait to be sent, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Posts {
    /// The requests whose votes are open.
    pub(crate) requests: VecDeque<Arc<Request>>,
    /// The releases that failed at once because there was no connection. They may still have to be
    /// sent.
    pub(crate) failed: VecDeque<Arc<Request>>,
    /// The change of the subscription to send before the requests.
    pub(crate) change: Option<Subscription>,
}

impl Queue {
    fn move_to(&mut self, posts: &mut Posts) {
        // Usually everything was sent before, so `posts` is empty, and a swap copies nothing.
        if posts.requests.is_empty() {
            mem::swap(&mut posts.requests, &mut self.posts.requests);
        }
        posts.requests.append(&mut self.posts.requests);
        posts.failed.append(&mut self.posts.failed);
    }

    /// Wakes the supervisor. The mutex may be locked meanwhile, because the waker only schedules
    /// the supervisor's task.
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;
    use crate::{
        clock::monotonic,
        core::{
            kind::Kind,
            protocol::command::fixture::command,
            vote::{Verb, Vote, lists::Membership},
        },
        master::session::request::VoteCounter,
    };

    /// Panics with a value whose drop is code of the program.
    struct Panics(Arc<Mailbox>, Arc<AtomicU64>);

    /// Counts its drop if no mutex is locked, and panics again.
    struct Payload(Arc<Mailbox>, Arc<AtomicU64>);

    impl VoteCounter for Panics {
        fn count(&self, _: usize, _: SlotVote, _: Tick) {
            panic_any(Payload(self.0.clone(), self.1.clone()));
        }

        fn wake(&self) {
            panic_any(Payload(self.0.clone(), self.1.clone()));
        }
    }

    impl Drop for Payload {
        fn drop(&mut self) {
            let is_free = self.0.queue.try_lock().is_some();
            self.1.fetch_add(is_free.into(), Ordering::Relaxed);
            panic!("the drop of a payload");
        }
    }

    #[test]
    fn the_first_panic_is_kept_and_later_ones_are_dropped_while_no_mutex_is_held() {
        let observer = MasterObserver::new(None, "m".into(), Membership::Stays);
        let mailbox = Arc::new(Mailbox::new(0, observer));
        let dropped = Arc::<AtomicU64>::default();
        let command = command(Kind::Mutex, Verb::Acquire, 1);
        let panics = Panics(mailbox.clone(), dropped.clone());
        let request = Request::new(command, monotonic(), panics);
        for _ in 0..2 {
            mailbox.cast(&request, Vote::Fail(Failure::Closed), monotonic());
        }
        assert!(mailbox.queue.lock().panic.is_some());
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }
}
