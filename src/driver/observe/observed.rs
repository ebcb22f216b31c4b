//! The things that a program can observe of a call for a lock: its span, its metrics and its log
//! message.

use std::{pin::Pin, time::Instant};

use tracing::{debug_span, field};

use super::span::{LockSpan, in_span};
use crate::{
    core::{kind::name::Resource, vote::refused::Refused},
    driver::{
        acquire::denied::NotAcquired,
        claim::{Level, request::LockRequest},
        masters::Masters,
        time::clock,
    },
    log,
    meter::IS_ON,
};

/// Runs `call`, a call for the lock of `request`, in a span. Records and logs its result.
///
/// The caller pins the call. An async function that takes a future by value stores it twice.
pub(in crate::driver) async fn observed(
    masters: &Masters,
    request: &LockRequest,
    call: Pin<&mut impl Future<Output = Result<Level, NotAcquired>>>,
) -> Result<Level, NotAcquired> {
    let (name, kind) = (request.resource.name(), request.resource.kind());
    let span = LockSpan::open(
        || debug_span!(target: log::LOCK, "acquire", %name, %kind, outcome = field::Empty),
    );
    let mut wait = Wait {
        masters,
        lock: &request.resource,
        start: IS_ON.then(clock::monotonic),
        outcome: Some("dropped"),
    };
    let result = LockSpan::around(span.as_deref(), call).await;
    in_span(&span, || log(masters, name, &result));
    wait.outcome = outcome(&result);
    if let (Some(span), Some(outcome)) = (&span, wait.outcome) {
        span.record("outcome", outcome);
    }
    result
}

/// The wait of one call. Dropping this value records the wait.
struct Wait<'a> {
    masters: &'a Masters,
    lock: &'a Resource,
    start: Option<Instant>,
    /// `None` if nothing was asked of any master.
    outcome: Option<&'static str>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let (Some(start), Some(outcome)) = (self.start, self.outcome) {
            let time = clock::monotonic().saturating_duration_since(start);
            let metrics = &self.masters.metrics;
            metrics.record(|metrics| metrics.waited(self.lock, outcome, time));
        }
    }
}

fn outcome(result: &Result<Level, NotAcquired>) -> Option<&'static str> {
    let denied = match result {
        Ok(_) => return Some("acquired"),
        Err(NotAcquired::Closed) => return Some("closed"),
        Err(NotAcquired::Config(_)) => return None,
        Err(NotAcquired::Denied(last) | NotAcquired::Deadline { last, .. }) => last,
    };
    Some(match denied.refused {
        Refused::HeldUntil(_) | Refused::OwnerBusy | Refused::Queued | Refused::Split => {
            "contended"
        }
        Refused::NoQuorum => "no_quorum",
        Refused::OtherKind => "other_kind",
        Refused::Quarantined(_) => "quarantined",
        Refused::TooSlow(_) => "too_slow",
    })
}

fn log(masters: &Masters, name: &str, result: &Result<Level, NotAcquired>) {
    match result {
        Ok(level) => {
            let (validity, fencing_token) = (level.validity(), level.fencing_token());
            let slot = level.slot();
            tracing::debug!(target: log::LOCK, %name, ?validity, fencing_token, slot, "lock acquired");
        }
        Err(NotAcquired::Denied(last) | NotAcquired::Deadline { last, .. }) => {
            let votes = last.round.as_ref().map(|round| masters.votes(round));
            let (reason, votes) = (&last.refused, votes.as_ref().map(field::display));
            tracing::debug!(target: log::LOCK, %name, %reason, votes, "lock not acquired");
        }
        Err(NotAcquired::Closed | NotAcquired::Config(_)) => {}
    }
}
