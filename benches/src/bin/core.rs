//! Counts the allocations of a cycle inside the process.

use quorlock_benches::alloc::{self, Counting};
use quorlock_benches::contestants::{naive::Naive, quorlock::Quorlock, rslock::Rslock};
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, Contestant, Flavour, Result};
use quorlock_benches::options::Options;
use quorlock_benches::servers::{self, Server};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<()> {
    let options = Options::from_args();
    let cycles = if options.quick { 200 } else { 5_000 };
    let servers = servers::masters(5);
    allocations::<Quorlock>("", &servers, cycles)?;
    allocations::<Naive>("_naive", &servers, cycles)?;
    allocations::<Rslock>("_rslock", &servers, cycles)
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
    let name = format!("allocated_bytes_per_cycle{suffix}");
    figure(&name, bytes, "bytes");
    Ok(())
}
