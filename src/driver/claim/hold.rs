//! The hold of a lock, from the win to the release or the loss, as programs observe it.

use std::{sync::Arc, time::Instant};

use tracing::{debug_span, field};

use crate::{
    core::{kind::name::Resource, vote::Slot},
    driver::{
        observe::{
            metrics::LockMetrics,
            span::{LockSpan, in_span},
        },
        time::clock,
    },
    log,
    meter::{IS_ON, Meter},
};

/// A hold that has not ended. Dropping this value may run code of the program, so the caller must
/// hold no mutex that protects the state of this crate.
#[derive(Debug)]
pub(in crate::driver) struct Hold {
    /// `None` if there are no metrics.
    since: Option<Instant>,
    pub(in crate::driver) span: Option<Arc<LockSpan>>,
}

/// The end of a hold.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) enum HoldEnd {
    /// The lock stays on the masters for its minimum time.
    Left,
    Lost,
    Released,
}

impl Hold {
    pub(in crate::driver) fn begin(
        lock: &Resource,
        fencing_token: Option<u64>,
        slot: Slot,
    ) -> Self {
        let (name, kind) = (lock.name(), lock.kind());
        let span = || debug_span!(target: log::LOCK, "hold", %name, %kind, fencing_token, slot, end = field::Empty);
        Self {
            since: IS_ON.then(clock::monotonic),
            span: LockSpan::open(span),
        }
    }

    /// Records and logs the end.
    pub(in crate::driver) fn end(
        self,
        lock: &Resource,
        end: HoldEnd,
        metrics: &Meter<LockMetrics>,
    ) {
        let word = match end {
            HoldEnd::Left => "left",
            HoldEnd::Lost => "lost",
            HoldEnd::Released => "released",
        };
        if let Some(since) = self.since {
            let time = clock::monotonic().saturating_duration_since(since);
            metrics.record(|metrics| metrics.held(lock, word, time));
        }
        if let Some(span) = &self.span {
            span.record("end", word);
        }
        if matches!(end, HoldEnd::Released) {
            let name = lock.name();
            in_span(
                &self.span,
                || tracing::debug!(target: log::LOCK, %name, "lock released"),
            );
        }
    }
}
