//! Semaphores on real servers. These tests demand what Redisson's own tests demand of
//! `RPermitExpirableSemaphore`, at commit 66863978 (4.7.1-SNAPSHOT), as far as it applies to a
//! majority of masters.
//!
//! The list has each test of `RedissonPermitExpirableSemaphoreTest`, with the tests that cover it or
//! the reason why there are none. Some are in `tests/memory/semaphore.rs`:
//!
//! - testGetInClusterNameMapper: `the_template_also_names_a_semaphore`. Masters are independent
//! - testUpdateLeaseTime, testGetLeaseTime: `a_permit_is_extended_until_its_lease_has_ended`. Only
//!   a guard can extend its permit, and no extension shortens a lease
//! - testNotExistent: each program names the number of permits, so there is no semaphore without
//! - testAvailablePermits, testAcquiredPermits, testExpiration:
//!   `permits_are_counted_until_their_leases_end`
//! - testGetPermits: the program that named the number knows it
//! - testExpire, testExpireTryAcquire, testReleaseExpired:
//!   `an_expired_permit_goes_to_the_waiter_and_a_late_release_frees_nothing`
//! - testTrySetPermits: the first number is not kept. The largest number that is in use counts
//! - testSetPermits: `the_number_of_permits_may_change` in `tests/memory`. With more holders
//!   than permits, Redisson reports a negative number of free permits, and this crate 0
//! - testAddPermits: a number is named, and not added to. Its results are those of testSetPermits
//! - testBlockingAcquire, testTryAcquire: `a_permit_that_another_task_releases_goes_to_the_waiter`
//! - testAcquire: `a_permit_that_another_task_releases_goes_to_the_waiter`. Each call is a future
//! - testBlockingAcquireMany, testTryAcquireMany, testRelease, testAcquireAsyncMany,
//!   testReleaseAsyncMany: `any_majority_serves_every_number_of_permits` in
//!   `tests/memory`. A call takes one permit
//! - testReleaseManyExpiredDoesNotThrow, testTryReleaseManyExpired:
//!   `an_expired_permit_goes_to_the_waiter_and_a_late_release_frees_nothing`
//! - testReleaseWithoutPermits, testReleaseManyNotExistOrExpired: only a guard can release a
//!   permit, and it can release only its own. Expired permits are under testTryReleaseManyExpired
//! - testConcurrency_SingleInstance, testConcurrencyLoop_MultiInstance:
//!   `many_tasks_share_the_permits` in `tests/memory`
//! - testConcurrencyMultiPermits, testConcurrencyMultiPermits2: a call takes one permit. Two jobs
//!   that need all permits could each hold one, and wait for each other

use std::time::{Duration, Instant};

use quorlock::{AcquireError, Coordinator, ExtendError, Guard, Lock, LostReason, Renewal};
use tokio::time::sleep;

use crate::{
    common::*,
    redisson_read_write::{served, waiting},
    reentrant::is_contended,
};

/// A short lease, but longer than a node timeout.
const LEASE: Duration = Duration::from_millis(600);

/// Returns a coordinator whose permits may have short leases.
fn short_leases(masters: &[Server]) -> Coordinator {
    coordinator(patient().node_timeout(millis(300)), masters)
}

/// Takes `count` permits for leases that are not renewed.
async fn lease(lock: &Lock, count: usize, ttl: Duration) -> Vec<Guard> {
    let lock = lock.clone().ttl(ttl).renewal(Renewal::Off);
    let mut guards = Vec::new();
    for _ in 0..count {
        guards.push(acquire_on_all(&lock).await);
    }
    guards
}

/// Waits until `count` permits are free on every master.
async fn until_free(lock: &Lock, count: usize) {
    until("that number of free permits", async || {
        (lock.available().await.unwrap() == count).then_some(())
    })
    .await;
}

async fn held(lock: &Lock) -> usize {
    lock.inspect().await.unwrap().holders.len()
}

/// Redisson: testGetInClusterNameMapper.
#[test]
fn the_template_also_names_a_semaphore() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient().key_template("test::{name}"), &masters);
        let lock = locks.semaphore("semaphore", 1);
        let guard = acquire_on_all(&lock).await;
        let waiting = waiting(lock.clone());
        for master in &masters {
            until("the keys of a waiter", async || {
                let keys = master.command(&["KEYS", "*"]);
                let mut keys: Vec<_> = keys.lines().collect();
                keys.sort_unstable();
                (keys
                    == [
                        "quorlock:deadlines:{test::semaphore}",
                        "quorlock:waiters:{test::semaphore}",
                        "test::semaphore",
                    ])
                .then_some(())
            })
            .await;
        }
        guard.release().await.unwrap();
        served(waiting).await.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testAvailablePermits, testAcquiredPermits, testExpiration.
