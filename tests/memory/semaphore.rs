//! Semaphores.

use std::collections::{BTreeSet, VecDeque};

use quorlock::{ConfigError, Coordinator, Guard, Lock, LockKind, MemoryMaster, Reason};
use tokio::time::{Instant, sleep};

use super::world::{KINDS, masters, millis, seconds, until_queued};

async fn fill(lock: &Lock, count: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for _ in 0..count {
        guards.push(lock.try_acquire().await.unwrap());
    }
    guards
}

fn slots<'a>(guards: impl IntoIterator<Item = &'a Guard>) -> BTreeSet<usize> {
    guards.into_iter().filter_map(Guard::slot).collect()
}

#[tokio::test(start_paused = true)]
async fn each_holder_has_a_slot_of_its_own() {
    for (count, permits) in [(1, 1), (3, 1), (3, 3), (4, 2), (5, 70), (5, 1_000)] {
        let masters = masters(count);
        let locks = Coordinator::new(&masters).unwrap();
        let semaphore = locks.semaphore("a", permits);
        let lock = semaphore.clone().plain();
        let mut guards = fill(&lock, permits).await;
        assert_eq!(slots(&guards), (0..permits).collect());
        assert!(
            guards
                .iter()
                .all(|guard| guard.shares() && guard.is_valid())
        );
        assert_eq!(semaphore.available_permits().await.unwrap(), 0);
        let refused = lock.try_acquire().await;
        assert!(
            matches!(
                refused.as_ref().unwrap_err().reason(),
                Reason::Held {
                    remaining: Some(_),
                    ..
                }
            ),
            "{refused:?}"
        );
        let last = guards.swap_remove(permits / 2);
        let slot = last.slot();
        last.release().await.unwrap();
        assert_eq!(semaphore.available_permits().await.unwrap(), 1);
        guards.push(lock.try_acquire().await.unwrap());
        assert_eq!(guards.last().unwrap().slot(), slot);
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert!(!lock.is_held().await.unwrap());
        for master in &masters {
            assert_eq!(master.keys(), Vec::<String>::new());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_of_permits_that_cannot_be_used_is_refused() {
    let masters = masters(3);
    let locks = Coordinator::new(&masters).unwrap();
    for given in [0, 1_001, 65_537, usize::MAX] {
        let refused = locks
            .semaphore("a", given)
            .plain()
            .acquire()
            .await
            .unwrap_err();
        let expected = ConfigError::OutOfRange {
            setting: "semaphore",
            given: format!("{given} permits"),
            range: "from 1 to 1000".to_owned(),
        };
        assert_eq!(*refused.reason(), Reason::Config(expected));
    }
    assert!(masters.iter().all(|master| master.commands() == 0));
    let plain = locks.mutex("a").acquire().await.unwrap();
    assert_eq!(plain.slot(), None);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_turn_and_a_release_calls_one() {
    let masters = masters(5);
    let locks = Coordinator::new(&masters).unwrap();
    let lock = locks.semaphore("a", 3).plain();
    let mut guards = fill(&lock, 3).await;
    let (sender, mut served) = tokio::sync::mpsc::unbounded_channel();
    for waiter in 0..6 {
        let (waiting, sender) = (lock.clone(), sender.clone());
        tokio::spawn(async move {
            let guard = waiting.acquire().await.unwrap();
            sender.send((waiter, guard)).unwrap();
        });
        until_queued(&lock, waiter + 1).await;
    }
    for expected in 0..6 {
        let before: u64 = masters.iter().map(MemoryMaster::commands).sum();
        let start = Instant::now();
        drop(guards.remove(0));
        let (waiter, guard) = served.recv().await.unwrap();
        assert_eq!(waiter, expected);
        assert!(start.elapsed() < millis(50), "{:?}", start.elapsed());
        // A release, an acquisition, and nothing of the other waiters.
        let after: u64 = masters.iter().map(MemoryMaster::commands).sum();
        assert!(after - before <= 20, "{}", after - before);
        guards.push(guard);
        assert_eq!(slots(&guards), (0..3).collect());
    }
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_free_while_another_kind_of_lock_has_the_name() {
    let masters = masters(3);
    let locks = Coordinator::new(&masters).unwrap();
    let lock = locks.semaphore("a", 3);
    let owner = locks.new_owner();
    for kind in KINDS {
        assert_eq!(lock.available_permits().await.unwrap(), 3);
        let guard = locks.of_kind(kind, "a", &owner).acquire().await.unwrap();
        guard.all_votes().await;
        let free = if kind == LockKind::Semaphore { 2 } else { 0 };
        assert_eq!(lock.available_permits().await.unwrap(), free, "{kind}");
        assert_eq!(lock.try_acquire().await.is_ok(), free > 0, "{kind}");
        guard.release().await.unwrap();
    }
    // A foreign key is no lock at all.
    for master in &masters {
        master.set_hash("a", [("field", "some")], None);
    }
    assert_eq!(lock.available_permits().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_has_one_kind_at_a_time() {
    let masters = masters(3);
    let locks = Coordinator::new(&masters).unwrap();
    let owner = locks.new_owner();
    for held in KINDS {
        let guard = locks.of_kind(held, "a", &owner).acquire().await.unwrap();
        for other in KINDS.into_iter().filter(|kind| *kind != held) {
            let refused = locks.of_kind(other, "a", &owner).acquire().await;
            let refused = refused.unwrap_err();
            assert_eq!(*refused.reason(), Reason::OtherKind, "{held} {other}");
            assert!(refused.to_string().contains(&format!(" as a {other}")));
        }
        guard.extend(seconds(20)).await.unwrap();
        guard.release().await.unwrap();
    }
}

/// A winner asks the masters that lack its slot for it, but not where another kind is in the way.
#[tokio::test(start_paused = true)]
async fn a_master_with_another_kind_is_asked_once() {
    let masters = masters(3);
    masters[2].set("a", "somebody's", None);
    let locks = Coordinator::new(&masters).unwrap();
    locks.all_ready_within(seconds(1)).await.unwrap();
    let before = masters[2].commands();
    let lock = locks.semaphore("a", 1).plain();
    let guard = lock.acquire().await.unwrap();
    let votes = guard.all_votes().await;
    assert_eq!(votes.granted_count(), 2);
    sleep(seconds(1)).await;
    assert_eq!(masters[2].commands(), before + 1);
}

/// A waiter that comes while others wait joins the queues in its first round. It asks again when it
/// is called, and releases.
#[tokio::test(start_paused = true)]
async fn a_permit_of_a_full_semaphore_takes_three_commands_per_master() {
    const TURNS: u64 = 40;
    let masters = masters(5);
    let commands = || masters.iter().map(MemoryMaster::commands).sum::<u64>();
    let locks = Coordinator::new(&masters).unwrap();
    let lock = locks.semaphore("a", 2).plain();
    let mut held = VecDeque::from(fill(&lock, 2).await);
    let wait = || tokio::spawn(acquire(lock.clone()));
    let mut waiting = VecDeque::from([wait()]);
    sleep(millis(20)).await;
    let before = commands();
    for _ in 0..TURNS {
        waiting.push_back(wait());
        sleep(millis(20)).await;
        held.pop_front().unwrap().release().await.unwrap();
        held.push_back(waiting.pop_front().unwrap().await.unwrap());
    }
    assert_eq!(commands() - before, TURNS * 3 * 5);
}

async fn acquire(lock: Lock) -> Guard {
    lock.acquire().await.unwrap()
}
