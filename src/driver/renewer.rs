//! Renews locks. All guards of a coordinator share one task.

use std::{collections::VecDeque, pin::pin, sync::Arc};

use futures::future::select;

use crate::{
    clock,
    core::time::tick::LeaseTick,
    driver::{round_handle::RoundHandle, time},
    master::Shared,
    panics::shielded,
};

/// The largest number of renewals that are posted together.
const BATCH: usize = 512;
/// The largest number of renewals that may be undecided.
const MOST: usize = 2 * BATCH;

/// Renews claims when they are due, until the machine is abandoned. Renewals that are due at the
/// same time are sent to each master in one batch.
///
/// Masters can answer only a limited number of renewals within the node timeout. Further renewals
/// would time out, and would be posted again. So the task waits for votes if very many renewals are
/// under way. Masters answer in order, so a batch is decided when its last round is decided. A
/// master that hangs delays no renewal while a majority answers.
pub(crate) async fn renew(machine: Arc<Shared>) {
    let (mut batches, mut undecided) = (VecDeque::new(), 0);
    while let Some(due) = next_due(&machine).await {
        if clock::now() < due {
            let sleep = pin!(time::sleep_until(due));
            // A claim that is added may be due earlier.
            select(pin!(machine.renewer.notified()), sleep).await;
            continue;
        }
        if let Some(batch) = renew_some(&machine) {
            undecided += batch.renewals;
            batches.push_back(batch);
        }
        while let Some(Batch { last, renewals }) = batches.front()
            && (undecided + BATCH > MOST || !last.is_pending())
        {
            last.decided().await;
            undecided -= renewals;
            batches.pop_front();
        }
        tokio::task::yield_now().await;
    }
}

/// Renewals that were posted together.
struct Batch {
    last: RoundHandle,
    renewals: usize,
}

/// Waits until there is a claim. Returns the instant at which the next claim is due, or `None` if
/// the machine is abandoned.
async fn next_due(machine: &Shared) -> Option<LeaseTick> {
    loop {
        let (is_closed, due) =
            machine.with(|it, now| (it.is_abandoned, it.renewals.next_due(now.lease)));
        if is_closed || due.is_some() {
            return due.filter(|_| !is_closed);
        }
        machine.renewer.notified().await;
    }
}

/// Renews a batch of the claims that are due.
fn renew_some(shared: &Arc<Shared>) -> Option<Batch> {
    let mut batch = None;
    for renewals in 1..=BATCH {
        let random = clock::random_u64();
        let posted = shared.with(|machine, now| machine.renew_next(random, now));
        let Some(posted) = posted else {
            break;
        };
        if let Some((claim, round)) = posted {
            let last = RoundHandle::new(shared, round);
            shielded(|| last.open_span(claim)); // subscribers are code of the program
            batch = Some(Batch { last, renewals });
        }
    }
    batch
}
