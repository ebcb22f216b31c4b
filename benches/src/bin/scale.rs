//! Measures one process that holds and renews many locks: the memory and the processor time that
//! they take, and whether renewals are in time. Then measures fair locks with many waiters, and
//! what groups of masters carry.

use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use quorlock::{Coordinator, Guard};
use quorlock_benches::alloc::{self, Counting};
use quorlock_benches::capacity;
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, AT_ONCE, Flavour, Result};
use quorlock_benches::options::Options;
use quorlock_benches::queue;
use quorlock_benches::servers::{self, Server};
use quorlock_benches::stats::CpuTime;
use quorlock_benches::sweep::{self, Sweep};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MASTERS: usize = 5;

fn main() -> Result<()> {
    if sweep::play()? {
        return Ok(());
    }
    let options = Options::from_args();
    let servers = servers::masters(MASTERS);
    if options.wants("guards") {
        guards(&options, &servers)?;
    }
    if options.wants("waiters") {
        let run = queue::run(&options, &servers);
        Flavour::CurrentThread.runtime()?.block_on(run)?;
        servers::check_empty(&servers, "waiters")?;
    }
    if options.wants("capacity") {
        let run = capacity::run(&options, &servers);
        Flavour::CurrentThread.runtime()?.block_on(run)?;
    }
    Ok(())
}

fn guards(options: &Options, servers: &[Server]) -> Result<()> {
    let (sizes, ttl) = if options.quick {
        (vec![200, 1_000], Duration::from_secs(3))
    } else {
        (vec![1_000, 10_000, 100_000], Duration::from_secs(30))
    };
    let sizes = options.widths.clone().unwrap_or(sizes);
    let mut totals = Totals::default();
    for guards in sizes {
        let run = hold(servers, guards, ttl);
        Flavour::CurrentThread
            .runtime()?
            .block_on(run)?
            .add_to(&mut totals);
        servers::check_empty(servers, "scale")?;
    }
    figure("bytes_per_guard", totals.bytes_per_guard, "bytes");
    figure("locks_lost", totals.lost as f64, "count");
    if totals.lost > 0 {
        return Err(format!("{} locks were lost", totals.lost).into());
    }
    Ok(())
}

/// The totals over all sizes: the most bytes, and all lost locks.
#[derive(Debug, Default)]
struct Totals {
    bytes_per_guard: f64,
    lost: usize,
}

impl Totals {
    fn add_to(self, all: &mut Self) {
        all.bytes_per_guard = all.bytes_per_guard.max(self.bytes_per_guard);
        all.lost += self.lost;
    }
}

/// Acquires `guards` locks, holds them for two renewal periods and releases them.
async fn hold(servers: &[Server], guards: usize, ttl: Duration) -> Result<Totals> {
    let builder = Coordinator::builder()
        .quarantine(quorlock::Quarantine::Off)
        .masters(servers::urls(servers));
    let locks = builder.ttl(ttl).build()?;
    // The warm-up acquires as many locks at once as the measurement does. So the memory that
    // connections keep for this does not count for the guards.
    let names = |count, prefix| (0..count).map(move |n| format!("{prefix}-{n}"));
    drop(load::take(&locks, names(4 * AT_ONCE, "warm-up")).await?);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = alloc::live();
    let began = Instant::now();
    let held = load::take(&locks, names(guards, "scale")).await?;
    let took = began.elapsed();
    tokio::time::sleep(Duration::from_millis(200)).await; // until the last answers arrive
    let fresh = alloc::live();
    let sweep = Sweep::start(servers[0].url().trim_start_matches("redis://"), guards, ttl)?;
    let (cpu, began) = (CpuTime::now(), Instant::now());
    tokio::time::sleep(ttl * 2 / 3).await;
    let cpu = cpu.since().as_secs_f64() / began.elapsed().as_secs_f64();
    let renewed = alloc::live();
    let swept = sweep.end()?;
    let lost = held.iter().filter(|guard| !guard.is_valid()).count();
    let released = stream::iter(held).map(Guard::release);
    let released: Vec<_> = released.buffer_unordered(AT_ONCE).collect().await;
    // If a release failed, some masters are still owed the release, and `close` waits for it.
    if let Some(error) = released.iter().find_map(|release| release.as_ref().err()) {
        println!("a release: {error}");
    }
    let unconfirmed = released.iter().filter(|release| release.is_err()).count();
    locks.close().await;

    let each = |live: u64| live.saturating_sub(before) as f64 / guards as f64;
    println!(
        "{guards} guards of {} bytes in {:.1} s, {:.0} bytes each when new, {:.0} after renewals",
        size_of::<Guard>(),
        took.as_secs_f64(),
        each(fresh),
        each(renewed),
    );
    let bytes_per_guard = each(fresh).max(each(renewed));
    let name = |what: &str| format!("{what}_{guards}");
    figure(&name("bytes_per_guard"), bytes_per_guard, "bytes");
    figure(&name("cpu_share"), cpu * 100.0, "percent");
    figure(&name("renewals"), swept.renewals as f64, "count");
    figure(&name("renewals_late"), swept.late as f64, "count");
    figure(&name("renewal_gap_worst"), swept.worst.as_secs_f64(), "s");
    figure(&name("releases_unconfirmed"), unconfirmed as f64, "count");
    figure(&name("keys_missing"), swept.missing as f64, "count");
    Ok(Totals {
        bytes_per_guard,
        lost,
    })
}
