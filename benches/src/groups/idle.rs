//! 64 groups of five masters, unused and used: memory, connections, tasks and commands.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::{Builder, Coordinator, Guard};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::cycles::name;
use super::{ADDRESSES, LAST_ANSWERS, builder, urls_at};
use crate::alloc;
use crate::figure::figure;
use crate::load::Result;
use crate::options::Options;
use crate::servers::{self, Server};

const GROUPS: usize = 64;
const SIZE: usize = 5;

/// The number of names that are spread over the groups.
const NAMES: usize = 30_000;

/// What a coordinator has taken.
struct Taken {
    bytes: u64,
    tasks: usize,
    connections: u64,
    /// The memory of all servers together.
    server_bytes: u64,
}

pub async fn run(options: &Options, servers: &[Server]) -> Result<()> {
    let span = Duration::from_secs(if options.quick { 1 } else { 10 });
    // Connections of other parts may still be there.
    let ours = servers.len() as u64;
    while servers::total(servers, "connected_clients")? > ours {
        sleep(LAST_ANSWERS).await;
    }
    let before = Taken::now(servers)?;
    let locks = groups(servers).dial_at_first_use(true).build()?;
    sleep(LAST_ANSWERS).await;
    figure("groups_fullest_of_64", fullest(&locks), "ratio");
    Taken::now(servers)?.report(&before, "unused");
    figure(
        "groups_idle_commands_per_s",
        commands(servers, span).await?,
        "commands_per_s",
    );

    for guard in one_of_each(&locks).await? {
        guard.release().await?;
    }
    sleep(LAST_ANSWERS).await;
    let used = Taken::now(servers)?;
    used.report(&before, "used");
    let bytes = (used.server_bytes - before.server_bytes) / (used.connections - before.connections);
    figure("groups_server_bytes_per_connection", bytes as f64, "bytes");
    figure(
        "groups_idle_commands_per_s_used",
        commands(servers, span).await?,
        "commands_per_s",
    );
    locks.close().await;
    drop(locks);
    servers::check_empty(servers, "idle groups")
}

/// Returns a builder for 64 groups. A few servers are the masters of all of them.
fn groups(servers: &[Server]) -> Builder {
    builder((0..GROUPS).map(|group| {
        let (set, address) = (group / ADDRESSES, group % ADDRESSES + 1);
        urls_at(&servers[set * SIZE..][..SIZE], address)
    }))
}

/// Returns the number of names in the fullest group, divided by the mean.
fn fullest(locks: &Coordinator) -> f64 {
    let mut counts = BTreeMap::new();
    for number in 0..NAMES {
        let group = locks.group_of(name(number)).map(str::to_owned);
        *counts.entry(group).or_insert(0_usize) += 1;
    }
    let fullest = counts.into_values().max().unwrap_or_default();
    (fullest * GROUPS) as f64 / NAMES as f64
}

/// Acquires a lock in each group.
async fn one_of_each(locks: &Coordinator) -> Result<Vec<Guard>> {
    let mut names = BTreeMap::new();
    for number in 0..NAMES {
        let name = name(number);
        let group = locks.group_of(&name).map(str::to_owned);
        names.entry(group).or_insert(name);
    }
    let mut guards = Vec::new();
    for name in names.into_values() {
        guards.push(locks.mutex(name).acquire().await?);
    }
    Ok(guards)
}

/// Returns the commands per second that all servers execute.
async fn commands(servers: &[Server], span: Duration) -> Result<f64> {
    const EXECUTED: &str = "total_commands_processed";
    let (before, since) = (servers::total(servers, EXECUTED)?, Instant::now());
    sleep(span).await;
    // Each server has executed a command of ours.
    let executed = servers::total(servers, EXECUTED)? - before - servers.len() as u64;
    Ok(executed as f64 / since.elapsed().as_secs_f64())
}

impl Taken {
    fn now(servers: &[Server]) -> Result<Self> {
        let (connections, server_bytes) = (
            servers::total(servers, "connected_clients")?,
            servers::total(servers, "used_memory")?,
        );
        Ok(Self {
            bytes: alloc::live(),
            tasks: Handle::current().metrics().num_alive_tasks(),
            connections,
            server_bytes,
        })
    }

    /// Prints the growth.
    fn report(&self, before: &Self, when: &str) {
        let name = |what: &str| format!("groups_{what}_{when}");
        let bytes = self.bytes.saturating_sub(before.bytes);
        let connections = self.connections - before.connections;
        figure(&name("bytes"), bytes as f64, "bytes");
        figure(&name("connections"), connections as f64, "count");
        figure(&name("tasks"), (self.tasks - before.tasks) as f64, "count");
    }
}
