//! Many tasks want the same lock. They use two coordinators, as two processes would.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

use quorlock::{Coordinator, Guard};
use tokio::{
    task::{JoinSet, yield_now},
    time::sleep,
};

use crate::world::{NAME, World, delay, millis, seconds};

const TASKS: usize = 20;
const TURNS: usize = 3;

#[tokio::test(start_paused = true)]
async fn tasks_hold_the_lock_one_at_a_time_and_all_are_served() {
    for delays in [[0; 5], [1, 2, 3, 4, 5], [40, 0, 30, 10, 20]] {
        let world = World::new(5).await;
        world.inject(delays.map(delay));
        let both = [
            world.locks.clone(),
            Coordinator::new(&world.masters).unwrap(),
        ];
        let section = Arc::new(CriticalSection::default());
        let mut tasks = JoinSet::new();
        for number in 0..TASKS {
            let lock = both[number % 2].mutex(NAME);
            let section = section.clone();
            tasks.spawn(async move {
                for _ in 0..TURNS {
                    let guard = lock.acquire_within(seconds(600)).await.unwrap();
                    section.enter(&guard);
                    sleep(millis(7)).await;
                    section.leave(&guard);
                    guard.release().await.unwrap();
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(section.turns(), TASKS * TURNS);
        for locks in both {
            locks.close().await;
        }
        assert_eq!(world.holders(), [""; 5]);
    }
}

/// The tasks run on several threads and in real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost() {
    let world = World::with(5, |builder| builder.retry_delay(millis(1), millis(4))).await;
    let other = Coordinator::builder()
        .masters(&world.masters)
        .retry_delay(millis(1), millis(4))
        .build()
        .unwrap();
    let both = [world.locks.clone(), other];
    let section = Arc::new(CriticalSection::default());
    let count = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let lock = both[number % 2].mutex(NAME);
        let (section, count) = (section.clone(), count.clone());
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.acquire().await.unwrap();
                section.enter(&guard);
                let seen = count.load(Ordering::SeqCst);
                yield_now().await;
                count.store(seen + 1, Ordering::SeqCst);
                section.leave(&guard);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(count.load(Ordering::SeqCst) as usize, TASKS * TURNS);
}

/// A critical section. Only one task may be inside at a time.
#[derive(Default)]
struct CriticalSection {
    inside: AtomicUsize,
    turns: AtomicUsize,
}

impl CriticalSection {
    fn enter(&self, guard: &Guard) {
        assert!(guard.is_valid());
        assert_eq!(
            self.inside.fetch_add(1, Ordering::SeqCst),
            0,
            "two tasks are inside"
        );
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self, guard: &Guard) {
        assert!(guard.is_valid());
        assert_eq!(
            self.inside.fetch_sub(1, Ordering::SeqCst),
            1,
            "two tasks are inside"
        );
    }

    fn turns(&self) -> usize {
        self.turns.load(Ordering::SeqCst)
    }
}
