//! The things that a program can observe of a claim that was won: its metrics and its span.

use std::sync::Arc;

use super::Claim;
use crate::{
    core::lock_state::LostReason,
    driver::{
        hold::{Hold, HoldEnd},
        span::LockSpan,
    },
    meter::Counted,
};

impl Claim {
    /// Begins the hold after an acquisition was won, unless the owner holds the lock already.
    pub(crate) fn won(&self) {
        if self.lock().hold.is_some() {
            return;
        }
        let mut hold = Some(Hold::begin(&self.resource, self.fencing_token()));
        let mut state = self.lock();
        if state.hold.is_none() && state.lost.is_none() {
            state.hold = hold.take();
        }
        drop(state); // before `hold`, which is left if another task of the owner was faster
    }

    /// Counts the loss, and ends the hold.
    pub(super) fn count_loss(&self, reason: LostReason) {
        let hold = self.lock().hold.take();
        let metrics = &self.context.masters.metrics;
        metrics.record(|metrics| metrics.lost(&self.resource, reason));
        self.end_hold(hold, HoldEnd::Lost);
    }

    pub(super) fn end_hold(&self, hold: Option<Hold>, end: HoldEnd) {
        if let Some(hold) = hold {
            hold.end(&self.resource, end, &self.context.masters.metrics);
        }
    }

    /// Counts a guard, as long as the returned value exists.
    pub(crate) fn count_guard(&self) -> Option<Counted> {
        let metrics = &self.context.masters.metrics;
        metrics.record(|metrics| metrics.guard(&self.resource))
    }

    /// Returns the span of the hold, if there is one.
    pub(super) fn hold_span(&self) -> Option<Arc<LockSpan>> {
        self.lock().hold.as_ref()?.span.clone()
    }
}