#[test]
fn permits_are_counted_until_their_leases_end() {
    with_masters(3, async |masters| {
        let locks = short_leases(&masters);
        let lock = locks.semaphore("r", 2);
        for _ in 0..2 {
            assert_eq!(held(&lock).await, 0);
            until_free(&lock, 2).await;
            let _first = lease(&lock, 1, 2 * LEASE).await;
            until_free(&lock, 1).await;
            assert_eq!(held(&lock).await, 1);
            let second = lease(&lock, 1, 2 * LEASE).await;
            until_free(&lock, 0).await;
            assert_eq!(held(&lock).await, 2);
            let refused = lock.acquire_within(millis(100)).await;
            assert!(matches!(refused, Err(AcquireError::Deadline { .. })));
            assert_eq!(second[0].lost().await.reason, LostReason::Expired);
            until_free(&lock, 2).await;
        }
        let short = lock.clone().ttl(LEASE).renewal(Renewal::Off);
        let _third = short.try_acquire().await.unwrap();
        until("no keys", async || {
            let is_empty = |master: &Server| master.command(&["DBSIZE"]) == "0";
            masters.iter().all(is_empty).then_some(())
        })
        .await;
        until_free(&lock, 2).await;
    });
}

/// Redisson: testUpdateLeaseTime, testGetLeaseTime. In Redisson, a new lease may be shorter.
#[test]
fn a_permit_is_extended_until_its_lease_has_ended() {
    with_masters(3, async |masters| {
        let locks = short_leases(&masters);
        let lock = locks.semaphore("r", 1);
        let late = lease(&lock, 1, LEASE).await.remove(0);
        assert!(late.remaining() <= LEASE);
        assert_eq!(late.lost().await.reason, LostReason::Expired);
        let refused = late.extend(LONG).await;
        assert!(matches!(refused, Err(ExtendError::Expired { .. })));
        until_free(&lock, 1).await;

        let guard = lease(&lock, 1, LEASE).await.remove(0);
        guard.extend(4 * LEASE).await.unwrap();
        sleep(2 * LEASE).await; // the first lease has ended
        assert_eq!(lock.available().await.unwrap(), 0);
        let left = lock.inspect().await.unwrap().holders[0].remaining.unwrap();
        assert!(left <= 2 * LEASE, "{left:?}");
        guard.extend(LEASE * 2 / 3).await.unwrap(); // not an earlier end
        assert_eq!(guard.lost().await.reason, LostReason::Expired);
        until_free(&lock, 1).await;
        assert!(guard.extend(LONG).await.is_err());
        assert_eq!(lock.available().await.unwrap(), 1);
    });
}

/// Redisson: testExpire, testExpireTryAcquire, testReleaseExpired.
#[test]
fn an_expired_permit_goes_to_the_waiter_and_a_late_release_frees_nothing() {
    with_masters(3, async |masters| {
        let (locks, others) = (short_leases(&masters), coordinator(patient(), &masters));
        let late = lease(&locks.semaphore("r", 1), 1, LEASE).await.remove(0);
        let start = Instant::now();
        let lock = others.semaphore("r", 1);
        let guard = lock.acquire_within(TEST_TIMEOUT / 8).await.unwrap();
        let took = start.elapsed();
        assert!(took < LEASE + millis(900), "{took:?}");
        assert!(!late.is_valid(), "the waiter came during the lease");
        late.release().await.unwrap(); // releasing an expired permit is a success
        locks.close().await;
        assert!(is_contended(&lock.try_acquire().await));
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
        others.close().await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testBlockingAcquire, testTryAcquire, testAcquire.
#[test]
fn a_permit_that_another_task_releases_goes_to_the_waiter() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let lock = locks.semaphore("r", 1);
        let mut guard = acquire_on_all(&lock).await;
        for limit in [None, Some(TEST_TIMEOUT / 8)] {
            assert!(is_contended(&lock.try_acquire().await));
            let waiter = lock.clone();
            let waiting = tokio::spawn(async move {
                match limit {
                    None => waiter.acquire().await.unwrap(),
                    Some(limit) => waiter.acquire_within(limit).await.unwrap(),
                }
            });
            until_waiting(&lock, 1).await;
            assert_eq!(lock.available().await.unwrap(), 0);
            assert!(!waiting.is_finished());
            tokio::spawn(guard.release()).await.unwrap().unwrap();
            guard = served(waiting).await;
            assert!(is_contended(&lock.try_acquire().await));
            assert_eq!(lock.available().await.unwrap(), 0);
        }
        guard.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}
