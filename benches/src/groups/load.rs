//! The same load on 1, 2, 4 and 8 groups of three masters.

use std::time::{Duration, Instant};

use quorlock::Groups;
use tokio::time::sleep;

use super::cycles::{Costs, Cycles, Load};
use super::{LAST_ANSWERS, open, settings, urls_at};
use crate::figure::figure;
use crate::load::Result;
use crate::options::Options;
use crate::servers::{self, Server};
use crate::stats::median;

const SIZE: usize = 3;

/// The numbers of groups. The first is the one that all are compared to.
const COUNTS: [usize; 4] = [1, 2, 4, 8];

const BUSY: Load = Load::Busy(512);

/// The sizes of the measurements. A turn is short, because the speed of the machine changes.
struct Sizes {
    names: usize,
    calm: usize,
    busy: usize,
    rounds: usize,
    idle: Duration,
}

/// One number of groups.
struct Contestant<'a> {
    groups: usize,
    /// Whether each group has servers of its own. Otherwise the same three servers are the masters
    /// of all groups. That shows the price of groups for the client alone: more servers wait longer
    /// for a processor on one machine, and have less in their caches.
    has_own: bool,
    servers: &'a [Server],
    locks: Groups,
    calm: Vec<Costs>,
    busy: Vec<Costs>,
}

pub async fn run(options: &Options, servers: &[Server]) -> Result<()> {
    let sizes = if options.quick {
        Sizes {
            names: 1_000,
            calm: 100,
            busy: 200,
            rounds: 1,
            idle: Duration::from_millis(200),
        }
    } else {
        Sizes {
            names: 20_000,
            calm: 500,
            busy: 5_000,
            rounds: 41,
            idle: Duration::from_secs(5),
        }
    };
    // While no coordinator has a connection.
    let idle = idle(servers, sizes.idle).await;
    figure("groups_idle_server_us_per_s", idle, "us");
    let mut contestants = Vec::new();
    for (has_own, groups) in [true, false]
        .into_iter()
        .flat_map(|own| COUNTS.map(|n| (own, n)))
    {
        contestants.push(Contestant::new(servers, groups, has_own).await?);
    }
    loads(&contestants, sizes.names).await?;
    for round in 0..options.rounds.unwrap_or(sizes.rounds) {
        let count = contestants.len();
        contestants.rotate_left(round % count);
        for contestant in &mut contestants {
            contestant.turn(&sizes, round).await?;
        }
        contestants.sort_by_key(|contestant| (!contestant.has_own, contestant.groups));
    }
    report(&contestants, idle);
    for contestant in contestants {
        contestant.locks.close().await;
    }
    servers::check_empty(servers, "groups")
}

/// Returns the processor time that a server without clients uses in a second, in microseconds.
async fn idle(servers: &[Server], span: Duration) -> f64 {
    let cpu = || servers.iter().map(servers::cpu_us).sum::<f64>();
    let (before, began) = (cpu(), Instant::now());
    sleep(span).await;
    (cpu() - before) / servers.len() as f64 / began.elapsed().as_secs_f64()
}

