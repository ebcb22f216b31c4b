//! The first call of a process, whose connections are still being made.

use std::time::{Duration, Instant};

use quorlock::{Builder, Coordinator};
use tokio::time::timeout;

use super::proxy::Proxy;
use crate::servers::Server;

/// Proxies in front of `servers`, each way as far as that.
pub fn far_away(servers: &[Server], each_way: Duration) -> Vec<Proxy> {
    let ports = servers.iter().map(Server::port);
    ports.map(|port| Proxy::delay(port, each_way)).collect()
}

/// How a first try went: how long it took, or why there is no lock.
pub async fn first_try(builder: Builder, name: &str) -> Result<Duration, String> {
    let locks = builder.build().map_err(|error| error.to_string())?;
    let lock = locks.mutex(name);
    let start = Instant::now();
    let tried = timeout(NEVER, lock.try_acquire()).await;
    let took = start.elapsed();
    let guard = tried
        .map_err(|_| "no answer".to_owned())?
        .map_err(|error| error.to_string())?;
    // A later process is to find the lock free.
    timeout(NEVER, guard.release())
        .await
        .map_err(|_| "no answer to the release".to_owned())?
        .map_err(|error| error.to_string())?;
    timeout(NEVER, locks.close())
        .await
        .map_err(|_| "no end of close".to_owned())?;
    Ok(took)
}

/// How many of `rounds` fresh coordinators with default settings get a free lock at the first try,
/// and why the last one that did not was refused.
pub async fn wins(urls: &[String], rounds: usize) -> (usize, String) {
    let mut won = 0;
    let mut why = String::new();
    for round in 0..rounds {
        let builder = Coordinator::builder().masters(urls);
        match first_try(builder, &format!("first/{round}")).await {
            Ok(_) => won += 1,
            Err(error) => why = error,
        }
    }
    (won, why)
}

const NEVER: Duration = Duration::from_secs(10);
