//! Waits for a mutex or a reentrant lock. The waiters of a coordinator make attempts in turn, at
//! times when the lock is likely to be free.

use super::{
    attempt::attempt,
    claim::{Level, LockRequest},
    clock,
    deadline::Deadline,
    denied::{Denied, NotAcquired},
    local_waiters::LocalWaiter,
    reachability::may_win,
    shared::Shared,
};
use crate::core::{
    chances::Chance,
    master_set::MasterSet,
    refused::Refused,
    round::Round,
    wait::{Notice, WaitPolicy, next_wait},
};

/// Makes attempts until one wins the lock. If there is a deadline, the last attempt begins at the
/// deadline.
pub(super) async fn contend(
    shared: &Shared,
    request: &LockRequest,
    deadline: Deadline,
) -> Result<Level, NotAcquired> {
    let masters = shared.masters();
    let mut waiter = shared
        .context
        .local_waiters
        .join(masters, &request.resource);
    let mut is_notified = false;
    let mut chances = shared.chances();
    for failures in 0.. {
        // Waits for the turn of this waiter. Before a later attempt, the waiter still has its turn
        // in most cases. It loses its turn if it steps back, or if it is silent for so long that
        // another waiter takes over.
        waiter.turn(deadline.end).await;
        let is_last = deadline.is_over();
        let timeout = masters.attempt_timeout();
        let permit_by = deadline.permit_by(timeout);
        waiter.expect(permit_by + timeout);
        if !is_last && !may_win(masters, request, chances).await {
            shared.check_open()?;
            let at = deadline.limit(shared.retry_at(failures));
            waiter.sleep_until(at).await;
            continue;
        }
        waiter.begin_attempt();
        let start = clock::now();
        let denied = match attempt(shared, request, || permit_by).await {
            Ok(level) => {
                shared.note_chance(Chance::Had, start);
                return Ok(level);
            }
            Err(NotAcquired::Denied(denied)) => denied,
            Err(other) => return Err(other),
        };
        chances = shared.note_chance(denied.chance(), start);
        deadline.check(&denied, is_last, failures)?;
        if denied.refused == Refused::OwnerBusy {
            waiter.step_back(); // other owners do not wait for the tasks of this owner
        }
        is_notified = wait(shared, &waiter, &denied, failures, is_notified, deadline).await;
    }
    Err(NotAcquired::Closed) // only after 2^32 failures
}

/// Waits until another attempt may win. Returns whether a message about a release causes the next
/// attempt. `was_notified` says whether such a message caused the attempt that was denied.
async fn wait(
    shared: &Shared,
    waiter: &LocalWaiter<'_>,
    denied: &Denied,
    failures: u32,
    was_notified: bool,
    deadline: Deadline,
) -> bool {
    let (masters, now) = (shared.masters(), clock::now());
    if let Refused::HeldUntil(_) = denied.refused {
        let end = deadline.limit(now + masters.node_timeout());
        if waiter.subscribe(end).await {
            return false;
        }
    }
    let notice = match (was_notified, waiter.gets_notices()) {
        (true, _) => Notice::Received,
        (false, true) => Notice::Expected,
        (false, false) => Notice::Unavailable,
    };
    let config = masters.config();
    let policy = WaitPolicy {
        retry: config.retry,
        poll: config.poll,
    };
    let wait = next_wait(
        &denied.refused,
        notice,
        failures,
        policy,
        clock::random_u64(),
    );
    if !wait.pause.is_zero() {
        waiter.sleep_until(deadline.limit(now + wait.pause)).await;
    }
    let granted = denied.round.as_ref();
    let granted = granted.map_or(MasterSet::NONE, |round| round.read(Round::granted));
    let is_free = waiter
        .released(granted, deadline.limit(now + wait.end))
        .await;
    is_free && matches!(denied.refused, Refused::HeldUntil(_))
}
