//! A round while its votes come in, and the tasks that wait for it.

use std::{
    future::poll_fn,
    mem,
    panic::resume_unwind,
    sync::Arc,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    core::{
        time::lease::LeaseTime,
        vote::{
            SlotVote, Vote,
            quorum::Outcome,
            round::{CastVote, Round},
        },
    },
    driver::{observe::observer::LockObserver, time::clock},
    master::CountVotes,
    user_code::{caught, shielded},
};

/// A round that masters vote in. The task that serves a master casts the vote of that master.
#[derive(Debug)]
pub(crate) struct LiveRound {
    state: Mutex<LiveRoundState>,
    observer: Arc<LockObserver>,
}

#[derive(Debug)]
struct LiveRoundState {
    round: Round,
    /// The task that waits for the outcome.
    decided: Option<Waker>,
    /// The task that looks at the votes as they come in.
    voted: Option<Waker>,
    /// The tasks that wait for all votes.
    settled: Vec<Waker>,
}

impl LiveRound {
    pub(crate) fn open(round: Round, observer: &Arc<LockObserver>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(LiveRoundState {
                round,
                decided: None,
                voted: None,
                settled: Vec::new(),
            }),
            observer: observer.clone(),
        })
    }

    /// Waits until the outcome is certain. Only the task that posted the round may wait here. The
    /// round keeps a single waker, so a second task would replace the waker of the first.
    pub(crate) async fn decided(&self) -> Outcome {
        poll_fn(|cx| {
            match self.read(Round::outcome) {
                Outcome::Pending => {}
                outcome => return Poll::Ready(outcome),
            }
            // A waker runs code of the program, so it is cloned and dropped while the state is
            // unlocked.
            let mut waker = Some(cx.waker().clone());
            let mut state = self.state.lock();
            match state.round.outcome() {
                Outcome::Pending => {
                    mem::swap(&mut state.decided, &mut waker);
                    drop(state);
                    Poll::Pending
                }
                outcome => Poll::Ready(outcome),
            }
        })
        .await
    }

    /// Waits until `master` has voted. Only the task that posted the round may wait here.
    pub(crate) async fn voted(&self, master: usize) -> Vote {
        self.until(|| self.read(|round| round.vote(master).cloned()))
            .await
    }

    /// Waits until `look` returns `Some`. Calls `look` at once, and then again after every vote.
    /// Only the task that posted the round may wait here.
    pub(crate) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        poll_fn(|cx| {
            // The task registers before it looks, to miss no vote. Wakers are cloned and dropped
            // while the state is unlocked.
            let waker = cx.waker().clone();
            let old = self.state.lock().voted.replace(waker);
            drop(old);
            let Some(seen) = look() else {
                return Poll::Pending;
            };
            let waker = self.state.lock().voted.take();
            drop(waker);
            Poll::Ready(seen)
        })
        .await
    }

    /// Waits until every master has voted. The vote of a master that does not answer in time is a
    /// failure.
    pub(crate) async fn settled(&self) {
        poll_fn(|cx| {
            if self.read(Round::is_settled) {
                return Poll::Ready(());
            }
            // `waker` is declared before `state`. If the waker is not kept, it is dropped after the
            // state is unlocked.
            let waker = cx.waker().clone();
            let mut state = self.state.lock();
            if state.round.is_settled() {
                return Poll::Ready(());
            }
            if !state.settled.iter().any(|other| other.will_wake(&waker)) {
                state.settled.push(waker);
            }
            Poll::Pending
        })
        .await;
    }

    pub(crate) fn votes(&self) -> Box<[Option<CastVote>]> {
        self.read(|round| round.votes().into())
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&Round) -> T) -> T {
        look(&self.state.lock().round)
    }

    /// Returns the time from the start of the round to `now`.
    pub(crate) fn elapsed(&self, now: LeaseTime) -> Duration {
        self.read(|round| now.saturating_duration_since(round.start()))
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.read(Round::outcome) == Outcome::Pending
    }

    /// Counts a vote that was read at `now` on the monotonic clock. Then calls `look` with the
    /// round and with the outcome before the vote, and returns the result of `look`. Wakes no task:
    /// [`wake`](Self::wake) does.
    pub(crate) fn cast<T>(
        &self,
        master: usize,
        vote: SlotVote,
        now: Instant,
        look: impl FnOnce(&Round, Outcome) -> T,
    ) -> T {
        let now = clock::from_monotonic(now);
        let mut state = self.state.lock();
        let before = state.round.outcome();
        state.round.on_vote(master, vote, now);
        let seen = look(&state.round, before);
        let is_decided = state.round.was_decided_after(before);
        drop(state);
        if is_decided {
            self.record(now);
        }
        seen
    }

    pub(crate) fn observer(&self) -> &LockObserver {
        &self.observer
    }

    /// Tells the observer that the round is over at `now`.
    pub(crate) fn record(&self, now: LeaseTime) {
        self.observer.record_round(|| {
            let (verb, outcome) = self.read(|round| (round.verb(), round.outcome()));
            (verb, outcome, self.elapsed(now))
        });
    }

    /// Decides that the round is lost, unless it is decided already. Wakes no task, so only the
    /// task that waits for the outcome may call this.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.lock();
        if state.round.outcome() == Outcome::Pending {
            state.round.give_up();
            drop(state);
            self.record(clock::now());
        }
    }

    /// Notes the answer of `master` when it was asked to put the key back.
    pub(crate) fn note_heal(&self, master: usize, vote: Vote) {
        self.state.lock().round.note_heal(master, vote);
    }

    /// Wakes the tasks that no longer have to wait.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if state.decided.is_none() && state.voted.is_none() && state.settled.is_empty() {
            return; // so it is for most votes
        }
        let is_decided = state.round.outcome() != Outcome::Pending;
        let voted = state.voted.take();
        let decided = state.decided.take_if(|_| is_decided);
        let settled = if state.round.is_settled() {
            mem::take(&mut state.settled)
        } else {
            Vec::new()
        };
        drop(state); // a task that is woken may lock the state at once
        let wakers = voted.into_iter().chain(decided).chain(settled);
        let mut panicked = None;
        for waker in wakers {
            match caught(|| waker.wake()) {
                Err(panic) if panicked.is_none() => panicked = Some(panic),
                woken => shielded(|| drop(woken)),
            }
        }
        if let Some(panic) = panicked {
            resume_unwind(panic); // after all tasks were woken
        }
    }
}

impl CountVotes for Arc<LiveRound> {
    fn count(&self, master: usize, vote: SlotVote, now: Instant) {
        self.cast(master, vote, now, |_, _| {});
    }

    fn wake(&self) {
        (**self).wake();
    }
}

/// Ignores all votes, for requests whose votes do not matter.
impl CountVotes for () {
    fn count(&self, _master: usize, _vote: SlotVote, _now: Instant) {}
}
