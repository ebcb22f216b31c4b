//! Reentrant locks on real servers. These tests demand what Redisson's own tests demand of `RLock`
//! and `RedissonRedLock`, as far as it applies to a majority of masters.
//!
//! The first list has each test of `RedissonLockTest`, with the tests here that cover it or the
//! reason why there are none. Some are in `tests/memory`, where they need no server:
//!
//! - testReentrancy: `an_owner_reenters_and_others_get_the_lock_after_its_last_guard`
//! - testGetHoldCount: `depth_is_the_number_of_levels_that_the_owner_holds`
//! - testIsLocked, testIsLockedOtherThread, testIsHeldByCurrentThread,
//!   testIsHeldByCurrentThreadOtherThread: `every_client_sees_who_holds_a_lock`
//! - testLockUnlock: `depth_is_the_number_of_levels_that_the_owner_holds`
//! - testUnlockFail: only a guard can release a lock, and it can release only its own lock. Tests
//!   of releases by others are in `redisson.rs`
//! - testForceUnlock: there is no such operation. Tests of deleted keys are in `redisson.rs` and
//!   `renewal.rs`
//! - testExpire: `an_expired_lock_goes_to_the_waiter_and_a_late_release_takes_nothing`
//! - testAutoExpire: `a_process_that_is_gone_keeps_a_lock_no_longer_than_its_ttl`
//! - testRemainTimeToLive, testRemainTimeToLive2: `releasing_a_level_does_not_shorten_the_lease`
//! - testTryLockWait: `a_wait_lasts_as_long_as_its_limit`
//! - testLockUninterruptibly: a wait is a future, which can always be dropped
//! - testLockIsNotRenewedAfterInterruptedTryLock:
//!   `an_owners_dropped_acquire_within_leaves_nothing` in `tests/memory/cancel.rs`
//! - testRedisFailed: `an_acquisition_fails_in_time_with_two_faulty_masters` in
//!   `tests/memory/faults.rs`
//! - testConcurrency_SingleInstance, testConcurrency_MultiInstance,
//!   testConcurrencyLoop_MultiInstance, testConcurrencyTryLockUnLock:
//!   `many_owners_increment_a_counter_without_losing_an_update`
//! - testSubscriptionsPerConnection, testSinglePubSub: a coordinator has one connection to each
//!   master, and no subscriptions
//! - testLockListener: this crate does not use keyspace events
//! - testInCluster, testLockFailoverInCluster: masters are independent. Tests of masters that fail
//!   are in `restart.rs` and `renewal.rs`
//!
//! The second list has each test of `RedissonRedLockTest`, which Redisson has removed:
//!
//! - testLockLeasetimeWithMilliSeconds, WithSeconds, WithMinutes, testTryLockLeasetime,
//!   testMultiThreads: `many_owners_increment_a_counter_without_losing_an_update`. Rust has one
//!   type for durations
//! - testLockFailed: `an_attempt_is_lost_as_soon_as_a_majority_is_impossible` in
//!   `tests/memory/acquire.rs`
//! - testLockSuccess, testLockSuccess2: `a_lock_is_won_as_soon_as_a_majority_has_granted` in
//!   `tests/memory/acquire.rs`
//! - testConnectionFailed: `a_lock_is_acquired_with_one_faulty_master` in `tests/memory/faults.rs`
//! - test: `an_owner_reenters_and_others_get_the_lock_after_its_last_guard`

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use quorlock::{AcquireError, Coordinator, Holder, Kind, Lock, LostReason, Owner, Renewal};
use tokio::time::{sleep, timeout};

use crate::common::*;

/// Runs `test` with each kind of lock that has owners.
fn with_both(n: usize, test: impl AsyncFn(&[Server], Kind)) {
    with_masters(n, async |masters| {
        for kind in [Kind::Reentrant, Kind::Fair] {
            test(&masters, kind).await;
        }
    });
}

fn lock(kind: Kind, locks: &Coordinator, owner: &Owner) -> Lock {
    lock_of_kind(kind, "r", locks, owner)
}

async fn holder(lock: &Lock) -> Option<Holder> {
    lock.inspect().await.unwrap().holders.pop()
}

pub(crate) fn is_contended<T>(result: &Result<T, AcquireError>) -> bool {
    matches!(result, Err(AcquireError::Contended { .. }))
}

/// Redisson: testReentrancy, and `test` of `RedissonRedLockTest`.
#[test]
fn an_owner_reenters_and_others_get_the_lock_after_its_last_guard() {
    with_both(3, async |masters, kind| {
        let (locks, others) = (
            coordinator(patient(), masters),
            coordinator(patient(), masters),
        );
        let mine = lock(kind, &locks, &locks.owner());
        let outer = mine.acquire().await.unwrap();
        let inner = timeout(TEST_TIMEOUT / 8, mine.acquire())
            .await
            .unwrap()
            .unwrap();
        // Tries owners of this coordinator and of another one.
        for other in [&locks, &others] {
            let theirs = lock(kind, other, &other.owner());
            assert!(is_contended(&theirs.try_acquire().await));
        }
        outer.release().await.unwrap();
        assert!(inner.is_valid());
        let theirs = lock(kind, &others, &others.owner());
        assert!(is_contended(&theirs.try_acquire().await));
        inner.release().await.unwrap();
        let guard = theirs.acquire_within(TEST_TIMEOUT / 8).await.unwrap();
        assert!(is_contended(&mine.try_acquire().await));
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        close_at_once(&others).await;
        assert_no_keys(masters);
    });
}

