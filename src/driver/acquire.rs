//! Acquiring a lock: one attempt, or a wait until one is won.

use std::{pin::pin, time::Duration};

use super::{
    attempt::{attempt, reenter},
    claim::{Claim, Level, LockRequest},
    clock,
    contend::contend,
    deadline::Deadline,
    denied::NotAcquired,
    fair::acquire_fair,
    select::within,
    shared::Shared,
};
use crate::core::name::Kind;

/// Makes one attempt.
pub(super) async fn try_acquire(
    shared: &Shared,
    request: &LockRequest,
) -> Result<Level, NotAcquired> {
    let permit_by = || clock::now() + shared.masters().attempt_timeout();
    attempt(shared, request, permit_by).await
}

/// Waits until the lock is acquired. With a `limit`, the last attempt begins when that is over.
pub(super) async fn acquire(
    shared: &Shared,
    request: &LockRequest,
    limit: Option<Duration>,
) -> Result<Level, NotAcquired> {
    let deadline = Deadline::new(limit);
    let Some(owner) = &request.owner else {
        return contend(shared, request, deadline).await;
    };
    let owned = owner.lock(&request.resource);
    let mut acquired = pin!(async {
        match request.resource.kind() {
            Kind::Fair => acquire_fair(shared, request, owner, &owned, deadline).await,
            Kind::Mutex | Kind::Reentrant => contend(shared, request, deadline).await,
        }
    });
    for failures in 0.. {
        // When one task of the owner wins the lock, the others reenter it. They do not wait until
        // the guard of that task is dropped.
        let is_held = owned.until_held(Claim::can_reenter);
        if let Some(acquired) = within(is_held, acquired.as_mut()).await {
            return acquired;
        }
        shared.check_open()?;
        let is_last = deadline.is_over();
        // Reentering needs no permit, which the future `acquired` may have. That future keeps its
        // position in the queues until this task has reentered.
        match reenter(request, &owned).await {
            Some(Err(NotAcquired::Denied(denied))) => {
                deadline.check(&denied, is_last, failures)?;
                clock::sleep_until(deadline.limit(shared.retry_at(failures))).await;
            }
            Some(reentered) => return reentered,
            None => {} // the lock was released meanwhile
        }
    }
    Err(NotAcquired::Closed) // only after 2^32 failures
}
