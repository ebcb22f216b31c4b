//! Waiters that the masters tell of changes that did not happen, or of no changes.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Quarantine};
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

/// The result of [`share`].
#[derive(Debug)]
pub struct Shares {
    pub counts: Vec<u32>,
    pub least_share: f64,
    pub longest_wait: Duration,
}

/// Lets the tasks of two coordinators take turns with a lock. Their user has all rights except
/// `denied`.
pub async fn share(
    servers: &[Server],
    tasks: usize,
    denied: &str,
    measured: Duration,
) -> Result<Shares> {
    let urls = servers.iter().map(|server| {
        let rules = format!("ACL SETUSER u reset on >pw ~* &* +@all {denied}");
        server.command(&Vec::from_iter(rules.split_whitespace()));
        server.url().replace("redis://", "redis://u:pw@")
    });
    let urls: Vec<_> = urls.collect();
    let end = Instant::now() + measured;
    let mut programs = Vec::new();
    for _ in 0..2 {
        let locks = coordinator(urls.clone())?;
        let turns = (0..tasks).map(|_| tokio::spawn(take_turns(locks.clone(), end)));
        programs.push(Vec::from_iter(turns));
    }
    let (mut counts, mut longest_wait) = (Vec::new(), Duration::ZERO);
    for program in programs {
        let mut count = 0;
        for task in program {
            let (turns, wait) = task.await??;
            count += turns;
            longest_wait = longest_wait.max(wait);
        }
        counts.push(count);
    }
    let least = counts.iter().copied().min().unwrap_or_default();
    Ok(Shares {
        least_share: f64::from(least) / f64::from(counts.iter().sum::<u32>().max(1)),
        counts,
        longest_wait,
    })
}

/// Returns how often this task got the lock, and its longest wait.
async fn take_turns(locks: Coordinator, end: Instant) -> Result<(u32, Duration)> {
    let (mut turns, mut longest) = (0, Duration::ZERO);
    while Instant::now() < end {
        let since = Instant::now();
        let guard = locks.mutex("shared").acquire().await?;
        longest = longest.max(since.elapsed());
        turns += 1;
        sleep(Duration::from_millis(5)).await;
        guard.release().await?;
    }
    Ok((turns, longest))
}

fn coordinator(urls: Vec<String>) -> Result<Coordinator> {
    let builder = Coordinator::builder().quarantine(Quarantine::Off);
    Ok(builder.masters(urls).build()?)
}

/// The field of `INFO` that counts commands, those of scripts included.
const EXECUTED: &str = "total_commands_processed";
