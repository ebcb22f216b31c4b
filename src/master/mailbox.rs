//! Where callers leave what they ask of one master, and its supervisor picks it up.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Instant,
};

use parking_lot::Mutex;

use super::Ask;
use crate::core::quorum::{Failure, Vote};

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
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    asks: Vec<Arc<Ask>>,
    /// What could not be delivered and must be, in order.
    owed: VecDeque<Arc<Ask>>,
    /// Who listens to which channel, on this connection and the next ones.
    ears: BTreeMap<Arc<str>, Vec<Weak<dyn Ear>>>,
    /// What the server does not know of that yet, in order.
    changes: Vec<Change>,
    waker: Option<Waker>,
    /// Until when the master has no vote, as it may have forgotten locks.
    quarantine: Option<Instant>,
    abandoned: bool,
}

/// Whoever wants to hear of releases on a channel. Hearing is a hint: messages get lost.
pub(crate) trait Ear: Send + Sync + fmt::Debug {
    fn hear(&self, master: usize, heard: Heard<'_>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// The connection is gone, and so is what is published until there is another.
    Deaf,
    /// Messages will be heard from now on.
    Listening,
    /// What was published.
    Message(&'a str),
    /// The master will not tell of anything.
    Refused,
}

/// A channel to subscribe to, or not any more.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) channel: Arc<str>,
    pub(super) listen: bool,
}

#[derive(Debug)]
enum Phase {
    /// The first dial is under way: asks wait for it until their deadline.
    Dialling,
    /// Asks fail at once.
    Down(Failure),
    Serving,
}

impl Mailbox {
    pub(crate) fn new(master: usize, address: Arc<str>, now: fn() -> Instant) -> Self {
        Self {
            master,
            address,
            now,
            is_serving: AtomicBool::new(false),
            state: Mutex::new(State {
                phase: Phase::Dialling,
                asks: Vec::new(),
                owed: VecDeque::new(),
                ears: BTreeMap::new(),
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

    pub(super) fn clock(&self) -> fn() -> Instant {
        self.now
    }

    pub(crate) fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Leaves `ask` for the master. While it is down the vote is cast before this returns.
    pub(crate) fn post(&self, ask: Arc<Ask>) {
        let mut state = self.state.lock();
        let failure = match (&state.phase, state.quarantined(&ask, self.now)) {
            (Phase::Dialling | Phase::Serving, Some(failure)) => failure,
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

    /// Whether there is a connection, or was just now.
    pub(crate) fn is_serving(&self) -> bool {
        self.is_serving.load(Ordering::Relaxed)
    }

    /// Whether the first dial is still under way.
    pub(crate) fn is_dialling(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Dialling)
    }

    /// Has `ear` hear what is published on `channel`, over this connection and the next ones.
    pub(crate) fn listen(&self, channel: &Arc<str>, ear: Weak<dyn Ear>) {
        let mut state = self.state.lock();
        state.ears.entry(channel.clone()).or_default().push(ear);
        // Also when others listen to it already: the confirmation is for all.
        state.change(channel, true);
    }

    pub(crate) fn stop_listening(&self, channel: &Arc<str>, ear: &Weak<dyn Ear>) {
        let mut state = self.state.lock();
        let Some(ears) = state.ears.get_mut(channel) else {
            return;
        };
        ears.retain(|other| !other.ptr_eq(ear));
        if ears.is_empty() {
            state.ears.remove(channel);
            state.change(channel, false);
        }
    }

    /// Passes on what came over `channel`.
    pub(super) fn hear(&self, channel: &str, heard: Heard<'_>) {
        let ears: Vec<_> = {
            let state = self.state.lock();
            let ears = state.ears.get(channel).into_iter().flatten();
            ears.filter_map(Weak::upgrade).collect()
        };
        for ear in ears {
            ear.hear(self.master, heard);
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
        asks: &mut Vec<Arc<Ask>>,
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
        let ask = state.asks.first().map(|ask| ask.deadline);
        let owed = state
            .owed
            .front()
            .and_then(|ask| ask.counter.owed_until(self.master));
        match (ask, owed) {
            (Some(ask), Some(owed)) => Poll::Ready(Some(ask.min(owed))),
            (Some(at), None) | (None, Some(at)) => Poll::Ready(Some(at)),
            (None, None) => Poll::Pending,
        }
    }

    /// Gives up what is past its time: asks that waited for the first dial, and debts whose keys are
    /// gone by now.
    pub(super) fn expire(&self, now: Instant) {
        let master = self.master;
        let mut state = self.state.lock();
        state.owed.retain(|ask| {
            ask.counter
                .owed_until(master)
                .is_some_and(|until| until > now)
        });
        let (late, waiting) = mem::take(&mut state.asks)
            .into_iter()
            .partition(|ask| ask.deadline <= now);
        state.asks = waiting;
        drop(state);
        let unsent = Failure::Unreachable("still connecting".into());
        let late = late.into_iter().map(|ask| (ask, Some(&unsent)));
        self.fail(late.collect());
    }

    /// The master may have forgotten locks: it has no vote until then.
    pub(super) fn quarantine(&self, until: Instant) {
        let mut state = self.state.lock();
        state.quarantine = Some(until);
        let (asks, others) = mem::take(&mut state.asks)
            .into_iter()
            .partition::<Vec<_>, _>(|ask| ask.command.verb.needs_memory());
        state.asks = others;
        let left = until.saturating_duration_since((self.now)());
        drop(state);
        for ask in asks {
            self.fail_one(&ask, Failure::Quarantined { left });
        }
    }

    /// The connection serves from now on. Returns what is owed, to be sent before what is posted here.
    pub(super) fn serve(&self) -> VecDeque<Arc<Ask>> {
        let mut state = self.state.lock();
        state.phase = Phase::Serving;
        self.is_serving.store(true, Ordering::Relaxed);
        state.changes = state
            .ears
            .keys()
            .map(|channel| Change {
                channel: channel.clone(),
                listen: true,
            })
            .collect();
        mem::take(&mut state.owed)
    }

    /// The connection is gone: everything fails at once until there is another. `unanswered` was sent,
    /// with whether its vote is still open; what is queued was not.
    pub(super) fn down(
        &self,
        unanswered: impl IntoIterator<Item = (Arc<Ask>, bool)>,
        why: &Arc<str>,
    ) {
        let unsent = Failure::Unreachable(why.clone());
        let unknown = Failure::Disconnected(why.clone());
        let mut state = self.state.lock();
        state.phase = Phase::Down(unsent.clone());
        self.is_serving.store(false, Ordering::Relaxed);
        let queued = mem::take(&mut state.asks);
        let ears: Vec<_> = state
            .ears
            .values()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect();
        drop(state);
        let unanswered = unanswered
            .into_iter()
            .map(|(ask, is_open)| (ask, is_open.then_some(&unknown)));
        let queued = queued.into_iter().map(|ask| (ask, Some(&unsent)));
        self.fail(unanswered.chain(queued).collect());
        for ear in ears {
            ear.hear(self.master, Heard::Deaf);
        }
    }

    /// The supervisor is gone for good: nothing waits here any more, and nothing will.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Down(Failure::Closed);
        self.is_serving.store(false, Ordering::Relaxed);
        let queued = mem::take(&mut state.asks);
        let owed = mem::take(&mut state.owed);
        drop(state);
        drop(owed); // not under the lock: the last one may wake who waits for it
        for ask in queued {
            self.fail_one(&ask, Failure::Closed);
        }
    }

    fn fail_one(&self, ask: &Ask, failure: Failure) {
        ask.counter
            .count(self.master, Vote::Fail(failure), (self.now)());
    }

    /// Casts the votes that are open, in order and without the lock, as whoever is woken may post. Then
    /// keeps what the master is owed, which may hang on just these votes.
    fn fail(&self, asks: Vec<(Arc<Ask>, Option<&Failure>)>) {
        for (ask, failure) in &asks {
            if let Some(failure) = failure {
                self.fail_one(ask, (*failure).clone());
            }
        }
        let mut state = self.state.lock();
        for (ask, _) in &asks {
            state.owe(self.master, ask);
        }
    }
}

impl State {
    /// Why the master is not asked, while it has no vote.
    fn quarantined(&self, ask: &Ask, now: fn() -> Instant) -> Option<Failure> {
        let until = self.quarantine?;
        let left = until.saturating_duration_since(now());
        let has_vote = left.is_zero() || !ask.command.verb.needs_memory();
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
    fn owe(&mut self, master: usize, ask: &Arc<Ask>) {
        let is_closed = matches!(self.phase, Phase::Down(Failure::Closed));
        if !is_closed && ask.counter.owed_until(master).is_some() {
            self.owed.push_back(ask.clone());
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
