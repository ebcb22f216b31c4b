//! The costs of a cycle, of a renewal, of a held lock and of an idle coordinator on five masters.
//! What groups of masters carry follows from them, as in `docs/operations.md`.

use std::time::Duration;

use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use quorlock::{Builder, Coordinator, Guard, Quarantine};
use tokio::time::{Instant, sleep};

use crate::alloc;
use crate::figure::figure;
use crate::load::{self, AT_ONCE, Result};
use crate::options::Options;
use crate::servers::{self, Server, Stats};
use crate::stats::{median, thread_cpu_us};

/// The number of turns of each load. The figures are their medians.
const TURNS: usize = 11;

/// The number of tasks that make as many cycles as possible. Their commands travel together.
const BUSY: usize = 512;

/// The number of idle coordinators. Each group has one.
const GROUPS: usize = 64;

/// On a busy machine, a cycle must take longer rather than fail.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The time until the last answers arrive. A call returns after those of a majority.
const LAST_ANSWERS: Duration = Duration::from_millis(50);

/// The sizes of the measurements.
struct Sizes {
    calm: usize,
    busy: usize,
    /// Just above a power of two, at which the tables of a server have grown.
    held: usize,
    ttl: Duration,
}

/// The costs of a turn, per cycle.
struct Costs {
    /// The processor time of one server.
    server_us: f64,
    /// The processor time of this thread.
    client_us: f64,
    per_second: f64,
}

pub async fn run(options: &Options, servers: &[Server]) -> Result<()> {
    let sizes = if options.quick {
        Sizes {
            calm: 50,
            busy: 100,
            held: 600,
            ttl: Duration::from_secs(2),
        }
    } else {
        Sizes {
            calm: 1_000,
            busy: 20_000,
            held: 66_000,
            ttl: Duration::from_secs(30),
        }
    };
    idle(servers).await?;
    let locks = settings(servers).ttl(sizes.ttl).build()?;
    cycles(&locks, servers, &sizes).await?;
    held(&locks, servers, &sizes).await?;
    locks.close().await;
    servers::check_empty(servers, "capacity")
}

fn settings(servers: &[Server]) -> Builder {
    let builder = Coordinator::builder().masters(servers::urls(servers));
    builder
        .quarantine(Quarantine::Off)
        .response_timeout(RESPONSE_TIMEOUT)
}

/// Measures coordinators that do nothing.
async fn idle(servers: &[Server]) -> Result<()> {
    let total = |field| servers::total(servers, field);
    let ours = servers.len() as u64;
    // Connections of other measurements may still be there.
    while total("connected_clients")? > ours {
        sleep(LAST_ANSWERS).await;
    }
    let (live, memory) = (alloc::live(), total("used_memory")?);
    let mut groups = Vec::new();
    for _ in 0..GROUPS {
        let group = settings(servers).build()?;
        group.all_ready_within(Duration::from_secs(10)).await?;
        groups.push(group);
    }
    sleep(LAST_ANSWERS * 4).await;
    let connections = total("connected_clients")? - ours;
    let memory = total("used_memory")?.saturating_sub(memory);
    figure("capacity_idle_connections", connections as f64, "count");
    figure(
        "capacity_idle_client_bytes",
        alloc::live().saturating_sub(live) as f64,
        "bytes",
    );
    figure(
        "capacity_server_bytes_per_connection",
        memory as f64 / connections as f64,
        "bytes",
    );
    for group in groups {
        group.close().await;
    }
    Ok(())
}

async fn cycles(locks: &Coordinator, servers: &[Server], sizes: &Sizes) -> Result<()> {
    run_cycles(locks, sizes.busy, BUSY).await?;
    sleep(LAST_ANSWERS).await;
    for (load, count, tasks) in [("calm", sizes.calm, 1), ("busy", sizes.busy, BUSY)] {
        let mut turns = Vec::new();
        for _ in 0..TURNS {
            turns.push(measure(locks, servers, count, tasks).await?);
        }
        let middle = |of: fn(&Costs) -> f64| median(turns.iter().map(of));
        let name = |what: &str| format!("capacity_{load}_{what}");
        let (server_us, client_us) = (middle(|one| one.server_us), middle(|one| one.client_us));
        figure(&name("server_us_per_cycle"), server_us, "us");
        figure(&name("client_us_per_cycle"), client_us, "us");
        figure(
            &name("cycles_per_s"),
            middle(|one| one.per_second),
            "cycles_per_s",
        );
    }
    Ok(())
}

async fn measure(
    locks: &Coordinator,
    servers: &[Server],
    count: usize,
    tasks: usize,
) -> Result<Costs> {
    let cpu = || servers::cpu_us(servers);
    let (server, client, began) = (cpu(), thread_cpu_us(), Instant::now());
    run_cycles(locks, count, tasks).await?;
    let took = began.elapsed().as_secs_f64();
    sleep(LAST_ANSWERS).await;
    let each = count as f64;
    Ok(Costs {
        server_us: (cpu() - server) / each,
        client_us: (thread_cpu_us() - client) / each,
        per_second: each / took,
    })
}

/// Acquires and releases `count` names once each.
async fn run_cycles(locks: &Coordinator, count: usize, tasks: usize) -> Result<()> {
    let task = |first| {
        let locks = locks.clone();
        tokio::spawn(async move {
            for number in (first..count).step_by(tasks) {
                let guard = locks.mutex(name(number)).try_acquire().await?;
                // A task that is alone waits for all masters. So each command travels alone, as it
                // does if there is little to do.
                if tasks == 1 {
                    guard.all_votes().await;
                }
                guard.release().await?;
            }
            Ok(())
        })
    };
    try_join_all((0..tasks).map(task))
        .await?
        .into_iter()
        .collect()
}

/// The name of a lock. The names have 20 bytes.
fn name(number: usize) -> String {
    format!("bench/orders/{number:07}")
}

async fn held(locks: &Coordinator, servers: &[Server], sizes: &Sizes) -> Result<()> {
    let before = servers::total(servers, "used_memory")?;
    let guards = load::take(locks, (0..sizes.held).map(name)).await?;
    sleep(LAST_ANSWERS).await;
    let memory = servers::total(servers, "used_memory")? - before;
    let each = memory as f64 / servers.len() as f64 / sizes.held as f64;
    figure("capacity_server_bytes_per_lock", each, "bytes");
    renewals(servers, sizes.ttl).await?;
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    figure("capacity_locks_lost", lost as f64, "count");
    let released = stream::iter(guards)
        .map(Guard::release)
        .buffer_unordered(AT_ONCE);
    released.try_collect::<Vec<_>>().await?;
    Ok(())
}

/// Measures the renewals of held locks. A master renews a lock with one script, and nothing else
/// runs on it.
async fn renewals(servers: &[Server], ttl: Duration) -> Result<()> {
    let cpu = || servers::cpu_us(servers);
    let scripts = || Stats::of(servers, &["evalsha"]);
    let (calls, server, client, began) = (scripts()?.calls, cpu(), thread_cpu_us(), Instant::now());
    sleep(ttl * 2 / 3).await;
    let (client, took) = (thread_cpu_us() - client, began.elapsed().as_secs_f64());
    let server = (cpu() - server) * servers.len() as f64;
    let scripts = (scripts()?.calls - calls) as f64;
    let renewals = scripts / servers.len() as f64;
    figure("capacity_server_us_per_renewal", server / scripts, "us");
    figure("capacity_client_us_per_renewal", client / renewals, "us");
    figure("capacity_renewals_per_s", renewals / took, "renewals_per_s");
    Ok(())
}
