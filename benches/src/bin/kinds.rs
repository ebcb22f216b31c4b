//! Compares locks of newer kinds to reentrant locks of the same run, and ten names to one.

use quorlock_benches::contestants::kinds::{
    Fair, Permit, Reader, Reentrant, SharedReader, TenNames, Writer,
};
use quorlock_benches::contestants::quorlock::Quorlock;
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, Contestant, Flavour, Result};
use quorlock_benches::options::Options;
use quorlock_benches::permits;
use quorlock_benches::servers::{self, Server};
use quorlock_benches::stats::{Outcome, median};
use testkit::proxy::Proxy;

const MASTERS: usize = 5;

/// The number of tasks that share one name.
const SHARERS: usize = 64;

const P50: &str = "p50_vs_reentrant";
const THROUGHPUT: &str = "throughput_16_vs_reentrant";

fn main() -> Result<()> {
    let options = Options::from_args();
    let servers = servers::masters(MASTERS);
    let links = servers::links(&servers);
    let near = Place {
        options: &options,
        servers: &servers,
        urls: servers::urls(&servers),
        suffix: "",
    };
    let far = Place {
        urls: links.iter().map(Proxy::url).collect(),
        suffix: "_far",
        ..near
    };
    for place in [&near, &far] {
        place.compare::<Reader, Reentrant>("reader", THROUGHPUT, 16)?;
        place.compare::<Permit, Reentrant>("permit", THROUGHPUT, 16)?;
        place.compare::<TenNames, Quorlock>("ten_names", "p50_vs_mutex", 1)?;
        place.hand_over()?;
    }
    near.compare::<Fair, Reentrant>("fair", P50, 1)?;
    near.compare::<Reader, Reentrant>("reader", P50, 1)?;
    near.compare::<Writer, Reentrant>("writer", P50, 1)?;
    near.compare::<Permit, Reentrant>("permit", P50, 1)?;
    near.compare::<Fair, Reentrant>("fair", THROUGHPUT, 16)?;
    near.compare::<Writer, Reentrant>("writer", THROUGHPUT, 16)?;
    near.compare::<SharedReader, Reentrant>(
        "readers_of_one_name",
        "throughput_64_vs_reentrant",
        SHARERS,
    )?;
    near.busy()
}

/// The servers, and the way to them.
struct Place<'a> {
    options: &'a Options,
    servers: &'a [Server],
    urls: Vec<String>,
    /// The end of the names of the figures.
    suffix: &'static str,
}

impl Place<'_> {
    /// Prints what a semaphore that is nearly full costs.
    fn busy(&self) -> Result<()> {
        let (options, servers) = (self.options, self.servers);
        if !options.wants("busy") {
            return Ok(());
        }
        let measured = options.measured(if options.quick { 500 } else { 5_000 });
        let busy = runtime()?.block_on(permits::busy(servers, 110, measured))?;
        figure("busy_share_of_permits", busy.share, "ratio");
        figure(
            "busy_commands_per_permit",
            busy.commands_per_permit,
            "commands",
        );
        servers::check_empty(servers, "busy")
    }

    /// Prints how long a full semaphore takes to hand over a permit.
    fn hand_over(&self) -> Result<()> {
        if !self.options.wants("hand_over") {
            return Ok(());
        }
        let turns = if self.options.quick { 20 } else { 300 };
        let ratio = runtime()?.block_on(permits::hand_over(&self.urls, turns))?;
        let name = format!("permit_hand_over_vs_reentrant{}", self.suffix);
        figure(&name, ratio, "ratio");
        servers::check_empty(self.servers, "hand_over")
    }

    /// Runs the contestant and the yardstick in turn, because the speed of the machine may change.
    /// Prints the median of the ratios: of the median times of one task, or of the cycles per
    /// second of several tasks.
    fn compare<C: Contestant, Yardstick: Contestant>(
        &self,
        name: &str,
        what: &str,
        width: usize,
    ) -> Result<()> {
        let options = self.options;
        if !options.wants(name) {
            return Ok(());
        }
        let extent = match options.quick {
            true => options.extent(1, &[width], 50, 200),
            false => options.extent(7, &[width], 300, 2_000),
        };
        let length = extent.length;
        let measure = |outcome: Outcome| match width {
            1 => outcome.p50_us,
            _ => outcome.per_second,
        };
        let mut ratios = Vec::new();
        for _ in 0..extent.rounds {
            let flavour = Flavour::CurrentThread;
            let yardstick = load::run::<Yardstick>(flavour, &self.urls, width, length)?;
            let other = load::run::<C>(flavour, &self.urls, width, length)?;
            ratios.push(measure(other) / measure(yardstick));
            servers::check_empty(self.servers, name)?;
        }
        let name = format!("{name}_{what}{}", self.suffix);
        figure(&name, median(ratios), "ratio");
        Ok(())
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_all().build()?)
}
