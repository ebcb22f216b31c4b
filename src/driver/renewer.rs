//! Renews locks. All guards of a coordinator share one task.

use std::{pin::pin, sync::Arc};

use futures::future::select;

use crate::{clock, core::time::LeaseTick, master::Shared};

/// Renews claims when they are due, until the machine is abandoned. Renewals that are due at the
/// same time are sent to each master in one batch. A master that hangs delays no renewal while a
/// majority answers.
pub(crate) async fn renew(machine: Arc<Shared>) {
    /// The largest number of renewals that are posted together.
    const BATCH: usize = 512;
    while let Some(due) = next_due(&machine).await {
        if let Some(time) = clock::next_sleep(due) {
            let sleep = pin!(tokio::time::sleep(time));
            // A claim that is added may be due earlier.
            select(pin!(machine.renewer.notified()), sleep).await;
            continue;
        }
        for _ in 0..BATCH {
            let random = clock::random_u64();
            if !machine.with(|machine, now| machine.renew_next(random, now)) {
                break;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until a claim can be renewed. Returns the instant at which it is due, or `None` if the
/// machine is abandoned.
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
