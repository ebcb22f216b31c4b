//! The span of a hold.

use std::{sync::Arc, time::Instant};

use tracing::Span;

use crate::{driver::time::clock, meter::IS_ON};

/// The span of a hold, while it lasts. Subscribers are code of the program. So the caller of a
/// method, or of the last drop, must hold no mutex that protects the state of this crate. Cloning
/// runs no such code.
#[derive(Clone, Debug, Default)]
pub(in crate::driver) struct HoldSpan {
    /// `None` if no subscriber wants to see the span.
    pub(super) span: Option<Arc<Span>>,
    /// `None` if there are no metrics.
    pub(super) since: Option<Instant>,
}

impl HoldSpan {
    /// Calls `log`, which writes log messages, inside the span.
    pub(super) fn inside(&self, log: impl FnOnce()) {
        match &self.span {
            Some(span) => span.in_scope(log),
            None => log(),
        }
    }
}

/// Returns the time, if there are metrics.
pub(super) fn now_if_metered() -> Option<Instant> {
    IS_ON.then(clock::monotonic)
}
