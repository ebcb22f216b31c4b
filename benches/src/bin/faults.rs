//! Measures the cost of one faulty master in five.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::Lock;
use quorlock_benches::contestants::quorlock::Quorlock;
use quorlock_benches::fault::{Fault, black_hole};
use quorlock_benches::figure::figure;
use quorlock_benches::load::{self, Contestant, Flavour, Length, Result};
use quorlock_benches::options::{Extent, Options};
use quorlock_benches::servers::{self, Server};
use quorlock_benches::stats::{Outcome, median};

const MASTERS: usize = 5;

fn main() -> Result<()> {
    let options = Options::from_args();
    let extent = match options.quick {
        true => options.extent(1, &[1, 64], 30, 300),
        false => options.extent(7, &[1, 64], 100, 1000),
    };
    let servers = servers::masters(MASTERS);
    let runtime = Flavour::CurrentThread.runtime()?;
    let mut wrong = Vec::new();
    for fault in Fault::ALL
        .into_iter()
        .filter(|fault| options.wants(fault.name()))
    {
        if let Err(error) = runtime.block_on(compare(fault, &servers, &extent)) {
            wrong.push(format!("{}: {error}", fault.name()));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; ").into())
    }
}

/// A client that continues after a failure and counts it. The time of a failed cycle is a sample
/// like any other.
struct FailureCounter {
    inner: Quorlock,
    /// Separates the names of the two clients. So keys that one client leaves do not affect the
    /// other client.
    prefix: &'static str,
    failed: Arc<AtomicUsize>,
}

impl FailureCounter {
    async fn connect_to(urls: &[String], live: usize, prefix: &'static str) -> Result<Self> {
        let inner = Quorlock::with_default_timeouts(urls)?;
        inner.wait_for_grants(live).await?;
        Ok(Self {
            inner,
            prefix,
            failed: Arc::default(),
        })
    }
}

impl Contestant for FailureCounter {
    type Task = (Lock, Arc<AtomicUsize>);

    async fn connect(urls: &[String]) -> Result<Self> {
        Self::connect_to(urls, urls.len(), "").await
    }

    fn task(&self, key: String) -> Self::Task {
        let key = format!("{}/{key}", self.prefix);
        (self.inner.task(key), Arc::clone(&self.failed))
    }

    async fn cycle((lock, failed): &mut Self::Task) -> Result<()> {
        if let Err(error) = Quorlock::cycle(lock).await
            && failed.fetch_add(1, Ordering::Relaxed) < 3
        {
            eprintln!("a cycle failed: {error}");
        }
        Ok(())
    }

    async fn close(self) -> Result<()> {
        self.inner.close().await
    }
}

/// One round: the same load on healthy masters, and then with one of five masters at fault.
struct Pair {
    healthy: Outcome,
    faulty: Outcome,
}

/// Compares masters with a fault to healthy masters. Uses two coordinators, because each keeps the
/// state of its masters.
async fn compare(fault: Fault, servers: &[Server], extent: &Extent) -> Result<()> {
    let hole = black_hole();
    let mut urls = servers::urls(servers);
    let healthy = FailureCounter::connect_to(&urls, MASTERS, "healthy").await?;
    let mut live = MASTERS;
    if fault == Fault::BlackHole {
        urls[0] = hole.url();
        live -= 1;
    }
    let faulty = FailureCounter::connect_to(&urls, live, "faulty").await?;
    let mut samples = 0;

    for &width in &extent.widths {
        let mut pairs = Vec::new();
        for round in 0..extent.rounds {
            healthy.inner.wait_for_grants(MASTERS).await?;
            faulty.inner.wait_for_grants(live).await?;
            let victim = &servers[round % MASTERS];
            pairs.push(one_round(fault, &healthy, &faulty, victim, width, extent.length).await?);
        }
        report(fault, width, &pairs);
        let of = |pair: &Pair| pair.healthy.samples + pair.faulty.samples;
        samples += pairs.iter().map(of).sum::<usize>();
    }

    let failed = [&healthy, &faulty].map(|client| client.failed.load(Ordering::Relaxed));
    healthy.close().await?;
    faulty.close().await?;
    if fault == Fault::BlackHole && hole.connections() == 0 {
        return Err("the black hole was never connected to".into());
    }
    verdict(fault, servers, failed.iter().sum(), samples)
}

/// Checks after everything was closed: few cycles may have failed, and no key may be left.
fn verdict(fault: Fault, servers: &[Server], failed: usize, samples: usize) -> Result<()> {
    let ghosts = servers::most_keys(servers, Duration::from_secs(1))?;
    let name = |what| format!("{}_{what}", fault.name());
    figure(&name("failed_cycles"), failed as f64, "count");
    figure(&name("keys_after_close"), ghosts as f64, "count");
    if ghosts > 0 {
        return Err(format!("{ghosts} keys after close").into());
    }
    // On a busy machine, masters may miss the response timeout now and then.
    if failed * 100 > samples {
        return Err(format!("{failed} of {samples} cycles failed").into());
    }
    Ok(())
}

async fn one_round(
    fault: Fault,
    healthy: &FailureCounter,
    faulty: &FailureCounter,
    victim: &Server,
    width: usize,
    length: Length,
) -> Result<Pair> {
    let good = load::closed_loop(healthy, width, length).await?;
    if fault == Fault::Hung {
        victim.pause();
    }
    // There is no warm-up, so the first cycles after the start of the fault count.
    let at_once = Length {
        warm_up: Duration::ZERO,
        ..length
    };
    let bad = load::closed_loop(faulty, width, at_once).await;
    if fault == Fault::Hung {
        victim.resume();
    }
    Ok(Pair {
        healthy: good,
        faulty: bad?,
    })
}

fn report(fault: Fault, width: usize, pairs: &[Pair]) {
    let ratio = |of: fn(&Outcome) -> f64| {
        median(
            pairs
                .iter()
                .map(|pair| of(&pair.faulty) / of(&pair.healthy)),
        )
    };
    let name = |what| format!("{}_one_of_five_{what}_vs_healthy_{width}", fault.name());
    figure(&name("p50"), ratio(|outcome| outcome.p50_us), "ratio");
    figure(&name("p99"), ratio(|outcome| outcome.p99_us), "ratio");
    let worst = pairs
        .iter()
        .map(|pair| pair.faulty.worst_us)
        .fold(0.0, f64::max);
    figure(
        &format!("{}_one_of_five_worst_{width}", fault.name()),
        worst,
        "us",
    );
}
