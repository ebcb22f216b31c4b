//! Spans of `tracing` about locks.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Instant};

use tracing::Span;

use crate::{driver::time::clock, meter::IS_ON};

/// A call for a lock, a hold or a renewal, while it lasts. Subscribers are code of the program. So
/// the caller of a method, or of a drop, must hold no mutex that protects the state of this crate.
/// Cloning runs no such code.
#[derive(Clone, Debug, Default)]
pub(in crate::driver) struct LockSpan {
    /// `None` if no subscriber wants to see the span.
    span: Option<Arc<Span>>,
    /// `None` if there are no metrics.
    since: Option<Instant>,
}

impl LockSpan {
    /// Begins with the span that `make` makes.
    pub(super) fn open(make: impl FnOnce() -> Span) -> Self {
        let span = make();
        Self {
            span: (!span.is_disabled()).then(|| Arc::new(span)),
            since: IS_ON.then(clock::monotonic),
        }
    }

    /// Opens the span that `make` makes inside of this one, if a subscriber wants to see this one.
    pub(super) fn open_inside(&self, make: impl FnOnce(&Span) -> Span) -> Self {
        self.span
            .as_deref()
            .map_or_else(Self::default, |span| Self::open(|| make(span)))
    }

    /// Sets a field of the span, which says how it ends.
    pub(in crate::driver) fn end(&self, field: &'static str, value: &'static str) {
        if let Some(span) = &self.span {
            span.record(field, value);
        }
    }

    /// Returns the seconds since the beginning, if there are metrics.
    pub(super) fn seconds(&self) -> Option<f64> {
        let lasted = clock::monotonic().saturating_duration_since(self.since?);
        Some(lasted.as_secs_f64())
    }

    /// Runs `future` inside the span.
    pub(super) async fn around<T>(&self, mut future: Pin<&mut impl Future<Output = T>>) -> T {
        poll_fn(|cx| {
            let _inside = self.span.as_deref().map(Span::enter);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Calls `log`, which writes log messages, inside the span.
    pub(super) fn inside(&self, log: impl FnOnce()) {
        let _inside = self.span.as_deref().map(Span::enter);
        log();
    }
}
