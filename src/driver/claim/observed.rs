//! The things that a program can observe of a claim that was won: its metrics and its span.

use std::sync::{Arc, atomic::Ordering};

use super::{
    Claim,
    hold::{Hold, HoldEnd},
};
use crate::{core::view::lock_state::LostReason, driver::observe::span::LockSpan, meter::Counted};

impl Claim {
    /// Begins the hold. Returns `None` if it has begun before: then the owner has acquired the lock
    /// once more.
    pub(super) fn begin_hold(&self) -> Option<Hold> {
        let has_begun = self.has_hold_begun.swap(true, Ordering::Relaxed);
        (!has_begun).then(|| Hold::begin(&self.resource, self.fencing_token()))
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
