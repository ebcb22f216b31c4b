//! Checks that `close` returns by the longest TTL.

use std::time::Duration;

use quorlock::{Coordinator, Quarantine};
use tokio::time::timeout;

/// Counts how many of `rounds` coordinators are still not closed long after the longest TTL. No
/// server listens at the masters' addresses. Each coordinator is closed right after a few attempts.
///
/// Stops after three late coordinators, because each of them takes `LATE`.
pub async fn late_closes(rounds: usize) -> usize {
    let mut late = Vec::new();
    for round in 0..rounds {
        let locks = Coordinator::builder()
            .masters((0..3).map(|number| format!("unix:///quorlock/nobody/{number}")))
            .quarantine(Quarantine::Off)
            .ttl(TTL)
            .build()
            .unwrap();
        let attempts: Vec<_> = (0..1 + round % 4)
            .map(|number| {
                let lock = locks.mutex(format!("x{number}"));
                tokio::spawn(async move { drop(lock.try_acquire().await) })
            })
            .collect();
        for attempt in attempts {
            attempt.await.unwrap();
        }
        if timeout(LATE, locks.close()).await.is_err() {
            late.push(locks);
        }
        if late.len() == 3 {
            break;
        }
    }
    late.len()
}

pub const TTL: Duration = Duration::from_millis(100);
/// Far more than the TTL, to allow for a busy machine.
const LATE: Duration = Duration::from_secs(3);
