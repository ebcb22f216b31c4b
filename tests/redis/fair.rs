//! Fair locks on real servers. These tests demand all that Redisson's own tests demand of
//! `RFairLock`, and more.
//!
//! The list has each test of `RedissonFairLockTest`, with the tests here that cover it or the
//! reason why there are none:
//!
//! - testLeaseTimeout: `locks_that_expire_pass_to_the_next_waiter_in_order`
//! - testMultipleLocks, testConcurrency_SingleInstance, testConcurrencyLoop_MultiInstance,
//!   testConcurrency_MultiInstance: `many_waiters_are_all_served`, and `reentrant.rs`
//! - testConcurrency_MultiInstance_Ordering: `waiters_of_several_clients_are_served_in_order`
//! - testWaitTimeoutDrift, testLockAcquiredTimeoutDrift, testAcquireFailedTimeoutDrift_Descrete,
//!   testLockAcquiredTimeoutDrift_Descrete, testFirstThreadDeathTimeoutDrift:
//!   `the_deadlines_of_waiters_do_not_add_up`
//! - testLockAcquiredBooleanTimeoutDrift_Descrete:
//!   `an_attempt_takes_no_queue_position_and_overtakes_no_one`
//! - testAbandonedTimeoutDrift_Descrete: `a_dead_head_makes_no_hot_loop` in
//!   `waiter_timeout.rs`
//! - testTryLockNonDelayed, testTryLockWait: `a_wait_lasts_as_long_as_its_limit` in `reentrant.rs`
//! - testForceUnlock: there is no such operation. The test for a deleted key is
//!   `a_key_that_another_program_deletes_wakes_the_next_waiter`
//! - testExpire, testAutoExpire, testGetHoldCount, testIsHeldByCurrentThread,
//!   testIsHeldByCurrentThreadOtherThread, testIsLocked, testIsLockedOtherThread, testLockUnlock,
//!   testReentrancy: `reentrant.rs`, which tests both reentrant and fair locks
//! - testUnlockFail: only a guard can release a lock, and it can release only its own lock
//! - testNameMapper: `the_template_also_names_the_queue`
//! - testAcquireFailedNotCalledOnRedisTimeout:
//!   `masters_that_stand_still_during_an_attempt_keep_no_queue_entry`

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use quorlock::{AcquireError, Builder, Coordinator, Guard, Owner, Refusal, Renewal, Vote};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    common::*,
    waiter_processes::{DEADLINES, QUEUE, until_queued},
};

/// The time limit for a waiter that is woken. It is less than the shortest poll interval.
const WOKEN: Duration = Duration::from_millis(300);

/// Returns the tickets on `master`, in order.
fn tickets(master: &Server) -> Vec<String> {
    let tickets = master.command(&["ZRANGE", QUEUE, "0", "-1"]);
    tickets.lines().map(str::to_owned).collect()
}

/// The owners that were served, in order.
#[derive(Clone, Default)]
struct Served(Arc<Mutex<Vec<String>>>);

