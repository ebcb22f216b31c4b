//! Spans of `tracing` about locks.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Instant};

use tracing::{Span, span::Entered};

use crate::{driver::time::clock, meter::IS_ON, user_code::shielded};

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
        let mut made = None;
        shielded(|| made = Some(make()));
        Self {
            span: made.filter(|span| !span.is_disabled()).map(Arc::new),
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
            shielded(|| {
                span.record(field, value);
            });
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
            let _inside = self.span.as_deref().map(Inside::of);
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Calls `log`, which writes log messages, inside the span.
    pub(super) fn inside(&self, log: impl FnOnce()) {
        let _inside = self.span.as_deref().map(Inside::of);
        shielded(log);
    }
}

impl Drop for LockSpan {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            shielded(|| drop(span));
        }
    }
}

/// A span that was entered. It is left when this value is dropped. A subscriber that panics then
/// does no harm, even if the thread is already panicking.
struct Inside<'a>(Option<Entered<'a>>);

impl<'a> Inside<'a> {
    fn of(span: &'a Span) -> Self {
        let mut entered = None;
        shielded(|| entered = Some(span.enter()));
        Self(entered)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        shielded(|| drop(self.0.take()));
    }
}
