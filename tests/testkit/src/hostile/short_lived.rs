//! Masters whose connections are all ended after a short time. Every dial succeeds at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quorlock::Coordinator;
use tokio::time::sleep;

use crate::server::Server;

/// Returns the locks that were acquired in each second. Each task pauses after each lock, so the
/// undisturbed rate depends less on the speed of the machine.
pub async fn locks_per_second(locks: &Coordinator, seconds: u64) -> Vec<u64> {
    let start = Instant::now();
    let counts: Arc<[AtomicU64]> = (0..seconds).map(|_| AtomicU64::new(0)).collect();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (locks, counts) = (locks.clone(), counts.clone());
            tokio::spawn(async move {
                for number in 0u64.. {
                    let lock = locks.mutex(format!("{task}/{number}"));
                    let guard = lock.acquire_within(Duration::from_secs(1)).await;
                    let second = start.elapsed().as_secs() as usize;
                    let Some(count) = counts.get(second) else {
                        return;
                    };
                    if let Ok(guard) = guard {
                        count.fetch_add(1, Ordering::Relaxed);
                        let _ = guard.release().await;
                        sleep(Duration::from_millis(5)).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .collect()
}

/// Ends the connections of one server after the other until it is dropped. Each server has its turn
/// once in the time `every`.
#[derive(Debug)]
pub struct Killer {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Killer {
    pub fn start(servers: Arc<Vec<Server>>, every: Duration) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let thread = thread::spawn({
            let is_over = is_over.clone();
            move || {
                let pause = every / servers.len() as u32;
                for server in servers.iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    thread::sleep(pause);
                }
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const TASKS: u64 = 8;