/// Redisson: testGetHoldCount.
#[test]
fn depth_is_the_number_of_levels_that_the_owner_holds() {
    with_both(3, async |masters, kind| {
        let (locks, others) = (
            coordinator(patient(), masters),
            coordinator(patient(), masters),
        );
        let owner = locks.owner();
        let mine = lock(kind, &locks, &owner);
        let theirs = lock(kind, &others, &others.owner());
        let depth = async || {
            let holder = holder(&theirs).await?;
            assert_eq!(holder.owner.as_deref(), Some(owner.id()));
            assert_eq!(holder.kind, Some(kind));
            Some(holder.depth)
        };
        let mut guards = Vec::new();
        for count in 1..=3 {
            guards.push(acquire_on_all(&mine).await);
            assert!(guards.iter().all(|guard| guard.depth() == count));
            assert_eq!(depth().await, Some(count.into()));
            for master in masters {
                let on_master = master.command(&["HGET", "r", owner.id()]);
                assert_eq!(on_master, count.to_string());
            }
        }
        // Releases the outermost level first.
        for left in [2, 1] {
            guards.remove(0).release().await.unwrap();
            assert!(guards.iter().all(|guard| guard.depth() == left));
            until("one level less", async || {
                (depth().await == Some(left.into())).then_some(())
            })
            .await;
        }
        guards.remove(0).release().await.unwrap();
        close_at_once(&locks).await;
        assert_eq!(depth().await, None);
        assert_no_keys(masters);
    });
}

/// Redisson: testIsLocked, testIsHeldByCurrentThread, and the same two tests from another thread.
#[test]
fn every_client_sees_who_holds_a_lock() {
    with_both(3, async |masters, kind| {
        let (locks, others) = (
            coordinator(patient(), masters),
            coordinator(patient(), masters),
        );
        let owner = locks.owner();
        let mine = lock(kind, &locks, &owner);
        let theirs = lock(kind, &others, &others.owner());
        for _ in 0..2 {
            for seen in [&mine, &theirs] {
                assert!(!seen.is_held().await.unwrap());
            }
            let guard = mine.acquire().await.unwrap();
            for seen in [&mine, &theirs] {
                assert!(seen.is_held().await.unwrap());
                let by = holder(seen).await.unwrap().owner;
                assert_eq!(by.as_deref(), Some(owner.id()));
            }
            guard.release().await.unwrap();
        }
    });
}

/// Redisson: testExpire. In Redisson, a late unlock throws for a plain lock, but not for a fair
/// lock.
#[test]
fn an_expired_lock_goes_to_the_waiter_and_a_late_release_takes_nothing() {
    with_both(3, async |masters, kind| {
        let (locks, others) = (
            coordinator(patient().node_timeout(millis(300)), masters),
            coordinator(patient(), masters),
        );
        let mine = lock(kind, &locks, &locks.owner());
        let late = acquire_on_all(&mine.clone().ttl(millis(600)).renewal(Renewal::Off)).await;
        let inner = acquire_on_all(&mine.clone().ttl(millis(600)).renewal(Renewal::Off)).await;
        let start = Instant::now();
        let owner = others.owner();
        let theirs = lock(kind, &others, &owner);
        let guard = theirs.acquire_within(TEST_TIMEOUT / 8).await.unwrap();
        let took = start.elapsed();
        assert!(took > millis(500) && took < millis(1_500), "{took:?}");
        assert!(!late.is_valid());
        assert_eq!(late.lost().await.reason, LostReason::Expired);
        late.release().await.unwrap(); // releasing an expired lock is a success
        drop(inner);
        locks.close().await;
        assert!(guard.is_valid());
        let is_theirs = |master: &&Server| master.command(&["HGET", "r", owner.id()]) == "1";
        // At least a majority of masters have the new key. On the last master, the old key may have
        // expired a moment later.
        assert!(masters.iter().filter(is_theirs).count() >= 2);
        guard.release().await.unwrap();
        others.close().await;
        assert_no_keys(masters);
    });
}

