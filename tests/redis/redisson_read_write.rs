//! Read-write locks on real servers. These tests demand what Redisson's own tests demand of
//! `RReadWriteLock`, at commit 66863978 (4.7.1-SNAPSHOT), as far as it applies to a majority of
//! masters.
//!
//! The list has each test of `RedissonReadWriteLockTest`, with the tests that cover it or the
//! reason why there are none. Tests of leases are in `redisson_read_write_leases.rs`:
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
//! - testWriteRead: `all_waiting_readers_read_at_once_after_the_writer`
//! - testWriteReadReentrancy: `a_writer_that_also_reads_becomes_a_reader`
//! - testWriteLock: `readers_come_in_after_the_last_level_that_writes`
//! - testMultiRead: `a_writer_waits_for_every_reader`. A forced unlock is under testForceUnlock
//! - testForceUnlock: `a_break_removes_the_readers_or_the_writer_that_was_seen`
//! - testReadWriteTTL: `a_writer_that_becomes_a_reader_is_renewed_all_the_time`
//! - testExpireRead: `readers_do_not_wait_for_a_lease`
//! - testExpireWrite: `a_writer_whose_lease_ended_takes_nothing_from_the_next`
//! - testAutoExpire: `a_process_that_is_gone_holds_the_lock_no_longer_than_its_ttl`
//! - testHoldCount, testReentrancy, testLockUnlock:
//!   `depth_is_the_number_of_levels_of_a_reader_or_writer`
//! - testUnlockFail: only a guard can release a lock, and it can release only its own lock
//! - testConcurrency_SingleInstance, testConcurrency_MultiInstance,
//!   testConcurrencyLoop_MultiInstance: `readers_never_see_half_of_what_a_writer_does`
//! - testMultiInstanceReadLockZombieCleanup: `a_dead_reader_does_not_stay_while_others_read`
//! - testMultiInstanceZombieReadLockPerformance: Redisson has turned it off

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use quorlock::{Access, AcquireError, ConfigError, Coordinator, Guard, Holder, Kind, Lock, Owner};
use tokio::{
    sync::Barrier,
    task::{JoinHandle, yield_now},
    time::timeout,
};

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
    matches!(result, Err(AcquireError::Config(ConfigError::Upgrade)))
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

/// Redisson: testWriteRead.
#[test]
fn all_waiting_readers_read_at_once_after_the_writer() {
    const READERS: usize = 20;
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let writing = acquire_on_all(&write(&locks, &locks.owner())).await;
        let everyone = Arc::new(Barrier::new(READERS));
        let readers = (0..READERS).map(|_| {
            let lock = read(&locks, &locks.owner());
            let everyone = everyone.clone();
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                everyone.wait().await;
                assert!(guard.is_valid());
                guard.release().await.unwrap();
            })
        });
        let readers: Vec<_> = readers.collect();
        until_waiting(&read(&locks, &locks.owner()), READERS).await;
        assert!(readers.iter().all(|reader| !reader.is_finished()));
        writing.release().await.unwrap();
        for reader in readers {
            timeout(TEST_TIMEOUT / 8, reader).await.unwrap().unwrap();
        }
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

/// Redisson: testMultiRead.
#[test]
fn a_writer_waits_for_every_reader() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let [one, other, writer] = [(); 3].map(|()| locks.owner());
        let first = acquire_on_all(&read(&locks, &one)).await;
        assert!(is_upgrade(&write(&locks, &one).try_acquire().await));
        let second = acquire_on_all(&read(&locks, &other)).await;
        let writing = waiting(write(&locks, &writer));
        until_waiting(&read(&locks, &writer), 1).await;
        first.release().await.unwrap();
        assert!(is_contended(&write(&locks, &one).try_acquire().await));
        assert!(second.is_valid() && !writing.is_finished());
        second.release().await.unwrap();
        let writing = served(writing).await;
        assert_eq!(writing.access(), Access::Exclusive);
        let by = holders(&read(&locks, &one)).await.remove(0).owner;
        assert_eq!(by.as_deref(), Some(writer.id()));
        writing.release().await.unwrap();
        drop(acquire_on_all(&write(&locks, &one)).await);
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testForceUnlock. In Redisson, a forced unlock of readers leaves the writer, and one of
/// the writer leaves readers. Here, a break leaves all holders that were not seen.
#[test]
fn a_break_removes_the_readers_or_the_writer_that_was_seen() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let [one, other, writer] = [(); 3].map(|()| locks.owner());
        let seen_none = write(&locks, &writer).inspect().await.unwrap();
        let first = acquire_on_all(&read(&locks, &one)).await;
        locks.break_held(&seen_none).await;
        let seen_first = read(&locks, &one).inspect().await.unwrap();
        let second = acquire_on_all(&read(&locks, &other)).await;
        locks.break_held(&seen_first).await;
        assert!(first.extend(LONG).await.is_err());
        second.extend(LONG).await.unwrap();
        second.release().await.unwrap();

        let writing = acquire_on_all(&write(&locks, &writer)).await;
        locks.break_held(&seen_first).await;
        writing.extend(LONG).await.unwrap();
        let seen = read(&locks, &one).inspect().await.unwrap();
        locks.break_held(&seen).await;
        assert!(writing.extend(LONG).await.is_err());
        assert!(!read(&locks, &one).is_held().await.unwrap());
        drop((first, writing));
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

/// Redisson: testConcurrency*. A writer changes two counters, one after the other. If two writers
/// held the lock at once, an update would be lost. A reader between the changes would see two
/// different numbers.
#[test]
fn readers_never_see_half_of_what_a_writer_does() {
    const CLIENTS: usize = 4;
    const OWNERS: usize = 4;
    const LOOPS: usize = 6;
    with_masters(3, async |masters| {
        let counters: Arc<[AtomicU64; 2]> = Arc::default();
        let mut tasks = Vec::new();
        for number in 0..CLIENTS * OWNERS {
            let locks = coordinator(patient(), &masters);
            let counters = counters.clone();
            tasks.push(tokio::spawn(async move {
                let lock = locks.read_write("r", &locks.owner());
                for round in 0..LOOPS {
                    if (number + round) % 2 == 0 {
                        let guard = lock.write().acquire().await.unwrap();
                        increment(&counters).await;
                        assert!(guard.is_valid());
                    } else {
                        let guard = lock.read().acquire().await.unwrap();
                        let first = counters[0].load(Ordering::SeqCst);
                        yield_now().await;
                        assert_eq!(counters[1].load(Ordering::SeqCst), first);
                        assert!(guard.is_valid());
                    }
                }
                locks.close().await;
            }));
        }
        for task in tasks {
            timeout(TEST_TIMEOUT / 2, task).await.unwrap().unwrap();
        }
        let writes = (CLIENTS * OWNERS * LOOPS / 2) as u64;
        assert_eq!(counters[1].load(Ordering::SeqCst), writes);
        assert_no_keys(&masters);
    });
}

async fn increment(counters: &[AtomicU64; 2]) {
    for counter in counters {
        let before = counter.load(Ordering::SeqCst);
        yield_now().await;
        counter.store(before + 1, Ordering::SeqCst);
    }
}
