//! Read-write locks on real servers. These tests demand what Redisson's own tests demand of
//! `RReadWriteLock`, at commit 66863978 (4.7.1-SNAPSHOT), as far as it applies to a majority of
//! masters.
//!
//! The list has each test of `RedissonReadWriteLockTest`, with the tests that cover it or the
//! reason why there are none. Tests of leases are in `redisson_read_write_leases.rs`, and some are in
//! `tests/memory/read_write.rs`:
//!
//! - testReadLockExpiration: `a_short_lease_of_one_reader_does_not_end_that_of_another`
//! - testReadLockIsLocked, testIsLocked, testIsLockedOtherThread, testIsHeldByCurrentThread,
//!   testIsHeldByCurrentThreadOtherThread: `every_client_sees_who_reads_and_who_writes`
//! - testReadLockExpirationRenewal: `many_readers_are_renewed_at_once`
//! - testName: `readers_share_a_name_with_braces`
//! - testWriteLockExpiration: `a_writer_that_reenters_with_a_short_lease_keeps_its_long_one`
//! - testInCluster: masters are independent. Its steps are those of testWR
//! - testReadLockLeaseTimeoutDiffThreadsWRR: `all_readers_follow_a_writer_whose_lease_ended`
//! - testReadLockLeaseTimeoutDiffThreadsRRW: `a_later_reader_does_not_prolong_an_earlier_lease`
//! - testReadLockLeaseTimeout: `the_levels_of_a_reader_have_one_lease`. In Redisson, each level has
//!   a lease of its own, and here the owner has one. Releasing a level does not shorten it
//! - testWR: `a_writer_that_stops_reading_still_writes`
//! - testWriteRead: `a_writer_that_leaves_calls_the_readers_behind_it` in `tests/memory`
//! - testWriteReadReentrancy: `a_writer_that_also_reads_becomes_a_reader`
//! - testWriteLock: `readers_come_in_after_the_last_level_that_writes`
//! - testMultiRead: `readers_share_the_lock_and_a_writer_excludes_everyone` in `tests/memory`. A forced unlock is under testForceUnlock
//! - testForceUnlock: `every_holder_that_was_seen_is_broken` in `tests/memory/break_held.rs`
//! - testReadWriteTTL: `a_writer_that_becomes_a_reader_is_renewed_all_the_time`
//! - testExpireRead: `readers_do_not_wait_for_a_lease`
//! - testExpireWrite: `a_writer_whose_lease_ended_takes_nothing_from_the_next`
//! - testAutoExpire: `a_dead_reader_costs_the_rest_of_its_own_lease` in `tests/memory`
//! - testHoldCount, testReentrancy, testLockUnlock:
//!   `depth_is_the_number_of_levels_of_a_reader_or_writer`
//! - testUnlockFail: only a guard can release a lock, and it can release only its own lock
//! - testConcurrency_SingleInstance, testConcurrency_MultiInstance,
//!   testConcurrencyLoop_MultiInstance: `readers_never_see_half_of_what_a_writer_writes` in `recipes`
//! - testMultiInstanceReadLockZombieCleanup: `a_dead_reader_costs_the_rest_of_its_own_lease` in
//!   `tests/memory`
//! - testMultiInstanceZombieReadLockPerformance: Redisson has turned it off

use std::sync::Arc;

use quorlock::{Access, AcquireError, Coordinator, Guard, Holder, Kind, Lock, Owner};
use tokio::{sync::Barrier, task::JoinHandle, time::timeout};

use crate::{common::*, reentrant::is_contended};

pub(crate) fn read(locks: &Coordinator, owner: &Owner) -> Lock {
    locks.read_write("r", owner).read()
}

pub(crate) fn write(locks: &Coordinator, owner: &Owner) -> Lock {
    locks.read_write("r", owner).write()
}

/// Starts a task that waits for `lock`.
pub(crate) fn waiting(lock: Lock) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// Returns the guard of a task that no longer has to wait.
pub(crate) async fn served(waiting: JoinHandle<Guard>) -> Guard {
    timeout(TEST_TIMEOUT / 8, waiting).await.unwrap().unwrap()
}

async fn holders(lock: &Lock) -> Vec<Holder> {
    lock.inspect().await.unwrap().holders
}

fn is_upgrade<T>(result: &Result<T, AcquireError>) -> bool {
    matches!(result, Err(AcquireError::Upgrade { .. }))
}

/// Redisson: testReadLockIsLocked, testIsLocked, testIsHeldByCurrentThread, and the last two from
/// another thread. In Redisson, each of the two locks of a name is held or not; here, the name is,
/// and its holder reads or writes.
#[test]
fn every_client_sees_who_reads_and_who_writes() {
    with_masters(3, async |masters| {
        let (locks, others) = (
            coordinator(patient(), &masters),
            coordinator(patient(), &masters),
        );
        let (owner, other) = (locks.owner(), others.owner());
        let seen = async |access: Option<Access>| {
            for lock in [read(&locks, &owner), write(&others, &other)] {
                until("the holder", async || {
                    let holders = holders(&lock).await;
                    let found = holders.first().map(|holder| holder.access);
                    (found == access && holders.len() <= 1).then_some(())
                })
                .await;
                assert_eq!(lock.is_held().await.unwrap(), access.is_some());
                for holder in holders(&lock).await {
                    assert_eq!(holder.kind, Some(Kind::ReadWrite));
                    assert_eq!(holder.owner.as_deref(), Some(owner.id()));
                }
            }
        };
        seen(None).await;
        let reading = read(&locks, &owner).acquire().await.unwrap();
        seen(Some(Access::Shared)).await;
        reading.release().await.unwrap();
        seen(None).await;
        let writing = write(&locks, &owner).acquire().await.unwrap();
        seen(Some(Access::Exclusive)).await;
        let reading = read(&locks, &owner).acquire().await.unwrap();
        seen(Some(Access::Exclusive)).await;
        writing.release().await.unwrap();
        seen(Some(Access::Shared)).await;
        reading.release().await.unwrap();
        seen(None).await;
    });
}