/// Redisson: testAutoExpire.
#[test]
fn a_process_that_is_gone_keeps_a_lock_no_longer_than_its_ttl() {
    with_both(3, async |masters, kind| {
        let ttl = millis(900);
        let theirs = runtime();
        let urls = urls(masters);
        let guard = theirs
            .spawn(async move {
                let builder = patient().node_timeout(millis(300)).ttl(ttl);
                let locks = builder.masters(urls).build().unwrap();
                let lock = lock(kind, &locks, &locks.owner());
                let guard = lock.acquire_within(TEST_TIMEOUT / 8).await.unwrap();
                guard.settled().await;
                sleep(ttl * 2).await; // the lock is renewed meanwhile
                guard
            })
            .await
            .unwrap();
        theirs.shutdown_background();
        let start = Instant::now();
        let locks = coordinator(patient(), masters);
        let mine = lock(kind, &locks, &locks.owner());
        assert!(is_contended(&mine.try_acquire().await));
        let won = mine.acquire_within(TEST_TIMEOUT / 8).await.unwrap();
        let took = start.elapsed();
        assert!(took < ttl + millis(600), "{took:?}");
        won.release().await.unwrap();
        drop(guard);
    });
}

/// Redisson: testRemainTimeToLive, testRemainTimeToLive2.
#[test]
fn releasing_a_level_does_not_shorten_the_lease() {
    with_both(3, async |masters, kind| {
        let locks = coordinator(patient(), masters);
        let mine = lock(kind, &locks, &locks.owner());
        let left = async || holder(&mine).await.unwrap().remaining.unwrap();
        let hour = Duration::from_secs(3_600);
        let outer = acquire_on_all(
            &mine
                .clone()
                .ttl(Duration::from_secs(10))
                .renewal(Renewal::Off),
        )
        .await;
        assert!(left().await <= Duration::from_secs(10));
        // Reentering with a longer TTL extends the lock for all levels. A shorter TTL shortens
        // nothing.
        for ttl in [hour, Duration::from_secs(20)] {
            let inner = acquire_on_all(&mine.clone().ttl(ttl).renewal(Renewal::Off)).await;
            assert!(left().await > hour - Duration::from_secs(20));
            assert!(outer.remaining() > hour - hour / 50);
            inner.release().await.unwrap();
            assert!(left().await > hour - Duration::from_secs(20));
            assert!(outer.remaining() > hour - hour / 50);
        }
        for master in masters {
            assert!(pttl(master, "r") > 3_500_000);
        }
        outer.release().await.unwrap();
        assert!(holder(&mine).await.is_none());
    });
}

/// Redisson: testTryLockWait, and testTryLockNonDelayed for fair locks.
#[test]
fn a_wait_lasts_as_long_as_its_limit() {
    with_both(3, async |masters, kind| {
        let (locks, others) = (
            coordinator(patient(), masters),
            coordinator(patient(), masters),
        );
        let guard = acquire_on_all(&lock(kind, &others, &others.owner())).await;
        let mine = lock(kind, &locks, &locks.owner());
        for limit in [millis(0), millis(200), millis(700)] {
            let start = Instant::now();
            let refused = mine.acquire_within(limit).await;
            let took = start.elapsed();
            let Err(AcquireError::Deadline { last, .. }) = refused else {
                panic!("{refused:?}");
            };
            assert!(matches!(*last, AcquireError::Contended { .. }), "{last}");
            assert!(took >= limit && took < limit + millis(300), "{took:?}");
        }
        guard.release().await.unwrap();
        let start = Instant::now();
        drop(mine.acquire().await.unwrap());
        assert!(
            start.elapsed() < TEST_TIMEOUT / 8,
            "the owner's own attempt was in the way"
        );
        close_at_once(&locks).await;
        assert_no_keys(masters);
    });
}

/// Redisson: testConcurrency* and the lease times of `RedissonRedLockTest`. Each owner acquires the
/// lock twice. If two tasks held the lock at once, the counter would have the wrong value.
#[test]
fn many_owners_increment_a_counter_without_losing_an_update() {
    const CLIENTS: usize = 4;
    const OWNERS: usize = 6;
    const LOOPS: u64 = 5;
    with_both(3, async |masters, kind| {
        let count = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for _ in 0..CLIENTS {
            let locks = coordinator(patient(), masters);
            for _ in 0..OWNERS {
                let lock = lock(kind, &locks, &locks.owner());
                let count = count.clone();
                tasks.push(tokio::spawn(async move {
                    for _ in 0..LOOPS {
                        let outer = lock.acquire().await.unwrap();
                        let before = count.load(Ordering::Relaxed);
                        let inner = lock.acquire().await.unwrap();
                        drop(outer);
                        tokio::task::yield_now().await;
                        count.store(before + 1, Ordering::Relaxed);
                        assert!(inner.is_valid());
                    }
                }));
            }
        }
        for task in tasks {
            timeout(TEST_TIMEOUT / 2, task).await.unwrap().unwrap();
        }
        let total = (CLIENTS * OWNERS) as u64 * LOOPS;
        assert_eq!(count.load(Ordering::Relaxed), total);
        until("the last releases", async || {
            let is_empty = |master: &Server| master.command(&["DBSIZE"]) == "0";
            masters.iter().all(is_empty).then_some(())
        })
        .await;
    });
}
