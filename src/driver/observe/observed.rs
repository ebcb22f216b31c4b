//! The things that a program can observe of a call for a lock: its span, its metrics and its log
//! message.

use std::pin::Pin;

use super::{observer::LockObserver, span::LockSpan};
use crate::{
    core::{protocol::name::LockId, vote::obstacle::Obstacle},
    driver::{
        acquire::denied::NotAcquired,
        claim::{level::Level, request::LockRequest},
        context::Context,
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
    let (observer, lock) = (&*context.observer, &request.lock_id);
    let mut wait = Wait {
        observer,
        lock,
        span: observer.open_call(lock),
        outcome: Some("dropped"),
    };
    let result = wait.span.around(call).await;
    let name = lock.name();
    match &result {
        Ok(level) => {
            let claim = &level.claim;
            let won = (claim.validity(), claim.fencing_token(), claim.slot());
            observer.acquired(name, &wait.span, won);
        }
        Err(NotAcquired::Denied(last) | NotAcquired::Deadline { last, .. }) => {
            let round = last.round.as_ref();
            let votes = round.map(|round| context.masters.votes(round));
            observer.not_acquired(name, &wait.span, &last.obstacle, votes);
        }
        Err(NotAcquired::Closed | NotAcquired::Config(_)) => {}
    }
    wait.outcome = outcome(&result);
    if let Some(outcome) = wait.outcome {
        wait.span.end("outcome", outcome);
    }
    result
}

/// The wait of one call. Dropping this value records the wait.
struct Wait<'a> {
    observer: &'a LockObserver,
    lock: &'a LockId,
    span: LockSpan,
    /// `None` if nothing was asked of any master.
    outcome: Option<&'static str>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            self.observer.record_call(self.lock, &self.span, outcome);
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
