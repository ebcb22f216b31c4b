//! Spans of `tracing` about locks.

use std::{future::poll_fn, mem, pin::Pin, sync::Arc};

use tracing::{Span, span::Entered};

use crate::user_code::shielded;

/// A span that a subscriber of the program wants to see. Subscribers are code of the program. So
/// the caller of a function here, or of a drop, must hold no mutex that protects the state of this
/// crate.
#[derive(Debug)]
pub(in crate::driver) struct LockSpan(Span);

impl LockSpan {
    /// Returns the span that `make` makes, or `None` if no subscriber wants it.
    pub(in crate::driver) fn open(make: impl FnOnce() -> Span) -> Option<Arc<Self>> {
        let mut made = None;
        shielded(|| made = Some(make()));
        let span = made.filter(|span| !span.is_disabled())?;
        Some(Arc::new(Self(span)))
    }

    pub(in crate::driver) fn get(&self) -> &Span {
        &self.0
    }

    /// Sets a field of the span.
    pub(in crate::driver) fn record(&self, field: &'static str, value: &'static str) {
        shielded(|| {
            self.0.record(field, value);
        });
    }

    /// Runs `future` inside `span`, if there is one.
    pub(in crate::driver) async fn around<T>(
        span: Option<&Self>,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let Some(span) = span else {
            return future.await;
        };
        poll_fn(|cx| {
            let _inside = Inside::of(span);
            future.as_mut().poll(cx)
        })
        .await
    }
}

/// A span that was entered. It is left when this value is dropped. A subscriber that panics then
/// does no harm, even if the thread is already panicking.
struct Inside<'a>(Option<Entered<'a>>);

impl<'a> Inside<'a> {
    fn of(span: &'a LockSpan) -> Self {
        let mut entered = None;
        shielded(|| entered = Some(span.0.enter()));
        Self(entered)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        shielded(|| drop(self.0.take()));
    }
}

/// Calls `log`, which writes log messages, inside `span`, if there is one.
pub(in crate::driver) fn in_span(span: &Option<Arc<LockSpan>>, log: impl FnOnce()) {
    let _inside = span.as_deref().map(Inside::of);
    shielded(log);
}

impl Drop for LockSpan {
    fn drop(&mut self) {
        let span = mem::replace(&mut self.0, Span::none());
        shielded(|| drop(span));
    }
}
