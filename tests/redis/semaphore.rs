//! Semaphores on real servers. The tests provoke what a master in memory does not do: connections
//! break, servers restart empty, and processes are killed.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use quorlock::{AcquireError, Coordinator, Guard, Lock, Quarantine};
use testkit::random::Random;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::{
    common::*,
    quarantine::{connected, quarantining},
};

const TASKS: usize = 8;
const TURNS: usize = 25;

/// The time for which a guard held a slot: from the grant to the release, or to the end of its
/// validity if that was earlier.
struct Tenure {
    slot: usize,
    from: Instant,
    to: Instant,
}

/// Takes turns with the others. Reports each turn on `turns`.
async fn take_turns(
    lock: Lock,
    mut random: Random,
    tenures: Arc<Mutex<Vec<Tenure>>>,
    turns: mpsc::UnboundedSender<()>,
) {
    for _ in 0..TURNS {
        let guard = lock.acquire_within(TEST_TIMEOUT / 2).await.unwrap();
        let (from, slot) = (Instant::now(), guard.slot().unwrap());
        sleep(Duration::from_micros(random.below(5_000))).await;
        let to = Instant::now().min(guard.valid_until());
        tenures.lock().push(Tenure { slot, from, to });
        let _ = guard.release().await; // a failed release stays owed
        turns.send(()).unwrap();
    }
}

/// Lets tasks share locks of one name. Calls `disturb` after each turn with its number. Returns
/// who held what when.
async fn share(locks: &[Lock], mut disturb: impl FnMut(usize)) -> Vec<Tenure> {
    let (sender, mut turns) = mpsc::unbounded_channel();
    let tenures = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let lock = locks[task % locks.len()].clone();
        let random = Random::new(Random::fresh_seed());
        tasks.spawn(take_turns(lock, random, tenures.clone(), sender.clone()));
    }
    drop(sender);
    let mut count = 0;
    while turns.recv().await.is_some() {
        count += 1;
        disturb(count);
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(count, TASKS * TURNS);
    std::mem::take(&mut *tenures.lock())
}

/// Fails if two held a slot at once. Returns the largest number of holders at an instant.
fn most_at_once(mut tenures: Vec<Tenure>) -> usize {
    tenures.retain(|one| one.from < one.to);
    tenures.sort_by_key(|one| one.from);
    let at_once = |(at, tenure): (usize, &Tenure)| {
        let before = tenures[..at].iter();
        let others = before.filter(|other| other.to > tenure.from);
        let slots: Vec<_> = others.map(|other| other.slot).collect();
        assert!(!slots.contains(&tenure.slot), "slot {}", tenure.slot);
        slots.len() + 1
    };
    tenures.iter().enumerate().map(at_once).max().unwrap()
}

fn slots<'a>(guards: impl IntoIterator<Item = &'a Guard>) -> BTreeSet<usize> {
    guards.into_iter().filter_map(Guard::slot).collect()
}

async fn fill(lock: &Lock, count: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for _ in 0..count {
        guards.push(acquire_on_all(lock).await);
    }
    guards
}

#[track_caller]
fn assert_contended(refused: Result<Guard, AcquireError>) {
    assert!(
        matches!(refused, Err(AcquireError::Contended { .. })),
        "{refused:?}"
    );
}

#[test]
fn no_slot_is_shared_while_connections_break_and_a_master_restarts() {
    const PERMITS: usize = 3;
    with_masters(5, async |mut masters| {
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(connected(quarantining(Quarantine::Observed), &urls(&masters)).await);
        }
        let lock = |locks: &Coordinator| locks.semaphore("r", PERMITS);
        let locks: Vec<_> = clients.iter().map(lock).collect();
        let seed = Random::fresh_seed();
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let victim = random.index(5);
        let tenures = share(&locks, |turn| {
            if turn % (TASKS * TURNS / 4) == 0 {
                masters[victim].restart();
            } else if random.is_one_in(4) {
                masters[random.index(5)].command(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
        })
        .await;
        assert_eq!(most_at_once(tenures), PERMITS);
        for locks in clients {
            locks.close().await;
        }
        for master in &masters {
            until("a master without locks", async || {
                (master.command(&["KEYS", "*"]) == "quorlock:guard").then_some(())
            })
            .await;
        }
    });
}

#[test]
fn holders_never_exceed_the_largest_number_of_permits() {
    with_masters(3, async |masters| {
        let clients: Vec<_> = (0..3).map(|_| coordinator(patient(), &masters)).collect();
        let of = |(locks, permits): (&Coordinator, usize)| locks.semaphore("r", permits);
        let locks: Vec<_> = clients.iter().zip([2, 4, 3]).map(of).collect();
        let tenures = share(&locks, |_| {}).await;
        let most = most_at_once(tenures);
        assert!((2..=4).contains(&most), "{most}");
    });
}

#[test]
fn a_thousand_permits_are_taken_and_released() {
    const PERMITS: usize = 1_000;
    with_masters(3, async |masters| {
        let clients = [0, 1].map(|_| coordinator(patient(), &masters));
        let [lock, other] = [0, 1].map(|client| clients[client].semaphore("r", PERMITS));
        let mut guards = fill(&lock, PERMITS / 2).await;
        guards.extend(fill(&other, PERMITS / 2).await);
        assert_eq!(slots(&guards), (0..PERMITS).collect());
        assert_contended(lock.try_acquire().await);
        assert_eq!(lock.available().await.unwrap(), 0);
        for guard in guards {
            guard.release().await.unwrap();
        }
        for locks in &clients {
            close_at_once(locks).await;
        }
        assert_no_keys(&masters);
    });
}

/// Masters get the commands in different orders, so they choose different slots at first. The TTL
/// is so long that no renewal puts this right.
#[test]
fn all_permits_are_taken_while_eight_tasks_ask_at_once() {
    with_masters(3, async |masters| {
        const PERMITS: usize = 200;
        let builder = || patient().max_ttl(2 * LONG).ttl(LONG);
        let clients = [0, 1].map(|_| builder().masters(urls(&masters)).build().unwrap());
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let lock = clients[task % 2].semaphore("r", PERMITS);
            tasks.spawn(async move {
                let mut guards = Vec::new();
                for _ in 0..PERMITS / TASKS {
                    guards.push(lock.acquire_within(TEST_TIMEOUT / 2).await.unwrap());
                }
                guards
            });
        }
        let guards: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(slots(&guards), (0..PERMITS).collect());
    });
}
