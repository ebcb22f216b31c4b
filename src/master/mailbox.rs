//! Where callers leave what they ask of one master, and its supervisor picks it up.

use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{Request, in_flight::InFlight, owed::Owed};
use crate::{
    core::quorum::{Failure, Vote},
    user_code::shielded,
};

/// One master's queue. Posting never blocks, never spawns and needs no runtime.
///
/// The order of posts is the order on the wire: a release that is posted behind its acquire is executed
/// behind it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    master: usize,
    address: Arc<str>,
    now: fn() -> Instant,
    /// Whether the phase is `Serving`, for who need not know it exactly.
    is_serving: AtomicBool,
    /// The node timeout, in microseconds; 0 until the first dial is over.
    timeout: AtomicU64,
    /// The node timeout of a master that could not be dialled.
    least_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    asks: Vec<Arc<Request>>,
    owed: Owed,
    /// Who listens to which channel, on this connection and the next ones.
    subscribers: BTreeMap<Arc<str>, Vec<Weak<dyn Subscriber>>>,
    /// What the server does not know of that yet, in order.
    changes: Vec<Change>,
    waker: Option<Waker>,
    /// Until when the master has no vote, as it may have forgotten locks.
    quarantine: Option<Instant>,
    abandoned: bool,
}

/// Whoever wants to hear of releases on a channel. Hearing is a hint: messages get lost.
pub(crate) trait Subscriber: Send + Sync + fmt::Debug {
    fn hear(&self, master: usize, heard: ChannelEvent<'_>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelEvent<'a> {
    /// The connection is gone, and so is what is published until there is another.
    Disconnected,
    /// Messages will be heard from now on.
    Subscribed,
    /// What was published.
    Message(&'a str),
    /// The master will not tell of anything.
    Denied,
}

/// A channel to subscribe to, or not any more.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) channel: Arc<str>,
    pub(super) listen: bool,
}

#[derive(Debug)]
enum Phase {
    /// The first dial is under way: asks wait for it.
    Dialling,
    /// Asks fail at once.
    Down(Failure),
    Serving,
}

impl Mailbox {
    /// The most asks that wait for the first dial.
    const MOST_WAITING: usize = 4_096;

    pub(crate) fn new(
        master: usize,
        address: Arc<str>,
        now: fn() -> Instant,
        least_timeout: Duration,
    ) -> Self {
        Self {
            timeout: AtomicU64::new(0),
            least_timeout,
            master,
            address,
            now,
            is_serving: AtomicBool::new(false),
            state: Mutex::new(State {
                phase: Phase::Dialling,
                asks: Vec::new(),
                owed: Owed::new(),
                subscribers: BTreeMap::new(),
                changes: Vec::new(),
                waker: None,
                quarantine: None,
                abandoned: false,
            }),
        }
    }

    pub(crate) fn master(&self) -> usize {
        self.master
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Leaves `ask` for the master. While it is down the vote is cast before this returns.
    pub(crate) fn post(&self, ask: Arc<Request>) {
        let mut state = self.state.lock();
        let failure = match (&state.phase, state.quarantined(&ask, self.now)) {
            (Phase::Dialling | Phase::Serving, Some(failure)) => failure,
            (Phase::Dialling, None)
                if state.asks.len() >= Self::MOST_WAITING
                    && ask.counter.owed_until(self.master).is_none() =>
            {
                Failure::Unreachable("still connecting, and too many commands wait".into())
            }
            (Phase::Dialling | Phase::Serving, None) => {
                state.asks.push(ask);
                if state.asks.len() == 1 {
                    state.wake();
                }
                return;
            }
            (Phase::Down(failure), _) => failure.clone(),
        };
        state.owe(self.master, &ask);
        drop(state);
        self.fail_one(&ask, failure);
    }

    /// How long the master may take to answer; `None` until the first dial is over.
    pub(crate) fn node_timeout(&self) -> Option<Duration> {
        match self.timeout.load(Ordering::Relaxed) {
            0 => None,
            timeout => Some(Duration::from_micros(timeout)),
        }
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(micros(timeout), Ordering::Relaxed);
    }

    /// Whether there is a connection, or was just now.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    /// Has `subscriber` hear what is published on `channel`, over this connection and the next ones.
    pub(crate) fn subscribe(&self, channel: &Arc<str>, subscriber: Weak<dyn Subscriber>) {
        let mut state = self.state.lock();
        state
            .subscribers
            .entry(channel.clone())
            .or_default()
            .push(subscriber);
        // Also when others listen to it already: the confirmation is for all.
        state.change(channel, true);
    }

    pub(crate) fn unsubscribe(&self, channel: &Arc<str>, subscriber: &Weak<dyn Subscriber>) {
        let mut state = self.state.lock();
        let Some(subscribers) = state.subscribers.get_mut(channel) else {
            return;
        };
        subscribers.retain(|other| !other.ptr_eq(subscriber));
        if subscribers.is_empty() {
            state.subscribers.remove(channel);
            state.change(channel, false);
        }
    }

    /// Passes on what came over `channel`.
    pub(super) fn hear(&self, channel: &str, heard: ChannelEvent<'_>) {
        let subscribers: Vec<_> = {
            let state = self.state.lock();
            let subscribers = state.subscribers.get(channel).into_iter().flatten();
            subscribers.filter_map(Weak::upgrade).collect()
        };
        for subscriber in subscribers {
            subscriber.hear(self.master, heard);
        }
    }

    /// Nobody will post any more: the supervisor may end once all is delivered.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.abandoned = true;
        state.wake();
    }

    /// Moves what was posted to `asks` and `changes`, which are empty, and has `cx` woken when more
    /// comes.
    pub(super) fn take(
        &self,
        cx: &Context<'_>,
        asks: &mut Vec<Arc<Request>>,
        changes: &mut Vec<Change>,
    ) {
        let mut state = self.state.lock();
        mem::swap(&mut state.asks, asks);
        mem::swap(&mut state.changes, changes);
        state.wake_by(cx);
    }

    /// Whether nobody can post any more and nothing is left here.
    pub(super) fn is_done(&self) -> bool {
        self.state.lock().is_done()
    }

    /// While there is no connection: the next instant at which something here must be given up.
    /// Ready once nobody can post any more and nothing is left here.
    pub(super) fn poll_next_expiry(&self, cx: &Context<'_>) -> Poll<Option<Instant>> {
        let mut state = self.state.lock();
        state.wake_by(cx);
        if state.is_done() {
            return Poll::Ready(None);
        }
        match state.owed.next_expiry(self.master, self.now) {
            Some(at) => Poll::Ready(Some(at)),
            None => Poll::Pending,
        }
    }

    /// Gives up releases whose keys are gone by now.
    pub(super) fn expire(&self, now: Instant) {
        let (gone, is_news) = self.state.lock().owed.expire(self.master, now);
        drop(gone); // not under the lock: the last one may wake who waits for it
        if is_news {
            self.say_given_up();
        }
    }

    /// The master may have forgotten locks: it has no vote until then.
    pub(super) fn quarantine(&self, until: Instant) {
        let mut state = self.state.lock();
        state.quarantine = Some(until);
        let (asks, others) = mem::take(&mut state.asks)
            .into_iter()
            .partition::<Vec<_>, _>(|ask| ask.command.verb().quarantine_applies());
        state.asks = others;
        let left = until.saturating_duration_since((self.now)());
        drop(state);
        for ask in asks {
            self.fail_one(&ask, Failure::Quarantined { left });
        }
    }

    /// The connection serves from now on, with this node timeout. Returns what is owed.
    pub(super) fn serve(&self, timeout: Duration) -> Owed {
        self.set_timeout(timeout);
        let mut state = self.state.lock();
        state.phase = Phase::Serving;
        self.is_serving.store(true, Ordering::Relaxed);
        state.changes = state
            .subscribers
            .keys()
            .map(|channel| Change {
                channel: channel.clone(),
                listen: true,
            })
            .collect();
        mem::replace(&mut state.owed, Owed::new())
    }

    /// The connection is gone: everything fails at once until there is another.
    pub(super) fn down_after(&self, in_flight: &mut InFlight<'_>, why: &Arc<str>) {
        let unsent = Failure::Unreachable(why.clone());
        let unknown = Failure::Disconnected(why.clone());
        self.down(in_flight.take_unanswered(unknown, unsent), why);
    }

    /// There is no connection: everything fails at once until there is one. `unanswered` comes with
    /// its vote if that is still open.
    pub(super) fn down(
        &self,
        unanswered: impl IntoIterator<Item = (Arc<Request>, Option<Failure>)>,
        why: &Arc<str>,
    ) {
        let unsent = Failure::Unreachable(why.clone());
        if self.node_timeout().is_none() {
            self.set_timeout(self.least_timeout);
        }
        let mut state = self.state.lock();
        state.phase = Phase::Down(unsent.clone());
        self.is_serving.store(false, Ordering::Relaxed);
        let queued = mem::take(&mut state.asks);
        let subscribers: Vec<_> = state
            .subscribers
            .values()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect();
        drop(state);
        let queued = queued.into_iter().map(|ask| (ask, Some(unsent.clone())));
        self.fail(unanswered.into_iter().chain(queued).collect());
        for subscriber in subscribers {
            subscriber.hear(self.master, ChannelEvent::Disconnected);
        }
    }

    /// The supervisor is gone for good: nothing waits here any more, and nothing will.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Down(Failure::Closed);
        self.is_serving.store(false, Ordering::Relaxed);
        let queued = mem::take(&mut state.asks);
        let owed = mem::replace(&mut state.owed, Owed::new());
        drop(state);
        drop(owed); // not under the lock: the last one may wake who waits for it
        for ask in queued {
            self.fail_one(&ask, Failure::Closed);
        }
    }

    fn fail_one(&self, ask: &Request, failure: Failure) {
        ask.counter
            .count(self.master, Vote::Fail(failure), (self.now)());
    }

    /// Casts the votes that are open, in order and without the lock, as whoever is woken may post. Then
    /// keeps what the master is owed, which may hang on just these votes.
    fn fail(&self, asks: Vec<(Arc<Request>, Option<Failure>)>) {
        for (ask, failure) in &asks {
            if let Some(failure) = failure {
                self.fail_one(ask, failure.clone());
            }
        }
        let mut state = self.state.lock();
        for (ask, _) in &asks {
            state.owe(self.master, ask);
        }
    }

    /// Says that more is owed to the master than is kept for it.
    pub(super) fn say_given_up(&self) {
        let master = &self.address;
        shielded(|| {
            tracing::warn!(%master, "too many releases are owed: the oldest locks end with their TTL");
        });
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl State {
    /// Why the master is not asked, while it has no vote.
    fn quarantined(&self, ask: &Request, now: fn() -> Instant) -> Option<Failure> {
        let until = self.quarantine?;
        let left = until.saturating_duration_since(now());
        let has_vote = left.is_zero() || !ask.command.verb().quarantine_applies();
        (!has_vote).then_some(Failure::Quarantined { left })
    }

    /// A connection that is yet to be made subscribes to all that is listened to then.
    fn change(&mut self, channel: &Arc<str>, listen: bool) {
        if matches!(self.phase, Phase::Serving) {
            self.changes.push(Change {
                channel: channel.clone(),
                listen,
            });
            self.wake();
        }
    }

    fn is_done(&self) -> bool {
        self.abandoned && self.asks.is_empty() && self.owed.is_empty()
    }

    /// Keeps `ask` for the next connection, if the master is owed it.
    fn owe(&mut self, master: usize, ask: &Arc<Request>) {
        let is_closed = matches!(self.phase, Phase::Down(Failure::Closed));
        if !is_closed && ask.counter.owed_until(master).is_some() {
            self.owed.push(ask.clone());
            self.wake();
        }
    }

    fn wake_by(&mut self, cx: &Context<'_>) {
        match &self.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => self.waker = Some(cx.waker().clone()),
        }
    }

    /// Under the lock: the supervisor is a task of tokio's, which is only scheduled by this.
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}
