//! A round while its votes come in: who waits for it, and what a vote sets off.

use std::{
    future::poll_fn,
    mem,
    sync::{Arc, Weak},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    core::{
        lease::{Lease, Ttl},
        master_set::MasterSet,
        quorum::Vote,
        round::{Outcome, Round},
        votes::CastVote,
    },
    driver::claim::Claim,
    driver::clock,
    driver::engine::PendingRelease,
    master::CountVotes,
    user_code::shielded,
};

/// A round that masters cast their votes into, from whatever task they are served by.
#[derive(Debug)]
pub(crate) struct LiveRound {
    state: Mutex<State>,
    extends: Option<Extends>,
}

/// What an extension is for.
#[derive(Debug)]
pub(crate) struct Extends {
    pub(crate) hold: Weak<Claim>,
    /// What the hold gets if a majority confirms.
    pub(crate) lease: Lease,
    pub(crate) ttl: Ttl,
}

#[derive(Debug)]
struct State {
    round: Round,
    decided: Option<Waker>,
    settled: Vec<Waker>,
}

impl LiveRound {
    pub(crate) fn of_acquisition(round: Round) -> Arc<Self> {
        Self::open(round, None)
    }

    pub(crate) fn of_extension(round: Round, extends: Extends) -> Arc<Self> {
        Self::open(round, Some(extends))
    }

    pub(crate) fn of_release(round: Round) -> Arc<Self> {
        Self::open(round, None)
    }

    fn open(round: Round, extends: Option<Extends>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                round,
                decided: None,
                settled: Vec::new(),
            }),
            extends,
        })
    }

    /// Waits until the outcome is certain. One task at a time: who posts a round waits for it.
    pub(crate) async fn decided(&self) -> Outcome {
        poll_fn(|cx| {
            match self.read(Round::outcome) {
                Outcome::Pending => {}
                outcome => return Poll::Ready(outcome),
            }
            // Cloned and dropped with the state unlocked, as both run code of the program's.
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

    /// Waits until every master has answered or was given up on.
    pub(crate) async fn settled(&self) {
        poll_fn(|cx| {
            if self.read(Round::is_settled) {
                return Poll::Ready(());
            }
            // As above, and dropped after the state, in whose scope it is not.
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

    pub(crate) fn read<T>(&self, ask: impl FnOnce(&Round) -> T) -> T {
        ask(&self.state.lock().round)
    }

    /// For how long it has been under way.
    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        self.read(|round| now.saturating_duration_since(round.start()))
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.read(Round::outcome) == Outcome::Pending
    }

    /// Whether no majority came together, or too late.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.read(Round::outcome), Outcome::Lost | Outcome::TooLate)
    }

    /// Whether the lock was ours at some time, by what is known after this round.
    pub(crate) fn was_won(&self) -> bool {
        self.extends.is_some() || self.read(Round::outcome) == Outcome::Won
    }

    /// Of an extension: the lease that a majority confirms with it.
    pub(crate) fn extended_to(&self) -> Option<Lease> {
        self.extends.as_ref().map(|extends| extends.lease)
    }

    fn wake(mut state: MutexGuard<'_, State>) {
        if state.round.outcome() == Outcome::Pending {
            return;
        }
        let decided = state.decided.take();
        let settled = if state.round.is_settled() {
            mem::take(&mut state.settled)
        } else {
            Vec::new()
        };
        drop(state); // whoever wakes may look at once
        for waker in decided.into_iter().chain(settled) {
            shielded(|| waker.wake());
        }
    }
}

impl Drop for LiveRound {
    /// Whoever waited has been woken, or did not wait to the end. Drops what is left of them.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let wakers = state.decided.take().into_iter();
        for waker in wakers.chain(mem::take(&mut state.settled)) {
            shielded(|| drop(waker));
        }
    }
}

impl CountVotes for Arc<LiveRound> {
    fn count(&self, master: usize, vote: Vote, now: Instant) {
        let now = clock::from_monotonic(now);
        // A failure may be counted by the very call that posts the round, under the hold's lock: only
        // answers may be passed on to the hold.
        let is_answer = !matches!(vote, Vote::Fail(_));
        let mut state = self.state.lock();
        let before = state.round.outcome();
        let after = state.round.on_vote(master, vote, now);
        let Some(extends) = self.extends.as_ref().filter(|_| is_answer) else {
            return LiveRound::wake(state);
        };
        let is_won_now = before == Outcome::Pending && after == Outcome::Won;
        let to_heal = match after {
            // The majority is confirmed: the others may have it back, whoever said so before or now.
            Outcome::Won if is_won_now => state.round.missing_key(),
            Outcome::Won => state.round.missing_key().and(MasterSet::only(master)),
            Outcome::Lost | Outcome::Pending | Outcome::TooLate => MasterSet::NONE,
        };
        let is_disowned = after == Outcome::Lost && state.round.is_disowned();
        drop(state);
        if let Some(hold) = extends.hold.upgrade() {
            if is_won_now {
                hold.renewed(self);
            }
            if is_disowned {
                hold.disowned();
            }
            if !to_heal.is_empty() {
                hold.heal(to_heal, extends.ttl, self);
            }
        }
        LiveRound::wake(self.state.lock());
    }
}

/// A release on its way. The count of those that are not delivered goes with it, and not with the round:
/// whoever looks at that keeps nobody waiting.
#[derive(Debug)]
pub(crate) struct PostedRelease {
    pub(crate) release: Arc<LiveRound>,
    /// When the last key that we may have written is gone by itself, on the monotonic clock.
    pub(crate) keys_until: Instant,
    /// Masters that may hold the key, a bit each, and the last round that may have put it anywhere.
    pub(crate) may_hold: MasterSet,
    pub(crate) newest: Arc<LiveRound>,
    pub(crate) _pending: PendingRelease,
}

impl CountVotes for PostedRelease {
    fn count(&self, master: usize, vote: Vote, now: Instant) {
        self.release.count(master, vote, now);
    }

    fn owed_until(&self, master: usize) -> Option<Instant> {
        let may_hold = self.may_hold | self.newest.read(Round::may_keep);
        may_hold.contains(master).then_some(self.keys_until)
    }
}

/// What the masters say to having the key put back.
#[derive(Debug)]
pub(crate) struct HealVotes {
    pub(crate) extension: Arc<LiveRound>,
}

impl CountVotes for HealVotes {
    fn count(&self, master: usize, vote: Vote, _now: Instant) {
        if vote == Vote::Grant {
            self.extension.state.lock().round.healed(master);
        }
    }
}

/// Nobody waits for the votes.
#[derive(Debug)]
pub(crate) struct IgnoreVotes;

impl CountVotes for IgnoreVotes {
    fn count(&self, _master: usize, _vote: Vote, _now: Instant) {}
}
