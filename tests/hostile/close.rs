//! `close` returns at the latest when the longest TTL is over, and background tasks end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Quarantine};
use testkit::{hostile::fake_server::Fake, random::Random};
use tokio::{
    runtime::{Handle, Runtime},
    time::{sleep, timeout},
};

use crate::own_process::{beside_others, in_own_process};

/// Each coordinator is closed right after a few attempts.
#[test]
fn close_returns_by_the_longest_ttl_without_any_server() {
    beside_others(|| {
        four_threads().block_on(async {
            let urls = [0, 1, 2].map(|number| format!("unix:///quorlock/nobody/{number}"));
            for round in 0..4_000 {
                let locks = coordinator(&urls, Duration::from_millis(100));
                let attempts = (0..1 + round % 4).map(|number| {
                    let lock = locks.mutex(format!("x{number}"));
                    tokio::spawn(async move { drop(lock.try_acquire().await) })
                });
                for attempt in attempts.collect::<Vec<_>>() {
                    attempt.await.unwrap();
                }
                let closed = timeout(LATE, locks.close()).await;
                assert!(closed.is_ok(), "round {round}: not closed after {LATE:?}");
            }
            tasks_end().await;
        });
    });
}

/// Connections break while other threads post and drop attempts.
#[test]
fn close_returns_by_the_longest_ttl_after_connections_broke_under_load() {
    in_own_process(|| {
        four_threads().block_on(async {
            // This server hangs up soon after each greeting, with commands unanswered.
            let rude = || {
                Fake::tcp(|peer| {
                    if peer.greet().is_some() {
                        thread::sleep(Duration::from_millis(1));
                    }
                })
            };
            let fakes = [rude(), rude(), Fake::honest(Duration::ZERO)];
            let urls: Vec<_> = fakes.iter().map(Fake::url).collect();
            for round in 0..40 {
                let locks = coordinator(&urls, Duration::from_millis(200));
                let load = DroppedAttempts::start(&locks, round);
                sleep(Duration::from_millis(60)).await;
                load.stop().await;
                let closed = timeout(LATE, locks.close()).await;
                assert!(closed.is_ok(), "round {round}: not closed after {LATE:?}");
            }
            tasks_end().await;
        });
    });
}

/// Attempts that are dropped shortly after they were posted.
struct DroppedAttempts {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl DroppedAttempts {
    fn start(locks: &Coordinator, seed: u64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let tasks = (0..64)
            .map(|task| {
                let (locks, is_over) = (locks.clone(), is_over.clone());
                let mut random = Random::new(seed << 32 | task);
                tokio::spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        let lock = locks.mutex(format!("{task}/{}", random.below(50)));
                        let limit = Duration::from_micros(random.below(3_000));
                        drop(timeout(limit, lock.try_acquire()).await);
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        Self { tasks, is_over }
    }

    async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Waits until this runtime has no more tasks.
async fn tasks_end() {
    let start = Instant::now();
    loop {
        let left = Handle::current().metrics().num_alive_tasks();
        if left == 0 {
            return;
        }
        assert!(start.elapsed() < LATE, "{left} tasks are still there");
        sleep(Duration::from_millis(20)).await;
    }
}

fn coordinator(urls: &[String], ttl: Duration) -> Coordinator {
    Coordinator::builder()
        .masters(urls)
        .quarantine(Quarantine::Off)
        .ttl(ttl)
        .build()
        .unwrap()
}

fn four_threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap()
}

/// This is far longer than any TTL here, to allow for a busy machine.
const LATE: Duration = Duration::from_secs(6);
