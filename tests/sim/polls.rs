//! Clients that poll for a lock, beside waiters of this crate. The masters are memory masters, and
//! all clocks are those of one simulated process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use testkit::random::Random;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::process::Process;
use crate::{Coordinator, Fault, Guard, Lock, MemoryMaster};

/// Clients that want the same lock. Each wants it again a few milliseconds after releasing it.
struct Fleet {
    masters: Vec<MemoryMaster>,
    process: Arc<Process>,
    end: Instant,
    tasks: JoinSet<()>,
}

/// The acquisitions of several clients, and their longest wait in milliseconds.
#[derive(Debug, Default)]
struct Counts {
    acquired: AtomicU32,
    longest: AtomicU32,
}

impl Fleet {
    fn new() -> Self {
        let start = Instant::now();
        let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
        for master in &masters {
            master.inject(Fault::Delay(millis(1)));
        }
        Self {
            masters,
            process: Process::new(0, 1, 0, start),
            end: start + millis(10_000),
            tasks: JoinSet::new(),
        }
    }

    fn coordinator(&self, waiters_poll: bool) -> Coordinator {
        let builder = Coordinator::builder().masters(&self.masters);
        let builder = if waiters_poll {
            // The delays of the clients that poll.
            builder
                .waiters_poll(true)
                .retry_delay(millis(100), millis(300))
        } else {
            builder
        };
        self.process.enter(|| builder.build().unwrap())
    }

    /// Adds a client that waits for the lock.
    fn wait(&mut self, lock: Lock, counts: &Arc<Counts>) {
        let (end, counts) = (self.end, counts.clone());
        self.tasks.spawn(self.process.task(async move {
            while Instant::now() < end {
                let asked = Instant::now();
                let guard = lock.acquire().await.unwrap();
                counts.hold(guard, asked).await;
            }
        }));
    }

    /// Adds a client that polls.
    fn poll(&mut self, lock: Lock, mut random: Random, counts: &Arc<Counts>) {
        let (end, counts) = (self.end, counts.clone());
        self.tasks.spawn(self.process.task(async move {
            while Instant::now() < end {
                let asked = Instant::now();
                let guard = loop {
                    match lock.try_acquire().await {
                        Ok(guard) => break guard,
                        Err(_) => sleep(millis(100 + random.below(200))).await,
                    }
                };
                counts.hold(guard, asked).await;
            }
        }));
    }
}

impl Counts {
    async fn hold(&self, guard: Guard, asked: Instant) {
        let waited = asked.elapsed().as_millis() as u32;
        self.longest.fetch_max(waited, Ordering::Relaxed);
        self.acquired.fetch_add(1, Ordering::Relaxed);
        sleep(millis(1)).await;
        guard.release().await.unwrap();
        sleep(millis(4)).await;
    }

    fn acquired(&self) -> f64 {
        self.acquired.load(Ordering::Relaxed).into()
    }
}

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Returns the counts of the tasks of some coordinators, and of clients that poll.
async fn counts(
    coordinators: usize,
    tasks: usize,
    pollers: u64,
    waiters_poll: bool,
) -> [Arc<Counts>; 2] {
    let counts = [(); 2].map(|()| Arc::new(Counts::default()));
    let mut fleet = Fleet::new();
    for _ in 0..coordinators {
        let locks = fleet.coordinator(waiters_poll);
        for _ in 0..tasks {
            fleet.wait(locks.mutex("r"), &counts[0]);
        }
    }
    for seed in 0..pollers {
        let lock = fleet.coordinator(false).mutex("r");
        fleet.poll(lock, Random::new(seed), &counts[1]);
    }
    while let Some(task) = fleet.tasks.join_next().await {
        task.unwrap();
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn clients_that_poll_get_a_share() {
    for (coordinators, tasks) in [(2, 1), (3, 1), (3, 2), (1, 4)] {
        let [without, with] = [false, true].map(|setting| counts(coordinators, tasks, 3, setting));
        let share = |[ours, polls]: &[Arc<Counts>; 2]| {
            polls.acquired() / (ours.acquired() + polls.acquired())
        };
        let (without, with) = (without.await, with.await);
        let (before, after) = (share(&without), share(&with));
        let seen = format!("{coordinators} {tasks}: {before} {without:?}, {after} {with:?}");
        assert!(after > 0.15 && after > before + 0.1, "{seen}");
        assert!(with[1].longest.load(Ordering::Relaxed) <= 3_000, "{seen}");
    }
}
