//! Acquires a lock: makes a single attempt, or waits until an attempt wins the lock.

pub(in crate::driver) mod attempt;
pub(crate) mod call;
pub(in crate::driver) mod contend;
pub(crate) mod denied;
pub(in crate::driver) mod queued;
pub(crate) mod several;
mod slots;

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::{Either, select};

use super::{
    claim::{ask::LockRequest, level::Level},
    context::Context,
    time::clock,
};
use crate::core::{error::AcquireError, vote::obstacle::Obstacle};
use attempt::{attempt, attempt_timeout, reenter};
use contend::contend;
use denied::Deadline;
use queued::acquire_queued;
use slots::SlotChoice;

/// Makes one attempt. If it splits the votes on a semaphore, makes a second one, in which the
/// agreed master chooses the slot.
pub(super) async fn try_acquire(
    context: &Arc<Context>,
    request: &LockRequest,
) -> Result<Level, AcquireError> {
    let permit_by = || clock::now() + attempt_timeout(context, request);
    let mut slot = SlotChoice::new(context, &request.lock_id);
    slot.choose_if_likely();
    let denied = match attempt(context, request, permit_by, slot.agreed, None).await? {
        Ok(level) => {
            slot.note_win();
            return Ok(level);
        }
        Err(denied) => denied,
    };
    if let Some(round) = &denied.round {
        slot.note_loss(round);
    }
    if denied.obstacle != Obstacle::Split || !request.lock_id.kind().spec().has_slots {
        return Err(denied.error(context, request));
    }
    // Also if it chose in the first attempt: the slot may have become free there sooner
    // than on the others.
    slot.choose(denied.round.as_deref());
    let second = attempt(context, request, permit_by, slot.agreed, None).await?;
    second.map_err(|denied| denied.error(context, request))
}

/// Waits until the lock is acquired. If there is a `limit`, the last attempt begins when that time
/// has passed.
pub(super) async fn acquire(
    context: &Arc<Context>,
    request: &LockRequest,
    limit: Option<Duration>,
) -> Result<Level, AcquireError> {
    let deadline = Deadline::new(limit);
    let Some(owner) = &request.owner else {
        return contend(context, request, &deadline).await;
    };
    let owned = owner.lock(&request.lock_id);
    let mut acquired = pin!(async {
        if request.lock_id.kind().has_queue() {
            acquire_queued(context, request, owner, &owned, &deadline).await
        } else {
            contend(context, request, &deadline).await
        }
    });
    let mut refusals = 0_u32;
    loop {
        // When one task of the owner wins the lock, the owner's other tasks reenter the lock. They
        // do not wait until the winner drops its guard.
        let is_held = pin!(owned.until_held(&context.timers));
        if let Either::Right((acquired, _)) = select(is_held, acquired.as_mut()).await {
            return acquired;
        }
        context.check_open()?;
        let is_last = deadline.is_over();
        // The future `acquired` may have the permit, but reentering needs no permit. That future
        // keeps its position in the queues until this task has reentered. Nobody waits for it
        // meanwhile, because the owner holds the lock.
        match reenter(request, &owned).await? {
            Some(Err(denied)) => {
                let end = deadline.cap(context.retry_at(refusals));
                refusals = refusals.saturating_add(1);
                deadline.note_failure(context, request, &denied, is_last)?;
                // The lock may become free before the next try. That future must not keep its
                // permit, its turn or its position from others then.
                let pause = pin!(context.timers.sleep_until(end));
                if let Either::Right((acquired, _)) = select(pause, acquired.as_mut()).await {
                    return acquired;
                }
            }
            Some(Ok(level)) => return Ok(level),
            None => {} // the lock was released or lost meanwhile
        }
    }
}
