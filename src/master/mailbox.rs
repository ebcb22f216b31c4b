//! Where callers leave what they ask of one master, and its supervisor picks it up.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
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
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    asks: Vec<Arc<Ask>>,
    /// What could not be delivered and must be, in order.
    owed: VecDeque<Arc<Ask>>,
    waker: Option<Waker>,
    abandoned: bool,
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
    pub(crate) fn new(master: usize, address: Arc<str>) -> Self {
        Self {
            master,
            address,
            state: Mutex::new(State {
                phase: Phase::Dialling,
                asks: Vec::new(),
                owed: VecDeque::new(),
                waker: None,
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
    pub(crate) fn post(&self, ask: Arc<Ask>) {
        let mut state = self.state.lock();
        let failure = match &state.phase {
            Phase::Dialling | Phase::Serving => {
                state.asks.push(ask);
                if state.asks.len() == 1 {
                    state.wake();
                }
                return;
            }
            Phase::Down(failure) => failure.clone(),
        };
        state.owe(self.master, &ask);
        drop(state);
        ask.counter.count(self.master, Vote::Fail(failure));
    }

    /// Nobody will post any more: the supervisor may end once all is delivered.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.abandoned = true;
        state.wake();
    }

    /// Moves what was posted to `asks`, which is empty, and has `cx` woken when more comes.
    pub(super) fn take_asks(&self, cx: &Context<'_>, asks: &mut Vec<Arc<Ask>>) {
        let mut state = self.state.lock();
        mem::swap(&mut state.asks, asks);
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
        let owed = state.owed.front().and_then(|ask| ask.owed_to(self.master));
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
        state
            .owed
            .retain(|ask| ask.owed_to(master).is_some_and(|until| until > now));
        let (late, waiting) = mem::take(&mut state.asks)
            .into_iter()
            .partition(|ask| ask.deadline <= now);
        state.asks = waiting;
        self.fail(
            state,
            late,
            &Failure::Unreachable("still connecting".into()),
        );
    }

    /// The connection serves from now on. Returns what is owed, to be sent before what is posted here.
    pub(super) fn serve(&self) -> VecDeque<Arc<Ask>> {
        let mut state = self.state.lock();
        state.phase = Phase::Serving;
        mem::take(&mut state.owed)
    }

    /// The connection is gone: everything fails at once until there is another. `unanswered` was sent,
    /// with whether its vote is still open; what is queued was not.
    pub(super) fn down(
        &self,
        unanswered: impl IntoIterator<Item = (Arc<Ask>, bool)>,
        why: &Arc<str>,
    ) {
        let mut state = self.state.lock();
        let unreachable = Failure::Unreachable(why.clone());
        state.phase = Phase::Down(unreachable.clone());
        let mut open = Vec::new();
        for (ask, is_open) in unanswered {
            state.owe(self.master, &ask);
            if is_open {
                open.push(ask);
            }
        }
        let queued = mem::take(&mut state.asks);
        self.fail(state, queued, &unreachable);
        for ask in open {
            let failure = Failure::Disconnected(why.clone());
            ask.counter.count(self.master, Vote::Fail(failure));
        }
    }

    /// The supervisor is gone for good: nothing waits here any more, and nothing will.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Down(Failure::Closed);
        let queued = mem::take(&mut state.asks);
        let owed = mem::take(&mut state.owed);
        drop(state);
        drop(owed); // not under the lock: the last one may wake who waits for it
        for ask in queued {
            ask.counter.count(self.master, Vote::Fail(Failure::Closed));
        }
    }

    /// Casts the votes of `asks`, which were never sent, without the lock: whoever is woken may post.
    fn fail(
        &self,
        mut state: parking_lot::MutexGuard<'_, State>,
        asks: Vec<Arc<Ask>>,
        failure: &Failure,
    ) {
        for ask in &asks {
            state.owe(self.master, ask);
        }
        drop(state);
        for ask in asks {
            ask.counter.count(self.master, Vote::Fail(failure.clone()));
        }
    }
}

impl State {
    fn is_done(&self) -> bool {
        self.abandoned && self.asks.is_empty() && self.owed.is_empty()
    }

    /// Keeps `ask` for the next connection, if the master is owed it.
    fn owe(&mut self, master: usize, ask: &Arc<Ask>) {
        let is_closed = matches!(self.phase, Phase::Down(Failure::Closed));
        if !is_closed && ask.owed_to(master).is_some() {
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
