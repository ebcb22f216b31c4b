//! The things that a program can observe of a call for a lock: its span, its metrics and its log
//! message.

use std::{pin::Pin, time::Instant};

use tracing::{Instrument, Span};

use super::{
    denied::{NotAcquired, NotAllAcquired},
    several::Part,
};
use crate::{
    core::{protocol::name::LockId, vote::obstacle::Obstacle},
    driver::{
        claim::{level::Level, request::LockRequest},
        context::Context,
        observe::observer::now_if_metered,
    },
};

/// Runs `call`, a call for the lock of `request`, in a span. Records and logs its result.
///
/// The caller pins the call. An async function that takes a future by value stores it twice.
pub(in crate::driver) async fn observed(
    context: &Context,
    request: &LockRequest,
    call: Pin<&mut impl Future<Output = Result<Level, NotAcquired>>>,
) -> Result<Level, NotAcquired> {
    let wait = Wait::begin(context, request);
    let result = call.instrument(wait.span.clone()).await;
    wait.end(result.as_ref());
    result
}

/// Does the same for a call for several locks. Each lock has its span. If the call fails, only the
/// lock that was not acquired is recorded.
pub(in crate::driver) async fn observed_all(
    parts: &[Part],
    call: Pin<&mut impl Future<Output = Result<Vec<Level>, NotAllAcquired>>>,
) -> Result<Vec<Level>, NotAllAcquired> {
    let waits = parts
        .iter()
        .map(|part| Wait::begin(&part.context, &part.request));
    let waits: Vec<_> = waits.collect();
    let span = waits.first().map(|wait| wait.span.clone());
    let result = call.instrument(span.unwrap_or(Span::none())).await;
    for (at, mut wait) in waits.into_iter().enumerate() {
        match &result {
            Ok(levels) => wait.end(Ok(&levels[at])),
            Err(failed) if failed.at == at => wait.end(Err(&failed.error)),
            Err(_) => wait.outcome = None,
        }
    }
    result
}

/// The wait of one call. Dropping this value records the wait.
struct Wait<'a> {
    context: &'a Context,
    lock: &'a LockId,
    span: Span,
    /// `None` if there are no metrics.
    since: Option<Instant>,
    /// `None` if nothing is recorded.
    outcome: Option<&'static str>,
}

impl<'a> Wait<'a> {
    fn begin(context: &'a Context, request: &'a LockRequest) -> Self {
        let lock = &request.lock_id;
        Self {
            context,
            lock,
            span: context.observer.call(lock),
            since: now_if_metered(),
            outcome: Some("dropped"),
        }
    }

    fn end(mut self, result: Result<&Level, &NotAcquired>) {
        let (observer, name) = (&self.context.observer, self.lock.name());
        match result {
            Ok(level) => {
                let claim = &level.claim;
                let won = (claim.validity(), claim.fencing_token(), claim.slot());
                observer.acquired(name, &self.span, won);
            }
            Err(NotAcquired::Denied(last) | NotAcquired::Deadline { last, .. }) => {
                let round = last.round.as_ref();
                let votes = round.map(|round| self.context.masters.votes(round));
                observer.not_acquired(name, &self.span, &last.obstacle, votes);
            }
            Err(NotAcquired::Closed | NotAcquired::Config(_)) => {}
        }
        self.outcome = outcome(result);
        if let Some(outcome) = self.outcome {
            self.span.record("outcome", outcome);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            let observer = &self.context.observer;
            observer.record_call(self.lock, self.since, outcome);
        }
    }
}

fn outcome(result: Result<&Level, &NotAcquired>) -> Option<&'static str> {
    let denied = match result {
        Ok(_) => return Some("acquired"),
        Err(NotAcquired::Closed) => return Some("closed"),
        Err(NotAcquired::Config(_)) => return None,
        Err(NotAcquired::Denied(last) | NotAcquired::Deadline { last, .. }) => last,
    };
    Some(match denied.obstacle {
        Obstacle::HeldFor(_) | Obstacle::OwnerBusy | Obstacle::Queued | Obstacle::Split => {
            "contended"
        }
        Obstacle::NoQuorum => "no_quorum",
        Obstacle::OtherKind => "other_kind",
        Obstacle::Quarantined(_) => "quarantined",
        Obstacle::TooSlow(_) => "too_slow",
    })
}
