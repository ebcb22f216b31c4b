//! Semaphores on real servers. The tests provoke what a master in memory does not do: connections
//! break, servers restart empty, and processes are killed.

use std::{
    collections::BTreeSet,
    env,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use quorlock::{AcquireError, Coordinator, Guard, Kind, Lock, Quarantine};
use testkit::random::Random;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::{
    common::*,
    process::Process,
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

async fn until_queued(lock: &Lock) {
    until("a waiter in the queue", async || {
        let seen = lock.inspect().await.ok()?;
        (seen.queue.len() == 1).then_some(())
    })
    .await;
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
fn a_smaller_number_waits_and_a_larger_one_grants_at_once() {
    with_masters(3, async |masters| {
        let [one, other] = [0, 1].map(|_| coordinator(patient(), &masters));
        let (small, large) = (one.semaphore("r", 2), other.semaphore("r", 4));
        let mut guards = fill(&small, 2).await;
        assert_contended(small.try_acquire().await);
        guards.extend(fill(&large, 2).await);
        assert_eq!(slots(&guards), (0..4).collect());
        assert_contended(large.try_acquire().await);
        let waiting = tokio::spawn({
            let small = small.clone();
            async move { small.acquire().await.unwrap() }
        });
        until_queued(&small).await;
        for left in [3, 2] {
            guards.pop().unwrap().release().await.unwrap();
            assert_eq!(large.available().await.unwrap(), 4 - left);
            assert_contended(small.try_acquire().await);
        }
        guards.pop().unwrap().release().await.unwrap();
        guards.push(waiting.await.unwrap());
        assert_eq!(slots(&guards), (0..2).collect());
        for guard in guards {
            guard.release().await.unwrap();
        }
        close_at_once(&one).await;
        close_at_once(&other).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_master_that_is_down_or_forgets_costs_no_permit() {
    with_masters(3, async |mut masters| {
        let locks = coordinator(patient(), &masters);
        let lock = locks.semaphore("r", 2);
        let guards = fill(&lock, 2).await;
        masters[0].kill();
        for guard in &guards {
            guard.extend(LONG).await.unwrap();
        }
        assert_contended(lock.try_acquire().await);
        masters[0].restart();
        until("permits that are put back", async || {
            for guard in &guards {
                guard.extend(LONG).await.unwrap();
            }
            // Two fields for each holder, and two of the lock.
            (masters[0].command(&["HLEN", "r"]) == "6").then_some(())
        })
        .await;
        masters[1].kill();
        let other = coordinator(patient(), &masters);
        assert_contended(other.semaphore("r", 2).try_acquire().await);
        masters[1].restart();
        assert_eq!(slots(&guards), (0..2).collect());
        for guard in guards {
            guard.release().await.unwrap();
        }
        locks.close().await;
        other.close().await;
        assert_no_keys(&masters);
    });
}

/// A semaphore excludes other kinds even while permits are free.
#[test]
fn a_name_has_one_kind_at_a_time() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let (lock, owner) = (locks.semaphore("r", 2), locks.owner());
        for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Semaphore) {
            let other = lock_of_kind(kind, "r", &locks, &owner);
            for (held, refused) in [(&lock, &other), (&other, &lock)] {
                let guard = acquire_on_all(held).await;
                let refused = refused.try_acquire().await;
                assert!(
                    matches!(refused, Err(AcquireError::OtherKind { .. })),
                    "{kind}: {refused:?}"
                );
                guard.release().await.unwrap();
                until_released(&masters, "r").await;
            }
        }
    });
}

/// An environment variable of the holder that is killed. It is a second run of its test.
const MASTERS: &str = "QUORLOCK_SEMAPHORE_MASTERS";

#[test]
fn the_permit_of_a_killed_holder_comes_back_after_its_ttl() {
    const TTL: Duration = millis(1_500);
    if let Ok(masters) = env::var(MASTERS) {
        return run(async {
            let locks = patient().ttl(TTL).node_timeout(TTL * 2 / 3);
            let locks = locks.masters(masters.split(',')).build().unwrap();
            let _held = acquire_on_all(&locks.semaphore("r", 2)).await;
            pending::<()>().await;
        });
    }
    with_masters_alone(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let lock = locks.semaphore("r", 2);
        let alive = acquire_on_all(&lock).await;
        let test = "semaphore::the_permit_of_a_killed_holder_comes_back_after_its_ttl";
        let mut holder = Process::start(test, [(MASTERS, urls(&masters).join(",").into())]);
        until("a second holder on all masters", async || {
            let is_full = |master: &Server| master.command(&["HLEN", "r"]) == "6";
            masters.iter().all(is_full).then_some(())
        })
        .await;
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap() }
        });
        until_queued(&lock).await;
        holder.kill();
        let since = Instant::now();
        let next = waiting.await.unwrap();
        let took = since.elapsed();
        // The waiter waits for the drift, and then for the masters' clocks to pass the end.
        assert!(took < TTL + millis(1_000), "{took:?}");
        assert!(alive.is_valid());
        assert_eq!(slots([&alive, &next]), (0..2).collect());
        for guard in [alive, next] {
            guard.release().await.unwrap();
        }
        close_at_once(&locks).await;
    });
}

#[test]
fn a_break_removes_the_named_holder_and_serves_a_waiter() {
    with_masters(3, async |masters| {
        let [one, other] = [0, 1].map(|_| coordinator(patient(), &masters));
        let lock = one.semaphore("r", 2);
        let named = acquire_on_all(&lock).await;
        let seen = other.semaphore("r", 2).inspect().await.unwrap();
        let kept = acquire_on_all(&lock).await;
        let waiting = tokio::spawn({
            let lock = other.semaphore("r", 2);
            async move { lock.acquire().await.unwrap() }
        });
        until_queued(&lock).await;
        other.break_held(&seen).await;
        let next = waiting.await.unwrap();
        assert_eq!(next.slot(), named.slot());
        kept.extend(LONG).await.unwrap();
        assert!(named.extend(LONG).await.is_err());
        drop(named);
        assert_eq!(lock.available().await.unwrap(), 0);
        for guard in [kept, next] {
            guard.release().await.unwrap();
        }
        close_at_once(&one).await;
        close_at_once(&other).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_minimum_time_keeps_a_permit_and_not_the_others() {
    const KEPT: Duration = millis(1_200);
    with_masters(3, async |masters| {
        let locks = coordinator(quarantining(Quarantine::Off), &masters);
        let lock = locks.semaphore("r", 2);
        let start = Instant::now();
        let kept = lock.clone().min_hold(KEPT).acquire().await.unwrap();
        let slot = kept.slot();
        kept.release().await.unwrap();
        let other = lock.try_acquire().await.unwrap();
        assert_ne!(other.slot(), slot);
        assert_contended(lock.try_acquire().await);
        let next = lock.acquire().await.unwrap();
        assert!(start.elapsed() >= KEPT, "{:?}", start.elapsed());
        assert_eq!(next.slot(), slot);
        for guard in [other, next] {
            guard.release().await.unwrap();
        }
        // A master outside the majority of the last guard may still have the entry of the first.
        until_released(&masters, "r").await;
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
