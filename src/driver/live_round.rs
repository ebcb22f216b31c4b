//! A round while its votes come in, and the tasks that wait for it.

use std::{
    future::poll_fn,
    mem,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{
    clock,
    core::{
        time::tick::{LeaseTick, Tick},
        vote::{
            SlotVote, Vote,
            quorum::Outcome,
            round::{CastVote, Round},
        },
    },
    driver::observe::observer::LockObserver,
    master::VoteCounter,
    panics::{caught, shielded},
};

/// A round that masters vote in. The task that serves the masters casts their votes. If a master is
/// down, the task that posts the command casts a failure at once.
#[derive(Debug)]
pub(crate) struct LiveRound {
    state: Mutex<LiveRoundState>,
    /// Set if the last vote brought an event that a task waits for. Most votes bring no such event,
    /// and after these votes the state is not locked a second time.
    must_wake: AtomicBool,
    observer: Arc<LockObserver>,
}

#[derive(Debug)]
struct LiveRoundState {
    round: Round,
    waiting: Waiting,
}

/// The tasks that wait, each for an event. One task needs no allocation, because usually only one
/// task waits for the outcome.
type Waiting = SmallVec<[(RoundEvent, Waker); 1]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundEvent {
    Decided,
    /// Every master has voted.
    Settled,
    /// A master has voted.
    Voted,
}

impl RoundEvent {
    /// Returns whether the event has come with the last vote.
    fn has_come(self, round: &Round) -> bool {
        self == Self::Voted || self.is_over(round)
    }

    /// Returns whether the event has come, and cannot come again.
    fn is_over(self, round: &Round) -> bool {
        match self {
            Self::Decided => round.outcome() != Outcome::Pending,
            Self::Settled | Self::Voted => round.is_settled(),
        }
    }
}

impl LiveRound {
    pub(crate) fn open(round: Round, observer: &Arc<LockObserver>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(LiveRoundState {
                round,
                waiting: SmallVec::new(),
            }),
            must_wake: AtomicBool::new(false),
            observer: observer.clone(),
        })
    }

    /// Waits until the outcome is certain.
    pub(crate) async fn decided(&self) -> Outcome {
        self.after(RoundEvent::Decided, || {
            let outcome = self.read(Round::outcome);
            (outcome != Outcome::Pending).then_some(outcome)
        })
        .await
    }

    /// Waits until `master` has voted.
    pub(crate) async fn voted(&self, master: usize) -> Vote {
        self.until(|| self.read(|round| round.vote(master).cloned()))
            .await
    }

    /// Waits until `look` returns `Some`. Calls `look` at once, and then again after every vote.
    pub(crate) async fn until<T>(&self, look: impl Fn() -> Option<T>) -> T {
        self.after(RoundEvent::Voted, look).await
    }

    /// Waits until every master has voted. The vote of a master that does not answer in time is a
    /// failure.
    pub(crate) async fn settled(&self) {
        self.after(RoundEvent::Settled, || {
            self.read(Round::is_settled).then_some(())
        })
        .await;
    }

    async fn after<T>(&self, event: RoundEvent, look: impl Fn() -> Option<T>) -> T {
        poll_fn(|cx| {
            let seen = look().or_else(|| {
                self.wake_after(event, cx.waker().clone());
                look() // the event may have come before the waker was known
            });
            seen.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Keeps `waker` for `event`, if the event can still come. Cloning or dropping a waker runs
    /// code of the program. So the caller clones the waker, and a waker that is not kept is dropped
    /// after the unlock.
    fn wake_after(&self, event: RoundEvent, waker: Waker) {
        let mut state = self.state.lock();
        let is_this =
            |(known, other): &(RoundEvent, Waker)| *known == event && other.will_wake(&waker);
        if !event.is_over(&state.round) && !state.waiting.iter().any(is_this) {
            state.waiting.push((event, waker));
        }
    }

    pub(crate) fn votes(&self) -> Box<[Option<CastVote>]> {
        self.read(|round| round.votes().into())
    }

    #[inline]
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Round) -> T) -> T {
        look(&self.state.lock().round)
    }

    /// Returns the time from the start of the round to `now`.
    pub(crate) fn elapsed(&self, now: LeaseTick) -> Duration {
        self.read(|round| now.since(round.start()))
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.read(Round::outcome) == Outcome::Pending
    }

    /// Counts a vote that was read at `now` on the monotonic clock. Then calls `look` with the
    /// round and with the outcome before the vote, and returns the result of `look`. Does not wake
    /// the tasks that wait: [`wake`](Self::wake) does that.
    pub(crate) fn count_and_look<T>(
        &self,
        master: usize,
        vote: SlotVote,
        now: Tick,
        look: impl FnOnce(&Round, Outcome) -> T,
    ) -> T {
        let now = clock::from_monotonic(now);
        let mut state = self.state.lock();
        let before = state.round.outcome();
        state.round.count_vote(master, vote, now);
        let seen = look(&state.round, before);
        let is_decided = state.round.was_decided_after(before);
        let has_come = |(event, _): &(RoundEvent, Waker)| event.has_come(&state.round);
        if state.waiting.iter().any(has_come) {
            self.must_wake.store(true, Ordering::Relaxed);
        }
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
    pub(crate) fn record(&self, now: LeaseTick) {
        self.observer.record_round(|| {
            let (verb, outcome) = self.read(|round| (round.verb(), round.outcome()));
            (verb, outcome, self.elapsed(now))
        });
    }

    /// Decides that the round has no majority, unless the round is decided already. Wakes no task,
    /// so only the task that waits for the outcome may call this method.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.lock();
        if state.round.outcome() == Outcome::Pending {
            state.round.give_up();
            drop(state);
            self.record(clock::now());
        }
    }

    /// Notes the answer of `master` to the command that puts the key back.
    pub(crate) fn note_heal(&self, master: usize, vote: Vote) {
        self.state.lock().round.note_heal(master, vote);
    }

    /// Wakes the tasks that no longer have to wait.
    pub(crate) fn wake(&self) {
        if !self.must_wake.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        self.must_wake.store(false, Ordering::Relaxed);
        let LiveRoundState { round, waiting } = &mut *state;
        let mut woken = Waiting::new();
        for task in mem::take(waiting) {
            let tasks = if task.0.has_come(round) {
                &mut woken
            } else {
                &mut *waiting
            };
            tasks.push(task);
        }
        drop(state); // a task that is woken may lock the state at once
        let mut panicked = None;
        for (_, waker) in woken {
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

impl VoteCounter for Arc<LiveRound> {
    fn count(&self, master: usize, vote: SlotVote, now: Tick) {
        self.count_and_look(master, vote, now, |_, _| {});
    }

    fn wake(&self) {
        (**self).wake();
    }
}

/// Ignores all votes, for requests whose votes do not matter.
impl VoteCounter for () {
    fn count(&self, _master: usize, _vote: SlotVote, _now: Tick) {}
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::core::vote::{Verb, quorum::Quorum};

    #[tokio::test]
    async fn a_round_keeps_no_waker_after_its_last_vote() {
        let observer = Arc::new(LockObserver::new(None));
        for event in [RoundEvent::Decided, RoundEvent::Settled, RoundEvent::Voted] {
            let round = Round::open(Verb::Acquire, &Quorum::of(3), clock::now(), None);
            let round = LiveRound::open(round, &observer);
            let is_first = Cell::new(true);
            // All votes come between the first look and the registration of the waker.
            let look = || {
                if !is_first.replace(false) {
                    return Some(());
                }
                for master in 0..3 {
                    round.count(master, Vote::Grant.into(), clock::monotonic());
                }
                round.wake();
                None
            };
            round.after(event, look).await;
            let kept = round.state.lock().waiting.len();
            assert_eq!(kept, 0, "{event:?}");
        }
    }
}