impl Served {
    /// Starts a task that waits for the lock, and releases the lock at once.
    fn waiter(&self, locks: &Coordinator) -> (Owner, JoinHandle<()>) {
        let owner = locks.owner();
        let (lock, served) = (locks.fair("r", &owner), self.0.clone());
        let task = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let who = guard_owner(&lock).await;
            served.lock().unwrap().push(who);
            guard.release().await.unwrap();
        });
        (owner, task)
    }

    fn list(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Returns the owner of `lock`, according to the masters.
async fn guard_owner(lock: &quorlock::Lock) -> String {
    let holder = lock.inspect().await.unwrap().holders.pop();
    holder.and_then(|holder| holder.owner).unwrap_or_default()
}

async fn finish(tasks: impl IntoIterator<Item = JoinHandle<()>>) {
    for task in tasks {
        timeout(TEST_TIMEOUT / 2, task).await.unwrap().unwrap();
    }
}

fn clients(count: usize, builder: impl Fn() -> Builder, masters: &[Server]) -> Vec<Coordinator> {
    let client = |_| coordinator(builder(), masters);
    (0..count).map(client).collect()
}

async fn acquire_on_all_as_new_owner(locks: &Coordinator) -> Guard {
    acquire_on_all(&locks.fair("r", &locks.owner())).await
}

/// Redisson: testConcurrency_MultiInstance_Ordering.
#[test]
fn waiters_of_several_clients_are_served_in_order() {
    with_masters(3, async |masters| {
        let clients = clients(4, patient, &masters);
        let guard = acquire_on_all_as_new_owner(&clients[0]).await;
        let served = Served::default();
        let (mut came, mut tasks) = (Vec::new(), Vec::new());
        for n in 0..16 {
            let (owner, task) = served.waiter(&clients[n * 7 % 4]);
            until_queued(&masters, n + 1).await;
            came.push(owner.id().to_owned());
            tasks.push(task);
        }
        let lock = clients[0].fair("r", &clients[0].owner());
        assert_eq!(lock.inspect().await.unwrap().queue, came);
        drop(guard);
        finish(tasks).await;
        assert_eq!(served.list(), came);
        for locks in &clients {
            close_at_once(locks).await;
        }
        assert_no_keys(&masters);
    });
}

/// In a `RedissonRedLock` of fair locks, every node has its own order of waiters. Sometimes no
/// waiter is the first on a majority of nodes.
#[test]
fn waiters_that_arrive_together_have_the_same_order_on_every_master() {
    with_masters(3, async |masters| {
        let clients = clients(4, patient, &masters);
        let guard = acquire_on_all_as_new_owner(&clients[0]).await;
        let served = Served::default();
        let waiters = (0..40).map(|n| served.waiter(&clients[n % 4]).1);
        let tasks: Vec<_> = waiters.collect();
        until_queued(&masters, 40).await;
        let order = tickets(&masters[0]);
        for master in &masters {
            assert_eq!(tickets(master), order);
        }
        drop(guard);
        finish(tasks).await;
        let owners = order.iter().map(|ticket| ticket[17..].to_owned());
        assert_eq!(served.list(), Vec::from_iter(owners));
    });
}

/// Redisson: testLeaseTimeout. In Redisson, the end of an extended lease removes the queue.
#[test]
fn locks_that_expire_pass_to_the_next_waiter_in_order() {
    with_masters(3, async |masters| {
        let ttl = millis(450);
        // Masters do not announce an expiry. The new head of the queue notices it at a poll.
        let waiter_timeout = millis(800);
        let builder = || {
            patient()
                .node_timeout(millis(200))
                .ttl(ttl)
                .waiter_timeout(waiter_timeout)
        };
        let clients = clients(3, builder, &masters);
        let start = Instant::now();
        let first = acquire_on_all_as_new_owner(&clients[0]).await;
        first.extend(ttl).await.unwrap();
        first.stop_renewing();
        let mut tasks = Vec::new();
        for n in 0..5 {
            let lock = clients[n % 3].fair("r", &clients[n % 3].owner());
            tasks.push(tokio::spawn(async move {
                let guard = lock.renewal(Renewal::Off).acquire().await.unwrap();
                // The task may run later than its round ended.
                let at = Instant::now();
                (at, at + guard.remaining() - ttl, guard)
            }));
            until_queued(&masters, n + 1).await;
        }
        let mut last = start;
        for task in tasks {
            let (at, began, guard) = timeout(TEST_TIMEOUT / 4, task).await.unwrap().unwrap();
            assert!(at >= last + ttl * 9 / 10, "{:?}", at - last);
            let late = at - last - ttl.min(at - last);
            assert!(late < waiter_timeout / 3 + millis(250), "{late:?}");
            last = began;
            std::mem::forget(guard); // never released
        }
    });
}

/// Redisson: testMultipleLocks, testConcurrency_SingleInstance, testConcurrencyLoop_MultiInstance,
/// testConcurrency_MultiInstance.
#[test]
fn many_waiters_are_all_served() {
    with_masters(3, async |masters| {
        let clients = clients(4, patient, &masters);
        let served = Served::default();
        let waiters = (0..120).map(|n| served.waiter(&clients[n % 4]).1);
        finish(waiters.collect::<Vec<_>>()).await;
        let mut owners = served.list();
        assert_eq!(owners.len(), 120);
        owners.sort_unstable();
        owners.dedup();
        assert_eq!(owners.len(), 120, "each of them held the lock alone");
        for locks in &clients {
            close_at_once(locks).await;
        }
        assert_no_keys(&masters);
    });
}

/// Redisson: the five tests of drifting timeouts. In Redisson, a waiter's deadline is counted from
/// the deadline of the waiter before it.
#[test]
fn the_deadlines_of_waiters_do_not_add_up() {
    with_masters(3, async |masters| {
        let clients = clients(2, patient, &masters);
        let waiter_timeout = 20_000; // four node timeouts
        let check = |count| {
            for master in &masters {
                assert_eq!(tickets(master).len(), count);
                let scores = master.command(&["ZRANGE", DEADLINES, "0", "-1", "WITHSCORES"]);
                let time = master.command(&["TIME"]);
                let now: u64 = time.lines().next().unwrap().parse().unwrap();
                let scores: Vec<_> = scores.lines().skip(1).step_by(2).collect();
                assert_eq!(scores.len(), count);
                for score in scores {
                    let score: u64 = score.parse().unwrap();
                    assert!(
                        score <= (now + 1) * 1_000 + waiter_timeout,
                        "{score} at {now}"
                    );
                }
                for key in [QUEUE, DEADLINES] {
                    let left = pttl(master, key);
                    assert!((1..=2 * waiter_timeout as i64).contains(&left), "{left}");
                }
            }
        };
        let guard = acquire_on_all_as_new_owner(&clients[0]).await;
        let served = Served::default();
        let mut tasks = Vec::new();
        for n in 0..5 {
            tasks.push(served.waiter(&clients[n % 2]).1);
            until_queued(&masters, n + 1).await;
        }
        check(5);
        for _ in 0..20 {
            let lock = clients[1].fair("r", &clients[1].owner());
            assert!(lock.acquire_within(millis(10)).await.is_err());
        }
        until_queued(&masters, 5).await;
        check(5);
        drop(guard);
        finish(tasks).await;
        for locks in &clients {
            close_at_once(locks).await;
        }
        assert_no_keys(&masters);
    });
}

/// Redisson: testLockAcquiredBooleanTimeoutDrift_Descrete, and testTryLockNonDelayed.
#[test]
fn an_attempt_takes_no_queue_position_and_overtakes_no_one() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let lock = locks.fair("r", &locks.owner());
        let guard = acquire_on_all_as_new_owner(&locks).await;
        for _ in 0..3 {
            let refused = lock.try_acquire().await;
            assert!(matches!(refused, Err(AcquireError::Contended { .. })));
        }
        guard.release().await.unwrap();
        until_queued(&masters, 0).await;
        until("a lock that is free everywhere", async || {
            let is_free = |master: &Server| master.command(&["EXISTS", "r"]) == "0";
            masters.iter().all(is_free).then_some(())
        })
        .await;

        // The lock is free, but another waiter is the next.
        for master in &masters {
            enqueue_dead(master, "0000000000000001:another:1", Some(millis(60_000)));
        }
        let Err(AcquireError::Contended { votes, .. }) = lock.try_acquire().await else {
            panic!("the attempt won out of turn");
        };
        let queued = Vote::Refuse(Refusal::Queued { position: None });
        let said = votes.iter().filter_map(|row| row.vote().cloned());
        let said: Vec<_> = said.collect(); // at least the votes of a majority
        assert!(said.len() >= 2 && said.iter().all(|vote| *vote == queued));
        close_at_once(&locks).await;
        for master in &masters {
            assert_eq!(tickets(master), ["0000000000000001:another:1"]);
            assert_eq!(master.command(&["EXISTS", "r"]), "0");
        }
    });
}

