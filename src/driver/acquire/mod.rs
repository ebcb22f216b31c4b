//! The calls for a lock, and what a program can observe of them: spans, metrics and log messages. A
//! call makes a single attempt, or waits until an attempt wins the lock.

mod attempt;
mod contend;
pub(in crate::driver) mod denied;
mod queued;
pub(crate) mod several;
mod slots;

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::{Either, select};
use tracing::{Instrument, Span};

use super::claim::{Level, ask::LockRequest, owned_lock::LockOwner};
use crate::{
    core::{error::AcquireError, time::Tick},
    observe::now_if_metered,
};
use attempt::{attempt, reenter};
use contend::contend;
use denied::{Deadline, Denied};
use queued::acquire_queued;
use slots::attempt_for_slot;

/// Makes one attempt, or two if the votes on a semaphore are split.
pub(crate) async fn try_acquire(request: &LockRequest) -> Result<Level, AcquireError> {
    let call = Call::begin(request);
    let acquired = async {
        let attempted = if request.lock_id.kind().spec().has_slots {
            attempt_for_slot(request).await
        } else {
            attempt(request, None, None, None).await
        };
        attempted.map_err(|denied| denied.of_one_attempt(request))
    };
    let acquired = acquired.instrument(call.span.clone()).await;
    call.end_and_hold(acquired.as_ref());
    acquired
}

/// Waits until the lock is acquired. If there is a `limit`, the last attempt begins when that time
/// has passed.
pub(crate) async fn acquire(
    request: &LockRequest,
    limit: Option<Duration>,
) -> Result<Level, AcquireError> {
    let _waiter = request.context.observer().count_waiter(&request.lock_id);
    let (call, deadline) = (Call::begin(request), Deadline::new(limit));
    let acquired = async {
        let acquired = match (request.context.check_open(), &request.owner) {
            (Err(closed), _) => Err(closed.into()), // before a mutex is locked
            (Ok(()), Some(owner)) => acquire_owned(request, owner, &deadline).await,
            (Ok(()), None) => contend(request, &deadline).await,
        };
        acquired.map_err(|denied| deadline.error(request, denied))
    };
    let acquired = acquired.instrument(call.span.clone()).await;
    call.end_and_hold(acquired.as_ref());
    acquired
}

async fn acquire_owned(
    request: &LockRequest,
    owner: &Arc<LockOwner>,
    deadline: &Deadline,
) -> Result<Level, Denied> {
    let (context, owned) = (&request.context, owner.lock(&request.lock_id));
    let mut acquired = pin!(async {
        if request.lock_id.kind().has_queue() {
            acquire_queued(request, &owned, deadline).await
        } else {
            contend(request, deadline).await
        }
    });
    let mut refusals = 0_u32;
    loop {
        // When one task of the owner wins the lock, the owner's other tasks reenter the lock. They
        // do not wait until the winner drops its guard.
        let is_held = pin!(owned.until_held(context));
        if let Either::Right((acquired, _)) = select(is_held, acquired.as_mut()).await {
            return acquired;
        }
        context.check_open()?;
        let is_last = deadline.is_over();
        // The future `acquired` may have the permit, but reentering needs no permit. That future
        // keeps its position in the queues until this task has reentered. Meanwhile, the position
        // delays no other waiter, because the owner holds the lock.
        match reenter(request, &owned).await {
            Err(denied) => {
                let end = deadline.cap(context.retry_at(refusals));
                refusals = refusals.saturating_add(1);
                deadline.note_failure(request, denied, is_last)?;
                // The lock may become free during the pause. If `acquired` were not polled then,
                // other waiters would have to wait for it.
                let pause = pin!(context.timers.sleep_until(end));
                if let Either::Right((acquired, _)) = select(pause, acquired.as_mut()).await {
                    return acquired;
                }
            }
            Ok(Some(level)) => return Ok(level),
            Ok(None) => {} // the lock was released or lost meanwhile
        }
    }
}

/// A call for one lock. Dropping this value records how long the call took.
struct Call<'a> {
    request: &'a LockRequest,
    span: Span,
    /// The start of the call, or `None` if there are no metrics.
    since: Option<Tick>,
    /// The word for the outcome, or `None` if nothing is recorded.
    outcome: Option<&'static str>,
}

impl<'a> Call<'a> {
    fn begin(request: &'a LockRequest) -> Self {
        Self {
            request,
            span: request.context.observer().call(&request.lock_id),
            since: now_if_metered(),
            outcome: Some("dropped"),
        }
    }

    /// Logs and records the result of the call. If the lock was acquired, begins to record the hold
    /// and to renew the lock.
    fn end_and_hold(mut self, result: Result<&Level, &AcquireError>) {
        let (observer, name) = (self.request.context.observer(), self.request.lock_id.name());
        match result {
            Ok(level) => {
                let claim = &level.claim;
                let won = || (claim.validity(), claim.fencing_token(), claim.slot());
                observer.acquired(name, &self.span, won);
            }
            Err(error) => observer.not_acquired(name, &self.span, error),
        }
        self.outcome = result.map_or_else(|error| error.reason().word(), |_| Some("acquired"));
        if let Some(outcome) = self.outcome {
            self.span.record("outcome", outcome);
        }
        let request = self.request;
        drop(self);
        if let Ok(level) = result {
            level.claim.hold(request.renewal, request.min_hold);
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            let observer = self.request.context.observer();
            observer.record_call(&self.request.lock_id, self.since, outcome);
        }
    }
}