/// Redisson: testName.
#[test]
fn readers_share_a_name_with_braces() {
    const READERS: usize = 10;
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let everyone = Arc::new(Barrier::new(READERS));
        let readers = (0..READERS).map(|_| {
            let lock = locks.read_write("{test}:abc:key", &locks.owner()).read();
            let everyone = everyone.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = lock.acquire().await.unwrap();
                    everyone.wait().await; // all read at the same time
                    guard.release().await.unwrap();
                }
            })
        });
        for reader in readers.collect::<Vec<_>>() {
            timeout(TEST_TIMEOUT / 2, reader).await.unwrap().unwrap();
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testWR, testInCluster.
#[test]
fn a_writer_that_stops_reading_still_writes() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let (owner, other) = (locks.owner(), locks.owner());
        let writing = acquire_on_all(&write(&locks, &owner)).await;
        let reading = read(&locks, &owner).acquire().await.unwrap();
        assert!(is_contended(&read(&locks, &other).try_acquire().await));
        reading.release().await.unwrap();
        assert!(is_contended(&read(&locks, &other).try_acquire().await));
        assert_eq!(writing.access(), Access::Exclusive);
        assert!(writing.is_valid());
        writing.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testWriteReadReentrancy. In Redisson, a reader that tries to write is refused like any
/// other.
#[test]
fn a_writer_that_also_reads_becomes_a_reader() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let (owner, other) = (locks.owner(), locks.owner());
        let writing = acquire_on_all(&write(&locks, &owner)).await;
        let reading = read(&locks, &owner).try_acquire().await.unwrap();
        assert!(is_contended(&read(&locks, &other).try_acquire().await));
        writing.release().await.unwrap();
        assert_eq!(reading.access(), Access::Shared);
        assert!(is_upgrade(&write(&locks, &owner).try_acquire().await));
        assert!(is_contended(&write(&locks, &other).try_acquire().await));
        let also = read(&locks, &other).acquire_within(TEST_TIMEOUT / 8).await;
        also.unwrap().release().await.unwrap();
        reading.release().await.unwrap();
        let writing = acquire_on_all(&write(&locks, &owner)).await;
        writing.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testWriteLock.
#[test]
fn readers_come_in_after_the_last_level_that_writes() {
    with_masters(3, async |masters| {
        let (locks, others) = (
            coordinator(patient(), &masters),
            coordinator(patient(), &masters),
        );
        let owner = locks.owner();
        let outer = acquire_on_all(&write(&locks, &owner)).await;
        let inner = write(&locks, &owner).try_acquire().await.unwrap();
        for others in [&locks, &others] {
            let refused = read(others, &others.owner()).try_acquire().await;
            assert!(is_contended(&refused));
        }
        let theirs = waiting(read(&others, &others.owner()));
        until_waiting(&read(&others, &others.owner()), 1).await;
        outer.release().await.unwrap();
        // A writer may read although others wait.
        let reading = read(&locks, &owner).try_acquire().await.unwrap();
        assert!(inner.is_valid() && !theirs.is_finished());
        assert_eq!(inner.access(), Access::Exclusive);
        inner.release().await.unwrap();
        let theirs = served(theirs).await;
        assert!(is_upgrade(&write(&locks, &owner).try_acquire().await));
        assert!(reading.is_valid() && theirs.is_valid());
        theirs.release().await.unwrap();
        reading.release().await.unwrap();
        close_at_once(&others).await;
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testHoldCount, testReentrancy, testLockUnlock.
#[test]
fn depth_is_the_number_of_levels_of_a_reader_or_writer() {
    with_masters(3, async |masters| {
        let (locks, others) = (
            coordinator(patient(), &masters),
            coordinator(patient(), &masters),
        );
        let (owner, other) = (locks.owner(), others.owner());
        for lock in [read(&locks, &owner), write(&locks, &owner)] {
            for _ in 0..2 {
                let guard = acquire_on_all(&lock).await;
                assert_eq!(guard.depth(), 1);
                guard.release().await.unwrap();
            }
            let depth = async |count: u64| {
                until("the depth on the masters", async || {
                    let holders = holders(&read(&others, &other)).await;
                    let depth = holders.iter().map(|holder| holder.depth).sum::<u64>();
                    (depth == count).then_some(())
                })
                .await;
            };
            let outer = acquire_on_all(&lock).await;
            let inner = acquire_on_all(&lock).await;
            depth(2).await;
            outer.release().await.unwrap();
            assert_eq!(inner.depth(), 1);
            depth(1).await;
            // Another name is another lock.
            let another = others.read_write("other", &other).write();
            another
                .try_acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            assert!(is_contended(&write(&others, &other).try_acquire().await));
            inner.release().await.unwrap();
            depth(0).await;
        }
        close_at_once(&others).await;
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}
