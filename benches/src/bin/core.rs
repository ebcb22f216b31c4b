//! Measures the cost of a cycle inside the process: the time of single rules, and allocations.

use std::hint::black_box;
use std::time::{Duration, Instant};

use quorlock::__internals::{self as rules, Acquisition, Five, TtlAndDrift};
use quorlock_benches::alloc::{self, Counting};
use quorlock_benches::contestants::{
    lists::{SixMasters, TwoLists},
    naive::Naive,
    pipelined::Pipelined,
    quorlock::Quorlock,
    rslock::Rslock,
};
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, Contestant, Flavour, Result};
use quorlock_benches::options::Options;
use quorlock_benches::servers::{self, Server};
use quorlock_benches::stats::median;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MASTERS: usize = 5;

fn main() -> Result<()> {
    let options = Options::from_args();
    rules(options.quick)?;
    let cycles = if options.quick { 200 } else { 5_000 };
    let servers = servers::masters(MASTERS + 1);
    allocations::<SixMasters>("_six_masters", &servers, cycles)?;
    allocations::<TwoLists>("_two_lists", &servers, cycles)?;
    let servers = &servers[..MASTERS];
    allocations::<Quorlock>("", servers, cycles)?;
    allocations::<Pipelined>("_pipelined", servers, cycles)?;
    allocations::<Naive>("_naive", servers, cycles)?;
    allocations::<Rslock>("_rslock", servers, cycles)
}

/// Times the steps that need no runtime and no master.
fn rules(quick: bool) -> Result<()> {
    let now = Instant::now();
    let ttl = TtlAndDrift::new().ok_or("no TTL")?;
    let acquisition = Acquisition::new().ok_or("no command")?;
    let five = Five::default();
    if !five.tally([true; 5]) || !five.round(now) {
        return Err("five votes of five did not win".into());
    }
    time("tally_of_5", quick, || five.tally(black_box([true; 5])));
    time("round_of_5", quick, || five.round(black_box(now)));
    time("lease", quick, || {
        rules::lease(black_box(now), black_box(&ttl))
    });
    let mut out = Vec::with_capacity(256);
    time("encode_acquire", quick, || {
        out.clear();
        acquisition.encode(black_box(&mut out));
    });
    Ok(())
}

/// Prints the median time of a step over many batches. The batches are long compared to the clock's
/// resolution.
fn time<T>(name: &str, quick: bool, mut step: impl FnMut() -> T) {
    let (batches, at_least) = if quick { (5, 200) } else { (51, 2_000) };
    let at_least = Duration::from_micros(at_least);
    let mut batch = |steps: u32| {
        let start = Instant::now();
        for _ in 0..steps {
            black_box(step());
        }
        start.elapsed()
    };
    let mut steps = 1;
    while batch(steps) < at_least {
        steps *= 2;
    }
    let nanos = (0..batches).map(|_| batch(steps).as_nanos() as f64 / f64::from(steps));
    figure(&format!("{name}_ns"), median(nanos), "ns");
}

/// Counts the allocations of whole cycles of one task. Everything runs on this thread. The late
/// answers of the last cycle are not counted. Instead, the late answers of the last warm-up cycle
/// are counted, so the sum is right.
fn allocations<C: Contestant>(suffix: &str, servers: &[Server], cycles: u32) -> Result<()> {
    let urls = servers::urls(servers);
    let counted = Flavour::CurrentThread.runtime()?.block_on(async {
        let client = C::connect(&urls).await?;
        let mut task = client.task(load::key(0));
        for _ in 0..cycles / 2 + 100 {
            C::cycle(&mut task).await?;
        }
        let before = alloc::counts();
        for _ in 0..cycles {
            C::cycle(&mut task).await?;
        }
        let after = alloc::counts();
        drop(task);
        client.close().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((before, after))
    });
    let (before, after) = counted?;
    servers::check_empty(servers, suffix)?;
    let per_cycle = |count: u64| count as f64 / f64::from(cycles);
    let calls = per_cycle(after.calls - before.calls);
    let bytes = per_cycle(after.bytes - before.bytes);
    figure(&format!("allocations_per_cycle{suffix}"), calls, "count");
    figure(
        &format!("allocated_bytes_per_cycle{suffix}"),
        bytes,
        "bytes",
    );
    Ok(())
}
