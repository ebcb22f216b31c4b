//! A round while its votes come in: who waits for it, and what a vote sets off.

use std::{
    future::poll_fn,
    mem,
    sync::{Arc, Weak},
    task::{Poll, Waker},
};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    clock,
    core::{
        quorum::Vote,
        round::{Outcome, Round},
        votes::CastVote,
    },
    engine::Debt,
    hold::Hold,
    master::{Ask, CountVotes},
};

/// A round that masters cast their votes into, from whatever task they are served by.
#[derive(Debug)]
pub(crate) struct LiveRound {
    state: Mutex<State>,
    /// Of an extension: the hold whose key is put back where it was lost.
    heals: Weak<Hold>,
    /// Of a release: alive until every master has been told, or cannot hold the key any more.
    _debt: Option<Debt>,
}

#[derive(Debug)]
struct State {
    round: Round,
    decided: Option<Waker>,
    settled: Vec<Waker>,
}

impl LiveRound {
    pub(crate) fn new(round: Round) -> Self {
        Self {
            state: Mutex::new(State {
                round,
                decided: None,
                settled: Vec::new(),
            }),
            heals: Weak::new(),
            _debt: None,
        }
    }

    pub(crate) fn healing(self, hold: Weak<Hold>) -> Self {
        Self {
            heals: hold,
            ..self
        }
    }

    pub(crate) fn owing(self, debt: Debt) -> Self {
        Self {
            _debt: Some(debt),
            ..self
        }
    }

    /// Waits until the outcome is certain. One task at a time.
    pub(crate) async fn decided(&self) -> Outcome {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            match state.round.outcome() {
                Outcome::Pending => {
                    state.decided = Some(cx.waker().clone());
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
            let mut state = self.state.lock();
            if state.round.is_settled() {
                return Poll::Ready(());
            }
            if !state
                .settled
                .iter()
                .any(|waker| waker.will_wake(cx.waker()))
            {
                state.settled.push(cx.waker().clone());
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

    pub(crate) fn healed(&self, master: usize) {
        self.state.lock().round.healed(master);
    }

    fn wake(mut state: MutexGuard<'_, State>) {
        let decided = match state.round.outcome() {
            Outcome::Pending => None,
            Outcome::Lost | Outcome::TooLate | Outcome::Won => state.decided.take(),
        };
        let settled = if state.round.is_settled() {
            mem::take(&mut state.settled)
        } else {
            Vec::new()
        };
        drop(state); // whoever wakes may look at once
        decided.into_iter().chain(settled).for_each(Waker::wake);
    }
}

impl CountVotes for LiveRound {
    fn count(&self, master: usize, vote: Vote) {
        let now = clock::now();
        let mut state = self.state.lock();
        let before = state.round.outcome();
        let after = state.round.on_vote(master, vote, now);
        let to_heal = match (before, after) {
            // The majority is confirmed: the others may have it back, whoever said so before or now.
            (Outcome::Pending, Outcome::Won) => state.round.lost_it(),
            (Outcome::Won, Outcome::Won) => state.round.lost_it() & 1 << master,
            _ => 0,
        };
        Self::wake(state);
        if to_heal != 0
            && let Some(hold) = self.heals.upgrade()
        {
            hold.heal(to_heal);
        }
    }
}

/// What the masters say to having the key put back.
#[derive(Debug)]
pub(crate) struct Healing {
    pub(crate) extension: Arc<Ask<LiveRound>>,
}

impl CountVotes for Healing {
    fn count(&self, master: usize, vote: Vote) {
        if vote == Vote::Grant {
            self.extension.counter.healed(master);
        }
    }
}
