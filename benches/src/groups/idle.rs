//! 64 groups of five masters, unused and used: memory, connections, tasks and commands.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::{Groups, Guard};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::cycles::name;
use super::{ADDRESSES, LAST_ANSWERS, open, settings, urls_at};
use crate::alloc;
use crate::figure::figure;
use crate::load::Result;
use crate::options::Options;
use crate::servers::{self, Server};

const GROUPS: usize = 64;
const SIZE: usize = 5;

/// The number of names that are spread over the groups.
const NAMES: usize = 30_000;

/// What a program has taken.
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
    let locks = groups(servers)?;
    for ready in locks.ready(Duration::from_secs(10)).await {
        ready?;
    }
    sleep(LAST_ANSWERS * 4).await;
    Taken::now(servers)?.report(&before, "unused");
    let names = names(&locks);
    let fullest = names.values().map(Vec::len).max().unwrap_or_default();
    let mean = NAMES as f64 / GROUPS as f64;
    figure("groups_fullest_of_64", fullest as f64 / mean, "ratio");
    figure(
        "groups_idle_commands_per_s",
        commands(servers, span).await?,
        "commands_per_s",
    );

    for guard in one_of_each(&locks, names).await? {
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

/// Connects to 64 groups. A few servers are the masters of all of them.
fn groups(servers: &[Server]) -> Result<Groups> {
    let masters = |group| {
        let (set, address) = (group / ADDRESSES, group % ADDRESSES + 1);
        urls_at(&servers[set * SIZE..][..SIZE], address)
    };
    open(settings(), (0..GROUPS).map(masters))
}

/// Returns the names of each group.
fn names(locks: &Groups) -> BTreeMap<Option<&str>, Vec<String>> {
    let mut names = BTreeMap::<_, Vec<_>>::new();
    for name in (0..NAMES).map(name) {
        names.entry(locks.of(&name).label()).or_default().push(name);
    }
    names
}

/// Acquires a lock in each group.
async fn one_of_each(
    locks: &Groups,
    names: BTreeMap<Option<&str>, Vec<String>>,
) -> Result<Vec<Guard>> {
    let mut guards = Vec::new();
    for name in names.values().flat_map(|names| names.first()) {
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
