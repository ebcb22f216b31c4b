//! Calls every public function against masters whose replies are falsified, and counts the calls
//! that never return.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorlock::__internals::{KINDS, is_reentrant};
use quorlock::{Coordinator, Guard, Kind, Lock, Quarantine};
use tokio::time::timeout;

use super::mutator::{Mutator, falsifying_proxy};
use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::Server;

/// The number of calls made, and the calls that did not return.
#[derive(Debug, Default)]
pub struct Calls {
    made: AtomicU64,
    hung: Mutex<Vec<String>>,
}

impl Calls {
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    pub fn hung(&self) -> Vec<String> {
        self.hung.lock().unwrap().clone()
    }

    /// Returns the output of `call`, or `None` if it takes longer than `HANG`.
    pub async fn bounded<T>(&self, what: &str, call: impl Future<Output = T>) -> Option<T> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let returned = timeout(HANG, call).await.ok();
        if returned.is_none() {
            self.hung.lock().unwrap().push(what.to_owned());
        }
        returned
    }
}

/// The result of a fuzz run.
#[derive(Debug)]
pub struct Fuzzed {
    pub calls: u64,
    pub hung: Vec<String>,
    pub replies: u64,
    pub mutated: u64,
}

/// Makes all kinds of calls for about `length`, while the masters' replies are falsified at
/// changing rates.
pub async fn fuzz(servers: &[Server], seed: u64, length: Duration) -> Fuzzed {
    let calls = Arc::new(Calls::default());
    let mutators: Vec<_> = (0..servers.len() as u64)
        .map(|number| Arc::new(Mutator::new(seed ^ (number << 56))))
        .collect();
    let proxies: Vec<_> = servers
        .iter()
        .zip(&mutators)
        .map(|(server, mutator)| falsifying_proxy(server.port(), mutator.clone()))
        .collect();
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let mut random = Random::new(seed);
    let end = Instant::now() + length;
    // Each rate has its turn, and every other turn applies to all masters. If the rates were
    // random, a short run could miss the high ones.
    let rates = [5, 20, 50, 300, 2_000];
    let first = random.below(rates.len() as u64) as usize;
    for (turn, one_in) in rates.iter().cycle().skip(first).enumerate() {
        if Instant::now() >= end {
            break;
        }
        let part = Duration::from_millis(1_500).min(end.saturating_duration_since(Instant::now()));
        let is_for_all = turn % 2 == 0;
        for (number, mutator) in mutators.iter().enumerate() {
            let is_falsified = is_for_all || number == 0;
            mutator.set_one_in(if is_falsified { *one_in } else { u64::MAX });
        }
        fuzz_once(&urls, &calls, random.number(), part).await;
    }
    Fuzzed {
        calls: calls.made(),
        hung: calls.hung(),
        replies: mutators.iter().map(|mutator| mutator.passed()).sum(),
        mutated: mutators.iter().map(|mutator| mutator.mutated()).sum(),
    }
}

async fn fuzz_once(urls: &[String], calls: &Arc<Calls>, seed: u64, length: Duration) {
    let mut random = Random::new(seed);
    let quarantine = random.pick(&[Quarantine::Off, Quarantine::Observed]);
    let locks = Coordinator::builder()
        .masters(urls)
        .quarantine(quarantine)
        .node_timeout(Duration::from_millis(20))
        .connect_timeout(Duration::from_millis(200))
        .ttl(TTL)
        .max_ttl(TTL * 2)
        .waiter_timeout(TTL)
        .build()
        .unwrap();
    let end = Instant::now() + length;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| tokio::spawn(call_all(locks.clone(), calls.clone(), random.number(), end)))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    calls.bounded("close", locks.close()).await;
}

/// Makes one call after the other until `end`, in one task.
async fn call_all(locks: Coordinator, calls: Arc<Calls>, seed: u64, end: Instant) {
    let mut random = Random::new(seed);
    let owner = locks.owner();
    while Instant::now() < end {
        let (number, kind) = (random.below(6), random.pick(&KINDS));
        let lock = if random.is_one_in(2) {
            locks.of_kind(kind, format!("{kind} {number}"), &owner)
        } else {
            let lock = locks.of_kind(kind, format!("fenced {kind} {number}"), &owner);
            lock.fenced()
        };
        let task = Task {
            calls: &calls,
            kind,
            lock,
        };
        task.step(&locks, &mut random).await;
    }
}

struct Task<'a> {
    calls: &'a Calls,
    kind: Kind,
    lock: Lock,
}

impl Task<'_> {
    async fn step(&self, locks: &Coordinator, random: &mut Random) {
        match random.below(12) {
            0..=3 => {
                if let Some(Ok(guard)) = self.bounded("try_acquire", self.lock.try_acquire()).await
                {
                    self.hold(guard, random).await;
                }
            }
            4..=6 => {
                let limit = Duration::from_millis(random.below(40));
                let acquire = self.lock.acquire_within(limit);
                if let Some(Ok(guard)) = self.bounded("acquire_within", acquire).await {
                    self.hold(guard, random).await;
                }
            }
            7 | 8 => drop(self.bounded("inspect", self.lock.inspect()).await),
            9 => drop(self.bounded("is_held", self.lock.is_held()).await),
            10 => {
                let limit = Duration::from_micros(random.below(3_000));
                let dropped = timeout(limit, self.lock.acquire());
                drop(self.bounded("acquire, dropped", dropped).await);
            }
            _ if random.is_one_in(20) => {
                drop(self.bounded("ready", locks.ready(Duration::ZERO)).await);
            }
            _ => tokio::time::sleep(Duration::from_millis(random.below(5))).await,
        }
    }

    async fn hold(&self, guard: Guard, random: &mut Random) {
        match random.below(6) {
            0 => drop(self.bounded("extend", guard.extend(TTL)).await),
            1 => drop(self.bounded("settled", guard.settled()).await),
            2 => drop(self.bounded("inspect", self.lock.inspect()).await),
            3 if is_reentrant(self.kind) => {
                drop(self.bounded("enter again", self.lock.try_acquire()).await);
            }
            4 if random.is_one_in(8) => {
                guard.stop_renewing();
                drop(self.bounded("lost", guard.lost()).await);
            }
            _ => {}
        }
        if random.is_one_in(2) {
            drop(self.bounded("release", guard.release()).await);
        }
    }

    async fn bounded<T>(&self, what: &str, call: impl Future<Output = T>) -> Option<T> {
        self.calls
            .bounded(&format!("{what} ({:?})", self.lock), call)
            .await
    }
}

/// The limit after which a call counts as hung. Every deadline in these runs is far below it.
pub const HANG: Duration = Duration::from_secs(5);

const TTL: Duration = Duration::from_millis(400);
const TASKS: usize = 64;