/// Puts a waiter that never polls into the queue of `master`. The waiter counts as dead after
/// `waiter_timeout`.
fn enqueue_dead(master: &Server, ticket: &str, waiter_timeout: Option<Duration>) {
    assert_eq!(master.command(&["ZADD", QUEUE, "0", ticket]), "1");
    if let Some(waiter_timeout) = waiter_timeout {
        let time = master.command(&["TIME"]);
        let mut time = time.lines().map(|part| part.parse::<u64>().unwrap());
        let now = time.next().unwrap() * 1_000 + time.next().unwrap() / 1_000;
        let deadline = (now + waiter_timeout.as_millis() as u64).to_string();
        assert_eq!(master.command(&["ZADD", DEADLINES, &deadline, ticket]), "1");
    }
}

/// In Redisson, a queue head without a deadline blocks the lock forever.
#[test]
fn a_waiter_without_a_deadline_delays_no_one() {
    with_masters_alone(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        drop(acquire_on_all(&locks.fair("warm", &locks.owner())).await);
        for master in &masters {
            enqueue_dead(master, "0000000000000001:another:1", None);
        }
        let start = Instant::now();
        let lock = locks.fair("r", &locks.owner());
        let guard = lock.acquire_within(TEST_TIMEOUT / 8).await.unwrap();
        assert!(start.elapsed() < WOKEN);
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_release_wakes_the_next_waiter_in_this_process_or_another() {
    with_masters_alone(3, async |masters| {
        let clients = clients(2, patient, &masters);
        for theirs in &clients {
            let mut times = Vec::new();
            for _ in 0..5 {
                let guard = acquire_on_all_as_new_owner(&clients[0]).await;
                let (_, task) = Served::default().waiter(theirs);
                until_queued(&masters, 1).await;
                let since = Instant::now();
                drop(guard);
                finish([task]).await;
                times.push(since.elapsed());
            }
            times.sort_unstable();
            assert!(times[2] < WOKEN, "{times:?}");
        }
    });
}

#[test]
fn a_key_that_another_program_deletes_wakes_the_next_waiter() {
    with_masters_alone(3, async |masters| {
        let locks = coordinator(patient().node_timeout(millis(200)), &masters);
        let guard = acquire_on_all_as_new_owner(&locks).await;
        let (_, task) = Served::default().waiter(&locks);
        until_watched(&masters).await;
        for master in &masters {
            assert_eq!(master.command(&["DEL", "r"]), "1");
        }
        let start = Instant::now();
        finish([task]).await;
        assert!(start.elapsed() < WOKEN);
        drop(guard);
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testNameMapper.
#[test]
fn the_template_also_names_the_queue() {
    with_masters(3, async |masters| {
        for (name, keys) in [
            (
                "r",
                [
                    "app:r",
                    "quorlock:deadlines:{app:r}",
                    "quorlock:queue:{app:r}",
                ],
            ),
            (
                "{r}",
                [
                    "app:{r}",
                    "quorlock:deadlines::app:{r}",
                    "quorlock:queue::app:{r}",
                ],
            ),
        ] {
            let locks = coordinator(patient().key_template("app:{name}"), &masters);
            let guard = acquire_on_all(&locks.fair(name, &locks.owner())).await;
            let lock = locks.fair(name, &locks.owner());
            let waiting =
                tokio::spawn(async move { lock.acquire().await.unwrap().release().await });
            for master in &masters {
                until("the keys of lock and queue", async || {
                    let found = master.command(&["KEYS", "*"]);
                    let mut found: Vec<_> = found.lines().collect();
                    found.sort_unstable();
                    (found == keys).then_some(())
                })
                .await;
            }
            drop(guard);
            timeout(TEST_TIMEOUT / 4, waiting)
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            close_at_once(&locks).await;
            assert_no_keys(&masters);
        }
    });
}

/// Redisson: testAcquireFailedNotCalledOnRedisTimeout.
#[test]
fn masters_that_stand_still_during_an_attempt_keep_no_queue_entry() {
    with_masters(3, async |masters| {
        let locks = coordinator(brisk().ttl(Duration::from_secs(5)), &masters);
        let others = coordinator(patient(), &masters);
        let guard = acquire_on_all_as_new_owner(&others).await;
        drop(acquire_on_all(&locks.fair("warm", &locks.owner())).await);
        let lock = locks.fair("r", &locks.owner());
        let waiting = tokio::spawn(async move { lock.acquire_within(millis(500)).await.map(drop) });
        until_queued(&masters, 1).await;
        for master in &masters {
            assert_eq!(master.command(&["CLIENT", "PAUSE", "900"]), "OK");
        }
        let refused = waiting.await.unwrap();
        assert!(
            matches!(refused, Err(AcquireError::Deadline { .. })),
            "{refused:?}"
        );
        locks.close().await;
        until_queued(&masters, 0).await;
        guard.release().await.unwrap();
        others.close().await;
        assert_no_keys(&masters);
    });
}

/// In Redisson, a plain lock overtakes the queue of a fair lock. The release of the plain lock
/// wakes no waiter in that queue.
#[test]
fn kinds_of_one_name_do_not_mix() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.owner();
        let of = |kind| locks.of_kind(kind, "r", &owner);
        for held in KINDS {
            let guard = acquire_on_all(&of(held)).await;
            for other in KINDS.into_iter().filter(|kind| *kind != held) {
                let refused = timeout(TEST_TIMEOUT / 8, of(other).acquire())
                    .await
                    .unwrap();
                let Err(AcquireError::OtherKind { asked, .. }) = refused else {
                    panic!("{held} {other}: {refused:?}");
                };
                assert_eq!(asked, other);
            }
            assert!(guard.is_valid());
            guard.extend(LONG).await.unwrap();
            assert_eq!(guard.settled().await.granted_count(), 3);
            guard.release().await.unwrap();
            until_released(&masters, "r").await;
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}
