//! Locks that are acquired and released at a steady rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quorlock::{Coordinator, Guard, Renewal};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// Acquires locks with unique names and drops their guards, until it is stopped.
#[derive(Debug)]
pub struct Load {
    tasks: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    won: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
}

impl Load {
    /// Starts acquiring `rate` locks per second, or as many as possible if `rate` is 0.
    pub fn start(locks: &Coordinator, rate: u64, ttl: Option<Duration>) -> Self {
        let load = Self {
            tasks: Vec::new(),
            is_over: Arc::default(),
            won: Arc::default(),
            lost: Arc::default(),
        };
        let tasks = (0..TASKS).map(|task| {
            let (is_over, won, lost) = (load.is_over.clone(), load.won.clone(), load.lost.clone());
            let locks = locks.clone();
            tokio::spawn(async move {
                let pause =
                    Duration::from_micros((1_000_000 * TASKS).checked_div(rate).unwrap_or(1));
                let mut ticks = interval(pause);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
                for number in 0u64.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    if rate > 0 {
                        ticks.tick().await;
                    }
                    let mut lock = locks.mutex(format!("{task}/{number}"));
                    if let Some(ttl) = ttl {
                        lock = lock.ttl(ttl).renewal(Renewal::Off);
                    }
                    let counter = match lock.try_acquire().await {
                        Ok(_) => &won,
                        Err(_) => &lost,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let tasks = tasks.collect();
        Self { tasks, ..load }
    }

    /// The number of locks acquired so far.
    pub fn won(&self) -> u64 {
        self.won.load(Ordering::Relaxed)
    }

    /// The number of attempts that failed so far.
    pub fn failed(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until `locks` locks were acquired, for at most `most`.
    pub async fn reach(&self, locks: u64, most: Duration) {
        let end = Instant::now() + most;
        while self.won() < locks && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Acquires `number` locks with unique names and returns their guards.
pub async fn hold(locks: &Coordinator, number: usize, ttl: Duration) -> Vec<Guard> {
    let tasks: Vec<_> = (0..TASKS as usize)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let mut guards = Vec::new();
                for name in (task..number).step_by(TASKS as usize) {
                    let lock = locks
                        .mutex(format!("held/{name}"))
                        .ttl(ttl)
                        .renewal(Renewal::Off);
                    guards.push(lock.acquire_within(ttl).await.unwrap());
                }
                guards
            })
        })
        .collect();
    let mut guards = Vec::with_capacity(number);
    for task in tasks {
        guards.extend(task.await.unwrap());
    }
    guards
}

const TASKS: u64 = 64;