/// Prints the commands of each master for the same cycles, one for each of `names` names.
async fn loads(contestants: &[Contestant<'_>], names: usize) -> Result<()> {
    let mut whole = None;
    for contestant in contestants.iter().filter(|contestant| contestant.has_own) {
        let loads = contestant.loads(names).await?;
        let fullest = loads.iter().copied().fold(0.0, f64::max);
        let load = median(loads);
        let whole = *whole.get_or_insert(load);
        let share = |load: f64| load * contestant.groups as f64 / whole;
        let name = |what: &str| format!("groups_{what}_{}", contestant.groups);
        figure(
            &name("commands_per_master"),
            load,
            "commands_per_1000_cycles",
        );
        figure(&name("load_share"), share(load), "ratio");
        figure(&name("load_share_fullest"), share(fullest), "ratio");
    }
    Ok(())
}

impl<'a> Contestant<'a> {
    async fn new(servers: &'a [Server], groups: usize, has_own: bool) -> Result<Self> {
        let servers = &servers[..if has_own { groups * SIZE } else { SIZE }];
        let locks = if has_own {
            open(
                settings(),
                servers.chunks(SIZE).map(|masters| urls_at(masters, 1)),
            )?
        } else {
            open(
                settings(),
                (1..=groups).map(|address| urls_at(servers, address)),
            )?
        };
        for group in locks.coordinators() {
            group.all_ready(Duration::from_secs(10)).await?;
        }
        Ok(Self {
            groups,
            has_own,
            servers,
            locks,
            calm: Vec::new(),
            busy: Vec::new(),
        })
    }

    /// Returns the commands of each master per 1,000 cycles, those of scripts included.
    async fn loads(&self, names: usize) -> Result<Vec<f64>> {
        let commands = || {
            let executed = |server| servers::info(server, "total_commands_processed");
            self.servers
                .iter()
                .map(executed)
                .collect::<Result<Vec<_>>>()
        };
        let cycles = Cycles {
            first: 0,
            count: names,
            load: BUSY,
        };
        cycles.run(&self.locks).await?; // so that the servers know the scripts
        sleep(LAST_ANSWERS * 4).await;
        let before = commands()?;
        cycles.run(&self.locks).await?;
        sleep(LAST_ANSWERS * 4).await;
        // One of the commands is ours.
        let each = commands()?
            .into_iter()
            .zip(before)
            .map(|(now, then)| now - then - 1.0);
        Ok(each.map(|executed| executed / names as f64 * 1e3).collect())
    }

    async fn turn(&mut self, sizes: &Sizes, round: usize) -> Result<()> {
        let cycles = |count, load| Cycles {
            first: round * count,
            count,
            load,
        };
        // The first cycles after a pause cost more.
        cycles(sizes.calm / 10, Load::LockStep)
            .run(&self.locks)
            .await?;
        let calm = cycles(sizes.calm, Load::LockStep);
        self.calm
            .push(calm.measure(&self.locks, self.servers).await?);
        let busy = cycles(sizes.busy, BUSY);
        self.busy
            .push(busy.measure(&self.locks, self.servers).await?);
        Ok(())
    }

    /// Prints the costs, compared to those of one group in the same round.
    fn report(&self, one: &Self, idle: f64) {
        // A server also works when it has nothing to do.
        let servers = self.servers.len() as f64;
        let net =
            |costs: &Costs, servers: f64| costs.servers_us - idle * servers * costs.span_us / 1e6;
        let name = |what: &str| {
            let servers = if self.has_own { "" } else { "_same_servers" };
            format!("groups_{what}_{}{servers}", self.groups)
        };
        for (load, these, those) in [
            ("", &self.calm, &one.calm),
            ("busy_", &self.busy, &one.busy),
        ] {
            let ratio = |what: &str, of: &dyn Fn(&Costs, f64) -> f64| {
                let pairs = these.iter().zip(those);
                let ratios = pairs.map(|(this, that)| of(this, servers) / of(that, SIZE as f64));
                figure(&name(&format!("{load}{what}")), median(ratios), "ratio");
            };
            ratio("client_cpu_per_cycle", &|costs, _| costs.client_us);
            ratio("server_cpu_per_cycle", &net);
            ratio("throughput", &|costs, _| costs.per_second);
        }
    }
}

fn report(contestants: &[Contestant<'_>], idle: f64) {
    println!("us of processor time per cycle, medians; in lock step, and as fast as possible");
    println!(
        "{:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>12} {:>12} {:>10}",
        "servers",
        "groups",
        "client",
        "servers",
        "wake-ups",
        "cycles/s",
        "busy client",
        "busy servers",
        "cycles/s"
    );
    for Contestant {
        groups,
        servers,
        calm,
        busy,
        ..
    } in contestants
    {
        let middle = |of: fn(&Costs) -> f64, costs: &[Costs]| median(costs.iter().map(of));
        println!(
            "{:>7} {groups:>6} {:>8.1} {:>8.1} {:>8.2} {:>8.0} {:>12.1} {:>12.1} {:>10.0}",
            servers.len(),
            middle(|costs| costs.client_us, calm),
            middle(|costs| costs.servers_us, calm),
            middle(|costs| costs.wakeups, calm),
            middle(|costs| costs.per_second, calm),
            middle(|costs| costs.client_us, busy),
            middle(|costs| costs.servers_us, busy),
            middle(|costs| costs.per_second, busy),
        );
    }
    for contestants in contestants.chunks(COUNTS.len()) {
        contestants
            .iter()
            .for_each(|groups| groups.report(&contestants[0], idle));
    }
}
