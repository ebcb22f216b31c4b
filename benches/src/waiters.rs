//! Waiters that the masters tell of changes that did not happen, or of no changes.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, RestartGuard};
use tokio::time::sleep;

use crate::load::Result;
use crate::servers::{self, Server};

/// Returns the commands per second that the servers execute for waiters whose locks are held. There
/// is one waiter for each lock. The servers track `max_keys` keys.
pub async fn commands_per_second(
    servers: &[Server],
    waiters: usize,
    max_keys: &str,
    measured: Duration,
) -> Result<f64> {
    let warm_up = Duration::from_secs(1);
    for server in servers {
        server.command(&["CONFIG", "SET", "tracking-table-max-keys", max_keys]);
    }
    let holder = coordinator(servers::urls(servers))?;
    let locks = coordinator(servers::urls(servers))?;
    let mut held = Vec::new();
    let mut tasks = Vec::new();
    for number in 0..waiters {
        let name = format!("held/{number}");
        held.push(
            holder
                .mutex(&name)
                .ttl(Duration::from_secs(30))
                .acquire()
                .await?,
        );
        let lock = locks.mutex(&name);
        let limit = warm_up * 2 + measured;
        tasks.push(tokio::spawn(async move {
            lock.acquire_within(limit).await.map(drop)
        }));
    }
    sleep(warm_up).await;
    let (before, since) = (servers::total(servers, EXECUTED)?, Instant::now());
    sleep(measured).await;
    let sent = (servers::total(servers, EXECUTED)? - before) as f64;
    let rate = sent / since.elapsed().as_secs_f64();
    for task in tasks {
        task.await?.expect_err("the lock is held");
    }
    drop(held);
    locks.close().await;
    holder.close().await;
    Ok(rate)
}

fn coordinator(urls: Vec<String>) -> Result<Coordinator> {
    let builder = Coordinator::builder().restart_guard(RestartGuard::Off);
    Ok(builder.masters(urls).build()?)
}

/// The field of `INFO` that counts commands, those of scripts included.
const EXECUTED: &str = "total_commands_processed";
