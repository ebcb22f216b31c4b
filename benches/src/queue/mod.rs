//! Measures fair locks with many waiters: the cost of a hand-over for a master, and the cost of
//! waiting.

mod waiters;

use std::time::{Duration, Instant};

use quorlock::Coordinator;
use tokio::task::JoinSet;

use self::waiters::FairQueue;
use crate::figure::figure;
use crate::load::Result;
use crate::options::Options;
use crate::servers::{self, Server, Stats};
use crate::stats::median;

/// The number of coordinators that the waiters are spread over.
const PROCESSES: usize = 4;

/// The number of hand-overs measured together. Afterwards, new waiters replace the former holders.
const TIMES: usize = 10;

const HOUR: Duration = Duration::from_secs(60 * 60);

pub async fn run(options: &Options, servers: &[Server]) -> Result<()> {
    hand_overs(options, servers).await?;
    let sizes: &[usize] = if options.quick { &[100] } else { &[100, 1_000] };
    let mut most = 0.0_f64;
    for &waiters in sizes {
        most = most.max(polls(options, servers, waiters).await?);
    }
    figure("fair_commands_per_waiter_per_s", most, "count");
    Ok(())
}

/// A queue with a number of waiters, and the measurements on it.
struct Queue<'a> {
    waiters: usize,
    queue: FairQueue<'a>,
    ours: Vec<f64>,
    calls: Vec<f64>,
    micros: Vec<f64>,
}

/// Measures hand-overs. All queues exist at the same time and take turns, because the machine's
/// speed may change.
async fn hand_overs(options: &Options, servers: &[Server]) -> Result<()> {
    let (sizes, rounds): (&[usize], _) = if options.quick {
        (&[10, 100], 2)
    } else {
        (&[10, 100, 1_000, 10_000], 21)
    };
    let coordinators = coordinators(servers)?;
    let mut queues = Vec::new();
    for &waiters in sizes {
        let name = format!("queue-{waiters}");
        queues.push(Queue {
            waiters,
            queue: FairQueue::new(servers, &coordinators, name, waiters + TIMES).await?,
            ours: Vec::new(),
            calls: Vec::new(),
            micros: Vec::new(),
        });
    }
    for round in 0..options.rounds.unwrap_or(rounds) {
        let count = queues.len();
        queues.rotate_left(round % count);
        for queue in &mut queues {
            queue.measure(servers).await?;
        }
        queues.sort_by_key(|queue| queue.waiters);
    }
    report(&queues);
    for queue in queues {
        queue.queue.leave().await;
    }
    for locks in &coordinators {
        locks.close().await;
    }
    servers::check_empty(servers, "hand-overs")
}

impl Queue<'_> {
    async fn measure(&mut self, servers: &[Server]) -> Result<()> {
        let before = Stats::of(servers, &["evalsha"])?;
        self.micros.extend(self.queue.hand_over(TIMES).await?);
        settle().await;
        let took = Stats::of(servers, &["evalsha"])? - before;
        let each = (TIMES * servers.len()) as f64;
        self.ours.push(took.micros as f64 / each);
        self.calls.push(took.calls as f64 / each);
        self.queue.fill(TIMES).await?;
        settle().await;
        Ok(())
    }
}

fn report(queues: &[Queue<'_>]) {
    let middle = |of: &[f64]| median(of.iter().copied());
    for queue in queues {
        let name = |what: &str| format!("{what}_{}", queue.waiters);
        figure(&name("fair_handover_us"), middle(&queue.ours), "us");
        figure(
            &name("fair_handover_scripts"),
            middle(&queue.calls),
            "count",
        );
        figure(&name("fair_handover_p50_us"), middle(&queue.micros), "us");
    }
    if let [few, .., many] = queues {
        // The ratio is taken within each round, because the machine's speed may change.
        let pairs = many.ours.iter().zip(&few.ours);
        let name = format!("fair_handover_{}_vs_{}", many.waiters, few.waiters);
        figure(&name, median(pairs.map(|(a, b)| a / b)), "ratio");
    }
}

/// Builds coordinators whose waiters poll every 15 minutes. So only hand-overs are measured.
fn coordinators(servers: &[Server]) -> Result<Vec<Coordinator>> {
    let coordinator = |_| {
        let builder = Coordinator::builder()
            .quarantine(quorlock::Quarantine::Off)
            .masters(servers::urls(servers));
        let builder = builder.response_timeout(Duration::from_millis(500));
        Ok(builder.ttl(HOUR).silent_waiter_timeout(HOUR).build()?)
    };
    (0..PROCESSES).map(coordinator).collect()
}

/// Waits for late answers of masters. The calls return when a majority has answered.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Measures `waiters` waiters with default settings, while the lock is held. Returns the number of
/// commands that each of them sends per second to all masters together.
async fn polls(options: &Options, servers: &[Server], waiters: usize) -> Result<f64> {
    const SENT: [&str; 5] = ["eval", "evalsha", "subscribe", "unsubscribe", "ping"];
    let builders = (0..=PROCESSES).map(|_| {
        Coordinator::builder()
            .quarantine(quorlock::Quarantine::Off)
            .masters(servers::urls(servers))
    });
    let coordinators: std::result::Result<Vec<_>, _> =
        builders.map(|builder| builder.build()).collect();
    let coordinators = coordinators?;
    let [holders, others @ ..] = &coordinators[..] else {
        return Err("no coordinators".into());
    };
    let held = holders.fair("polls").acquire().await?;
    let mut tasks = JoinSet::new();
    for n in 0..waiters {
        let locks = &others[n % others.len()];
        let lock = locks.fair("polls");
        tasks.spawn(async move { lock.acquire().await.map(drop) });
        // The waiters arrive spread over the time of one poll, like independent waiters.
        if n % 10 == 9 {
            tokio::time::sleep(Duration::from_millis(8_000 / waiters as u64)).await;
        }
    }
    let (settle, measured) = if options.quick {
        (0, 1_000)
    } else {
        (1_500, 8_000)
    };
    tokio::time::sleep(Duration::from_millis(settle)).await;
    let (from, before) = (Instant::now(), Stats::of(servers, &SENT)?);
    tokio::time::sleep(options.measured(measured)).await;
    let sent = Stats::of(servers, &SENT)? - before;
    let each = sent.calls as f64 / from.elapsed().as_secs_f64() / waiters as f64;
    if let Some(ended) = tasks.try_join_next() {
        ended??;
        return Err("a waiter got a lock that is held".into());
    }
    tasks.shutdown().await;
    held.release().await?;
    for locks in &coordinators {
        locks.close().await;
    }
    servers::check_empty(servers, "polls")?;
    let name = format!("fair_commands_per_waiter_per_s_{waiters}");
    figure(&name, each, "count");
    Ok(each)
}
