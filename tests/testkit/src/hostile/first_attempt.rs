//! The first call of a process, while its connections are still being made.

use std::time::{Duration, Instant};

use quorlock::{Builder, Coordinator};
use tokio::time::timeout;

use crate::proxy::Proxy;
use crate::server::Server;

/// Starts proxies in front of `servers` that delay each direction by `each_way`.
pub fn far_away(servers: &[Server], each_way: Duration) -> Vec<Proxy> {
    let ports = servers.iter().map(Server::port);
    ports.map(|port| Proxy::delay(port, each_way)).collect()
}

/// Makes a first attempt. Returns how long it took, or why it got no lock.
pub async fn first_attempt(builder: Builder, name: &str) -> Result<Duration, String> {
    let locks = builder.build().map_err(|error| error.to_string())?;
    let lock = locks.mutex(name);
    let start = Instant::now();
    let tried = timeout(TOO_LONG, lock.try_acquire()).await;
    let took = start.elapsed();
    let guard = tried
        .map_err(|_| "no answer".to_owned())?
        .map_err(|error| error.to_string())?;
    // The next process must find the lock free.
    timeout(TOO_LONG, guard.release())
        .await
        .map_err(|_| "no answer to the release".to_owned())?
        .map_err(|error| error.to_string())?;
    timeout(TOO_LONG, locks.close())
        .await
        .map_err(|_| "no end of close".to_owned())?;
    Ok(took)
}

/// Counts how many of `rounds` fresh coordinators with default settings get a free lock at the
/// first attempt. Also returns the reason of the last failure.
pub async fn count_wins(urls: &[String], rounds: usize) -> (usize, String) {
    let mut won = 0;
    let mut why = String::new();
    for round in 0..rounds {
        let builder = Coordinator::builder().masters(urls);
        match first_attempt(builder, &format!("first/{round}")).await {
            Ok(_) => won += 1,
            Err(error) => why = error,
        }
    }
    (won, why)
}

const TOO_LONG: Duration = Duration::from_secs(10);
