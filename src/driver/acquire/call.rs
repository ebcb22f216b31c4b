//! Calls for locks, with the things that a program can observe of them: spans, metrics and log
//! messages.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{Instrument, Span};

use super::several::{self, Part};
use crate::{
    core::{error::AcquireError, protocol::name::LockId},
    driver::{
        claim::{ask::LockRequest, level::Level},
        context::Context,
        observe::observer::now_if_metered,
    },
};

/// Makes one attempt.
pub(crate) async fn try_acquire(
    context: &Arc<Context>,
    request: &LockRequest,
) -> Result<Level, AcquireError> {
    observed(context, request, pin!(super::try_acquire(context, request))).await
}

/// Waits until the lock is acquired. If there is a `limit`, the last attempt begins when that time
/// has passed.
pub(crate) async fn acquire(
    context: &Arc<Context>,
    request: &LockRequest,
    limit: Option<Duration>,
) -> Result<Level, AcquireError> {
    let _waiter = context.observer.count_waiter(&request.lock_id);
    observed(
        context,
        request,
        pin!(super::acquire(context, request, limit)),
    )
    .await
}

/// Makes one attempt at several mutexes at once.
pub(crate) async fn try_acquire_all(parts: &[Part]) -> Result<Vec<Level>, AcquireError> {
    observed_all(parts, pin!(several::try_acquire_all(parts))).await
}

/// Waits until several mutexes are acquired, as [`acquire`] does for one lock.
pub(crate) async fn acquire_all(
    parts: &[Part],
    limit: Option<Duration>,
) -> Result<Vec<Level>, AcquireError> {
    let first = parts.first();
    let _waiter = first.map(|part| part.context.observer.count_waiter(&part.request.lock_id));
    observed_all(parts, pin!(several::acquire_all(parts, limit))).await
}

/// Polls `acquiring`, the future of a call for the lock of `request`, in the span of the call.
/// Records and logs the result. If the lock was acquired, begins the hold of the lock.
///
/// The caller pins the future. An async function that takes a future by value stores it twice.
async fn observed(
    context: &Context,
    request: &LockRequest,
    acquiring: Pin<&mut impl Future<Output = Result<Level, AcquireError>>>,
) -> Result<Level, AcquireError> {
    let call = Call::begin(context, request);
    let result = acquiring.instrument(call.span.clone()).await;
    call.end(result.as_ref());
    result.inspect(|level| level.claim.hold(request))
}

/// Runs `acquiring`, a call for several locks. Each lock has its span and its hold. If the call fails,
/// it says the number of the lock that was not acquired, and only that lock is recorded.
async fn observed_all(
    parts: &[Part],
    acquiring: Pin<&mut impl Future<Output = Result<Vec<Level>, (usize, AcquireError)>>>,
) -> Result<Vec<Level>, AcquireError> {
    let calls = parts.iter();
    let calls = calls.map(|part| Call::begin(&part.context, &part.request));
    let calls: Vec<_> = calls.collect();
    let span = calls.first().map(|call| call.span.clone());
    let result = acquiring.instrument(span.unwrap_or(Span::none())).await;
    for (at, mut call) in calls.into_iter().enumerate() {
        match &result {
            Ok(levels) => call.end(Ok(&levels[at])),
            Err((missing, error)) if *missing == at => call.end(Err(error)),
            Err(_) => call.outcome = None,
        }
    }
    let levels = result.map_err(|(_, error)| error)?;
    for (level, part) in levels.iter().zip(parts) {
        level.claim.hold(&part.request);
    }
    Ok(levels)
}

/// A call for one lock. Dropping this value records how long the call took.
struct Call<'a> {
    context: &'a Context,
    lock: &'a LockId,
    span: Span,
    /// `None` if there are no metrics.
    since: Option<Instant>,
    /// `None` if nothing is recorded.
    outcome: Option<&'static str>,
}

impl<'a> Call<'a> {
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

    fn end(mut self, result: Result<&Level, &AcquireError>) {
        let (observer, name) = (&self.context.observer, self.lock.name());
        match result {
            Ok(level) => {
                let claim = &level.claim;
                let won = (claim.validity(), claim.fencing_token(), claim.slot());
                observer.acquired(name, &self.span, won);
            }
            Err(error) => observer.not_acquired(name, &self.span, error),
        }
        self.outcome = result.map_or_else(outcome, |_| Some("acquired"));
        if let Some(outcome) = self.outcome {
            self.span.record("outcome", outcome);
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            let observer = &self.context.observer;
            observer.record_call(self.lock, self.since, outcome);
        }
    }
}

/// Returns the word for a call that failed. `None` if the call was a mistake.
fn outcome(error: &AcquireError) -> Option<&'static str> {
    Some(match error.last_attempt() {
        AcquireError::Closed => "closed",
        AcquireError::Contended { .. } | AcquireError::OwnerBusy { .. } => "contended",
        AcquireError::NoQuorum { .. } => "no_quorum",
        AcquireError::OtherKind { .. } => "other_kind",
        AcquireError::Quarantined { .. } => "quarantined",
        AcquireError::TooSlow { .. } => "too_slow",
        _ => return None,
    })
}
