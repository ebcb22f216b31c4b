//! The state of a lock that was won: how long it is valid, and whether it was lost.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{
    Claim, State,
    announcement::{LockEvent, Locked},
};
use crate::{
    core::view::lock_state::{LockState, LostReason},
    driver::time::clock,
};

impl Claim {
    /// Returns whether the owner can acquire the lock once more.
    pub(crate) fn can_reenter(&self) -> bool {
        let now = clock::now();
        let mut state = self.lock();
        state.release.is_none() && !matches!(self.state_at(&mut state, now), LockState::Lost(_))
    }

    pub(crate) fn state(&self) -> LockState {
        let now = clock::now();
        self.state_at(&mut self.lock(), now)
    }

    /// Returns the time that was left of the lease when the lock was won or last extended.
    pub(crate) fn validity(&self) -> Duration {
        self.lock().validity
    }

    /// Returns the time that is left of the lease. It is zero once the lock is lost.
    pub(crate) fn remaining(&self) -> Duration {
        let now = clock::now();
        let mut state = self.lock();
        match self.state_at(&mut state, now) {
            LockState::Held | LockState::InDoubt => state.lease.remaining(now),
            LockState::Lost(_) => Duration::ZERO,
        }
    }

    /// Returns the end of the lease, on the clock of [`Instant`]. If a step of the wall clock moves
    /// the end before the start of the first round, returns that start.
    pub(crate) fn valid_until(&self) -> Instant {
        let until = self.lock().lease.until();
        clock::to_monotonic(until, self.began)
    }

    /// Waits until the lock is lost.
    pub(crate) async fn lost(&self) -> LostReason {
        let check = || match self.state() {
            LockState::Lost(reason) => ControlFlow::Break(reason),
            // This task has its own timer for the end of the lease. The timer fires even if every
            // renewal hangs.
            LockState::Held | LockState::InDoubt => {
                ControlFlow::Continue(Some(self.lock().lease.until()))
            }
        };
        self.changed.wait(&self.context.masters.timers, check).await
    }

    /// Returns the state at `now`, and notes a loss by expiry.
    pub(super) fn state_at(&self, state: &mut Locked<'_>, now: Instant) -> LockState {
        if let Some(reason) = state.lost {
            return LockState::Lost(reason);
        }
        if state.lease.is_valid(now) {
            return if state.in_doubt || state.newest.has_failed() {
                LockState::InDoubt
            } else {
                LockState::Held
            };
        }
        let plan = state.renewal;
        let reason = if plan.is_some_and(|plan| plan.due(state.lease).is_none()) {
            LostReason::RenewalLimit
        } else {
            state.stalled = self.stall(state, now);
            LostReason::Expired
        };
        Self::lose(state, reason);
        LockState::Lost(reason)
    }

    /// Returns how late the renewer is at `now`, if it has missed a retry. The renewer does nothing
    /// but wait for the time, so the runtime has not run. With very many locks, it may be late for
    /// another reason: it also waits for votes.
    fn stall(&self, state: &State, now: Instant) -> Option<Duration> {
        let plan = state.renewal?;
        let late = now.checked_duration_since(state.next_look?)?;
        let is_measured = late >= plan.retry() && !self.context.renewer.is_crowded();
        is_measured.then_some(late)
    }

    /// Returns the least time for which this process did not run before the lock was lost, if that
    /// is known to be a reason for the loss.
    pub(crate) fn stalled(&self) -> Option<Duration> {
        self.lock().stalled
    }

    pub(super) fn lose(state: &mut Locked<'_>, reason: LostReason) {
        if state.lost.is_none() && state.release.is_none() {
            state.lost = Some(reason);
            state.announcement.event = Some(LockEvent::Lost(reason));
        }
    }
}
