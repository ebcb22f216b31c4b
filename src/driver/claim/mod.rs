//! A claim on a lock: what it may have left on the masters, how it is kept, and how it is released.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    context::Context,
    live_round::LiveRound,
    observe::{observer::HoldEnd, span::LockSpan},
    renew::schedule::TimerKey,
    signal::Signal,
    time::clock,
};
use crate::{
    core::{
        claim::{ClaimState, Terms},
        view::lock_state::{LockState, LostReason},
        vote::{Slot, votes::Votes},
    },
    meter::Counted,
};

pub(crate) mod ask;
pub(crate) mod extension;
pub(crate) mod level;
mod locked;
pub(crate) mod owned_lock;
pub(crate) mod request;

/// A claim on a lock, from its first round to its release.
#[derive(Debug)]
pub(crate) struct Claim {
    context: Arc<Context>,
    terms: Terms,
    /// The start of the first round, on the monotonic clock.
    began: Instant,
    state: Mutex<Protected>,
    has_hold_begun: AtomicBool,
    /// Notified when the lock is lost.
    changed: Signal,
}

#[derive(Debug)]
struct Protected {
    claim: ClaimState<Arc<LiveRound>>,
    /// Set from the win to the release or the loss.
    hold: Option<LockSpan>,
    timer: Option<TimerKey>,
}

impl Claim {
    pub(crate) fn name(&self) -> &Arc<str> {
        self.terms.resource.name()
    }

    /// Returns the number of guards.
    pub(crate) fn depth(&self) -> u32 {
        self.read(|claim| claim.depth)
    }

    /// Returns the number of rounds in which this claim has asked for the lock.
    pub(crate) fn rounds(&self) -> u32 {
        self.read(|claim| claim.rounds)
    }

    /// Returns the newest round: the acquisition, or the last extension.
    pub(crate) fn newest_round(&self) -> Arc<LiveRound> {
        self.read(|claim| claim.newest.clone())
    }

    /// Returns the fencing token, if the lock is fenced.
    pub(crate) fn fencing_token(&self) -> Option<u64> {
        self.read(ClaimState::fencing_token)
    }

    /// Returns the slot that was won, if the lock has slots.
    pub(crate) fn slot(&self) -> Slot {
        self.read(ClaimState::slot)
    }

    /// Returns the time that was left of the lease when the lock was won or last extended.
    pub(crate) fn validity(&self) -> Duration {
        self.read(|claim| claim.validity)
    }

    /// Returns the least time for which this process did not run before the lock was lost, if that
    /// is known to be a reason for the loss.
    pub(crate) fn stalled(&self) -> Option<Duration> {
        self.read(ClaimState::stalled)
    }

    /// Returns the end of the lease, on the clock of [`Instant`]. If a step of the wall clock moves
    /// the end before the start of the first round, returns that start.
    pub(crate) fn valid_until(&self) -> Instant {
        let lease = self.read(|claim| claim.lease);
        clock::to_monotonic(lease.until(), self.began)
    }

    pub(crate) fn state(&self) -> LockState {
        self.lock().step(ClaimState::look)
    }

    /// Returns the time that is left of the lease. It is zero once the lock is lost.
    pub(crate) fn remaining(&self) -> Duration {
        self.lock().step(|claim, step| match claim.look(step) {
            LockState::Held | LockState::InDoubt => claim.lease.remaining(step.now),
            LockState::Lost(_) => Duration::ZERO,
        })
    }

    /// Waits until the lock is lost.
    pub(crate) async fn lost(&self) -> LostReason {
        let check = || match self.state() {
            LockState::Lost(reason) => ControlFlow::Break(reason),
            // This task has its own timer for the end of the lease. The timer fires even if every
            // renewal hangs.
            LockState::Held | LockState::InDoubt => {
                ControlFlow::Continue(Some(self.read(|claim| claim.lease).until()))
            }
        };
        self.changed.wait(&self.context.timers, check).await
    }

    /// Waits until every master has voted in `round`, at most for a node timeout.
    pub(crate) async fn settled_in_time(&self, round: &LiveRound) {
        self.context.settled_in_time(round).await;
    }

    pub(crate) fn votes(&self, round: &LiveRound) -> Votes {
        self.context.masters.votes(round)
    }

    /// Ends the hold, unless it has not begun or has ended before.
    fn end_hold(&self, end: HoldEnd) {
        let hold = self.state.lock().hold.take();
        if let Some(hold) = hold {
            let observer = &self.context.observer;
            observer.end_hold(&self.terms.resource, &hold, end);
        }
    }

    /// Counts a guard, as long as the returned value exists.
    pub(crate) fn count_guard(&self) -> Option<Counted> {
        self.context.observer.count_guard(&self.terms.resource)
    }

    /// Returns the span of the hold. It is empty if there is no hold.
    fn hold_span(&self) -> LockSpan {
        self.state.lock().hold.clone().unwrap_or_default()
    }
}
