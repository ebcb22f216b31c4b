//! Compares locks of newer kinds to reentrant locks of the same run, and ten names to one.

use std::time::Duration;

use quorlock_benches::contestants::kinds::{
    Fair, Permit, Reader, Reentrant, SharedReader, TenNames, Writer,
};
use quorlock_benches::contestants::quorlock::Quorlock;
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, Contestant, Flavour, Length, Result};
use quorlock_benches::options::Options;
use quorlock_benches::permits;
use quorlock_benches::servers::{self, Server};
use quorlock_benches::stats::{Outcome, median};

const MASTERS: usize = 5;

/// The number of tasks that share one name.
const SHARERS: usize = 64;

fn main() -> Result<()> {
    let options = Options::from_args();
    let servers = servers::masters(MASTERS);
    for (runs, suffix) in [(1, "p50_vs_reentrant"), (16, "throughput_16_vs_reentrant")] {
        compare::<Fair, Reentrant>("fair", suffix, runs, &options, &servers)?;
        compare::<Reader, Reentrant>("reader", suffix, runs, &options, &servers)?;
        compare::<Writer, Reentrant>("writer", suffix, runs, &options, &servers)?;
        compare::<Permit, Reentrant>("permit", suffix, runs, &options, &servers)?;
    }
    compare::<TenNames, Quorlock>("ten_names", "p50_vs_mutex", 1, &options, &servers)?;
    compare::<SharedReader, Reentrant>(
        "readers_of_one_name",
        "throughput_64_vs_reentrant",
        SHARERS,
        &options,
        &servers,
    )?;
    if options.wants("busy") {
        busy(&options, &servers)?;
    }
    Ok(())
}

/// Prints what a semaphore costs that is nearly full or full.
fn busy(options: &Options, servers: &[Server]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let measured = options.measured(if options.quick { 500 } else { 5_000 });
    let busy = runtime.block_on(permits::busy(servers, 110, measured))?;
    eprintln!("of 100 permits, {:.0} % were held", busy.share * 100.0);
    figure(
        "busy_commands_per_permit",
        busy.commands_per_permit,
        "commands",
    );
    let turns = if options.quick { 20 } else { 300 };
    let hand_over = runtime.block_on(permits::hand_over(servers, turns))?;
    figure("permit_hand_over_vs_reentrant", hand_over, "ratio");
    servers::check_empty(servers, "busy")
}

/// Runs the contestant and the yardstick in turn, because the speed of the machine may change.
/// Prints the median of the ratios: of the median times of one task, or of the cycles per second of
/// several.
fn compare<C: Contestant, Yardstick: Contestant>(
    name: &str,
    suffix: &str,
    width: usize,
    options: &Options,
    servers: &[Server],
) -> Result<()> {
    if !options.wants(name) {
        return Ok(());
    }
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 7 });
    let length = Length {
        warm_up: Duration::from_millis(if options.quick { 50 } else { 300 }),
        measured: options.measured(if options.quick { 200 } else { 2_000 }),
    };
    let urls = servers::urls(servers);
    let measure = |outcome: Outcome| {
        if width == 1 {
            outcome.p50_us
        } else {
            outcome.per_second
        }
    };
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let yardstick = load::run::<Yardstick>(Flavour::CurrentThread, &urls, width, length)?;
        let other = load::run::<C>(Flavour::CurrentThread, &urls, width, length)?;
        ratios.push(measure(other) / measure(yardstick));
        servers::check_empty(servers, name)?;
    }
    figure(&format!("{name}_{suffix}"), median(ratios), "ratio");
    Ok(())
}
