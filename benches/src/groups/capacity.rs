//! The costs of a cycle, of a renewal and of a held lock on five masters. What groups carry follows
//! from them, as in `docs/operations.md`.

use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use quorlock::{Groups, Guard};
use tokio::time::{Instant, sleep};

use super::cycles::{Costs, Cycles, Load, name};
use super::{LAST_ANSWERS, open, settings, urls_at};
use crate::figure::figure;
use crate::load::{self, AT_ONCE, Result};
use crate::options::Options;
use crate::servers::{self, Server, Stats};
use crate::stats::{median, thread_cpu_us};

const SIZE: usize = 5;

/// The number of turns of each load. The figures are their medians.
const TURNS: usize = 11;

/// The sizes of the measurements.
struct Sizes {
    calm: usize,
    busy: usize,
    /// Just above a power of two, at which the tables of a server have grown.
    held: usize,
    ttl: Duration,
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
    let servers = &servers[..SIZE];
    let one = std::iter::once(urls_at(servers, 1));
    let locks = open(settings().ttl(sizes.ttl), one)?;
    cycles(&locks, servers, &sizes).await?;
    held(&locks, servers, &sizes).await?;
    locks.close().await;
    servers::check_empty(servers, "capacity")
}

async fn cycles(locks: &Groups, servers: &[Server], sizes: &Sizes) -> Result<()> {
    let cycles = |count, load| Cycles {
        first: 0,
        count,
        load,
    };
    let busy = Load::Busy(512);
    cycles(sizes.busy, busy).run(locks).await?;
    sleep(LAST_ANSWERS).await;
    for (load, cycles) in [
        ("calm", cycles(sizes.calm, Load::LockStep)),
        ("busy", cycles(sizes.busy, busy)),
    ] {
        let mut turns = Vec::new();
        for _ in 0..TURNS {
            turns.push(cycles.measure(locks, servers).await?);
        }
        let middle = |of: fn(&Costs) -> f64| median(turns.iter().map(of));
        let server_us = middle(|costs| costs.servers_us) / SIZE as f64;
        let name = |what: &str| format!("capacity_{load}_{what}");
        figure(&name("server_us_per_cycle"), server_us, "us");
        figure(
            &name("client_us_per_cycle"),
            middle(|costs| costs.client_us),
            "us",
        );
        figure(
            &name("cycles_per_s"),
            middle(|costs| costs.per_second),
            "cycles_per_s",
        );
    }
    Ok(())
}

async fn held(locks: &Groups, servers: &[Server], sizes: &Sizes) -> Result<()> {
    let each = sizes.held as f64;
    let before = servers::total(servers, "used_memory")?;
    let guards = load::take(locks.of(""), (0..sizes.held).map(name)).await?;
    sleep(LAST_ANSWERS).await;
    let memory = servers::total(servers, "used_memory")? - before;
    figure(
        "capacity_server_bytes_per_lock",
        memory as f64 / SIZE as f64 / each,
        "bytes",
    );
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
    let cpu = || servers.iter().map(servers::cpu_us).sum::<f64>();
    let scripts = || Stats::of(servers, &["evalsha"]);
    let (calls, server, client, began) = (scripts()?.calls, cpu(), thread_cpu_us(), Instant::now());
    sleep(ttl * 2 / 3).await;
    let (client, took) = (thread_cpu_us() - client, began.elapsed().as_secs_f64());
    let server = cpu() - server;
    let scripts = (scripts()?.calls - calls) as f64;
    figure("capacity_server_us_per_renewal", server / scripts, "us");
    figure(
        "capacity_client_us_per_renewal",
        client / (scripts / SIZE as f64),
        "us",
    );
    figure(
        "capacity_renewals_per_s",
        scripts / SIZE as f64 / took,
        "renewals_per_s",
    );
    Ok(())
}
