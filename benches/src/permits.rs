//! Semaphores that are full, or nearly so.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Quarantine};
use tokio::{task::JoinSet, time::sleep};

use crate::load::Result;
use crate::servers::{self, Server};
use crate::stats::median;

const PERMITS: usize = 100;

/// The result of [`busy`].
#[derive(Debug)]
pub struct Busy {
    pub commands_per_permit: f64,
    /// The share of the permits that is held, on average.
    pub share: f64,
}

/// Lets the tasks of eight coordinators use 100 permits. Each task holds its permit for 200 ms on
/// average.
pub async fn busy(servers: &[Server], tasks: usize, measured: Duration) -> Result<Busy> {
    let urls = servers::urls(servers);
    let coordinators: Vec<_> = (0..8).map(|_| coordinator(&urls)).collect::<Result<_>>()?;
    for locks in &coordinators {
        locks.ready_within(Duration::from_secs(5)).await?;
    }
    let (before, start) = (scripts(servers), Instant::now());
    let end = start + measured;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let lock = coordinators[task % coordinators.len()]
            .semaphore("busy", PERMITS)
            .plain();
        running.spawn(async move {
            let (mut permits, mut held, mut at) = (0_u32, Duration::ZERO, task as u64);
            while Instant::now() < end {
                let guard = lock.acquire().await.map_err(|error| error.to_string())?;
                let since = Instant::now();
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                sleep(Duration::from_millis(50 + (at >> 33) % 301)).await;
                held += since.elapsed();
                permits += 1;
                guard.release().await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>((permits, held))
        });
    }
    let (mut permits, mut held) = (0, Duration::ZERO);
    while let Some(done) = running.join_next().await {
        let (of_task, time) = done??;
        permits += of_task;
        held += time;
    }
    let took = start.elapsed();
    let commands = scripts(servers) - before;
    for locks in coordinators {
        locks.close().await;
    }
    Ok(Busy {
        commands_per_permit: commands as f64 / f64::from(permits),
        share: held.as_secs_f64() / took.as_secs_f64() / PERMITS as f64,
    })
}

/// Returns the median time from the release of the only permit until a waiter of another
/// coordinator has it, divided by the median time of an acquisition of a free reentrant lock.
pub async fn hand_over(urls: &[String], turns: usize) -> Result<f64> {
    let (one, other) = (coordinator(urls)?, coordinator(urls)?);
    for locks in [&one, &other] {
        locks.ready_within(Duration::from_secs(5)).await?;
    }
    let owner = one.new_owner();
    let reentrant = one.reentrant("free", &owner);
    let (mut free, mut full) = (Vec::new(), Vec::new());
    let mut held = one.semaphore("full", 1).plain().acquire().await?;
    for turn in 0..turns {
        let since = Instant::now();
        let guard = reentrant.try_acquire().await?;
        free.push(since.elapsed().as_secs_f64());
        guard.release().await?;
        let next = if turn % 2 == 0 { &other } else { &one };
        let lock = next.semaphore("full", 1).plain();
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().await;
            (guard, Instant::now())
        });
        while one
            .semaphore("full", 1)
            .plain()
            .inspect()
            .await?
            .waiters
            .is_empty()
        {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(5)).await; // the waiter is in all queues
        let since = Instant::now();
        drop(held);
        let (guard, at) = waiting.await?;
        held = guard?;
        full.push(at.duration_since(since).as_secs_f64());
    }
    drop(held);
    one.close().await;
    other.close().await;
    Ok(median(full) / median(free))
}

/// Returns the number of scripts that clients have called. A semaphore sends nothing else.
fn scripts(servers: &[Server]) -> u64 {
    let calls = servers
        .iter()
        .map(|server| server.calls(|name| name == "evalsha"));
    calls.sum()
}

fn coordinator(urls: &[String]) -> Result<Coordinator> {
    let builder = Coordinator::builder().quarantine(Quarantine::Off);
    Ok(builder.masters(urls).build()?)
}
