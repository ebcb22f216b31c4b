//! Many clients of one semaphore that has free permits: each gets one soon, and none sends much.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use quorlock::{Coordinator, Fault, FencedGuard, Lock, MemoryMaster};
use testkit::random::Random;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::world::{masters, millis, seconds};

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// Gives each master a delay of 1 ms to 4 ms, and a new one in each millisecond, until `is_over`.
fn jitter(masters: &[MemoryMaster], is_over: &Arc<AtomicBool>) {
    for (master, seed) in masters.iter().zip(1..) {
        let (master, is_over, mut random) = (master.clone(), is_over.clone(), Random::new(seed));
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                master.inject(Fault::Delay(micros(1_000 + random.below(3_000))));
                sleep(millis(1)).await;
            }
        });
    }
}

/// What clients saw of a semaphore.
struct Seen {
    waits: Vec<Duration>,
    failures: usize,
}

impl Seen {
    /// Returns the share of the calls that failed.
    fn failed(&self) -> f64 {
        self.failures as f64 / (self.failures + self.waits.len()) as f64
    }
}

/// Clients that take and release permits for 3 s.
struct Crowd {
    masters: usize,
    clients: u64,
    permits: usize,
    /// The longest pause of a client between two calls. The shortest is a fifth of it, and a client
    /// keeps a permit for as long.
    pause: Duration,
    waits: bool,
}

impl Crowd {
    fn new(masters: usize) -> Self {
        Self {
            masters,
            clients: 24,
            permits: 48,
            pause: millis(25),
            waits: false,
        }
    }
}

async fn run(crowd: Crowd) -> Seen {
    let masters: Vec<_> = (0..crowd.masters).map(|_| MemoryMaster::new()).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    jitter(&masters, &is_over);
    let end = Instant::now() + seconds(3);
    let client = async |lock: Lock<FencedGuard>, mut random: Random| {
        let mut seen = Seen {
            waits: Vec::new(),
            failures: 0,
        };
        while Instant::now() < end {
            let hold = crowd.pause / 5;
            sleep(hold + micros(random.below(4 * hold.as_micros() as u64))).await;
            let start = Instant::now();
            let result = if crowd.waits {
                lock.acquire().await
            } else {
                lock.try_acquire().await
            };
            let Ok(guard) = result else {
                seen.failures += 1;
                continue;
            };
            seen.waits.push(start.elapsed());
            sleep(hold).await;
            guard.release().await.unwrap();
        }
        seen
    };
    let mut clients = Vec::new();
    for seed in 0..crowd.clients {
        let locks = Coordinator::new(&masters).unwrap();
        locks.ready_within(seconds(5)).await.unwrap();
        let lock = locks.semaphore("r", crowd.permits).plain().fenced();
        clients.push(client(lock, Random::new(seed)));
    }
    let seen = futures::future::join_all(clients).await;
    is_over.store(true, Ordering::Relaxed);
    Seen {
        failures: seen.iter().map(|one| one.failures).sum(),
        waits: seen.into_iter().flat_map(|one| one.waits).collect(),
    }
}

/// The losers of a round must not all offer the same candidate, and must not wait for a call.
#[tokio::test(start_paused = true)]
async fn fenced_permits_are_taken_at_once() {
    for count in [3, 5] {
        let failed = run(Crowd::new(count)).await.failed();
        assert!(
            failed <= 0.01,
            "{count} masters: {failed} of the calls failed"
        );
        let waits = true;
        let seen = run(Crowd {
            waits,
            ..Crowd::new(count)
        })
        .await;
        let longest = seen.waits.iter().max().unwrap();
        assert!(*longest <= millis(50), "{count} masters: {longest:?}");
        assert_eq!(seen.failures, 0);
    }
}

/// A permit that was released becomes free sooner on the master that chooses than on the others.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_not_free_on_all_masters_yet_costs_a_second_attempt() {
    let dense = Crowd {
        clients: 48,
        permits: 64,
        pause: millis(5),
        ..Crowd::new(3)
    };
    let failed = run(dense).await.failed();
    assert!(failed <= 0.08, "{failed} of the calls failed");
}

/// Lets `waiters` wait for permits of a semaphore while the masters know different holders: a dead
/// client has one permit on the last master, and the first master has no vote because of `fault`.
/// Returns the number of commands in 10 s, and the time until all were served.
async fn with_different_holders(
    fault: &Option<Fault>,
    name: &str,
    permits: usize,
    waiters: usize,
) -> (u64, Option<Duration>) {
    const DEAD: &str = "00000000-0000-4000-8000-000000000001:1";
    let masters = masters(3);
    let clients: Vec<_> = (0..waiters)
        .map(|_| Coordinator::new(&masters).unwrap())
        .collect();
    for client in &clients {
        client.all_ready_within(seconds(1)).await.unwrap();
    }
    match fault {
        Some(fault) => masters[0].inject(fault.clone()),
        None => masters[0].restart(),
    }
    sleep(millis(500)).await;
    for master in &masters[1..] {
        master.inject(Fault::Delay(micros(500)));
    }
    let fields = [
        ("mode".to_owned(), "quorlock".to_owned()),
        ("quorlock:semaphore".to_owned(), "20000".to_owned()),
        (format!("quorlock:permit:{DEAD}"), "1 20000 1".to_owned()),
        ("quorlock:slot:1".to_owned(), DEAD.to_owned()),
    ];
    masters[2].set_hash(name, fields, Some(seconds(18)));
    let sent = || masters.iter().map(MemoryMaster::commands).sum::<u64>();
    let (before, start) = (sent(), Instant::now());
    let take = |locks: &Coordinator| -> JoinHandle<_> {
        let lock = locks.semaphore(name, permits).plain();
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let mut guards = Vec::new();
    for waiting in clients.iter().map(take).collect::<Vec<_>>() {
        guards.push(timeout(seconds(10), waiting).await);
    }
    let served = guards.iter().all(Result::is_ok).then(|| start.elapsed());
    sleep((start + seconds(10)).saturating_duration_since(Instant::now())).await;
    (sent() - before, served)
}

/// Waiters that split the votes give back their grants, and so call each other. They must not do
/// that at the speed of the network, and must find the free permits.
#[tokio::test(start_paused = true)]
async fn waiters_beside_free_permits_are_served_without_a_storm() {
    let out_of_memory = Fault::ErrorReply("OOM command not allowed".to_owned());
    for fault in [
        Some(Fault::Down),
        Some(Fault::Hang),
        Some(out_of_memory),
        None,
    ] {
        for (permits, waiters) in [(3, 2), (4, 2), (4, 3), (9, 3)] {
            for name in 0..12 {
                let case = format!("{fault:?}, {permits} permits, {waiters} waiters, {name}");
                let name = format!("r{name}");
                let seen = with_different_holders(&fault, &name, permits, waiters).await;
                let (commands, served) = seen;
                assert!(
                    served.is_some_and(|time| time <= seconds(1)),
                    "{case}: {served:?}"
                );
                assert!(commands <= 600, "{case}: {commands} commands in 10 s");
            }
        }
    }
}
