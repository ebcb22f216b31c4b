//! The leases of readers and writers, in the tests that Redisson has for them.
//! `redisson_read_write.rs` has the list of all its tests of read-write locks.

use std::time::{Duration, Instant};

use quorlock::{Access, AcquireError, Coordinator, Guard, Lock, LostReason, Renewal};
use tokio::time::sleep;

use crate::{
    common::*,
    redisson_read_write::{read, served, waiting, write},
    reentrant::is_contended,
};

/// A short lease, but longer than a node timeout.
const LEASE: Duration = Duration::from_millis(600);

/// The time after the end of a lease within which a waiter notices it.
const NOTICED: Duration = Duration::from_millis(900);

/// Returns a coordinator whose locks may have short leases.
fn short_leases(masters: &[Server]) -> Coordinator {
    coordinator(patient().node_timeout(millis(300)), masters)
}

/// Acquires `lock` for one lease that is not renewed.
async fn lease(lock: Lock, ttl: Duration) -> Guard {
    acquire_on_all(&lock.ttl(ttl).renewal(Renewal::Off)).await
}

/// Redisson: testReadLockExpiration.
#[test]
fn a_short_lease_of_one_reader_does_not_end_that_of_another() {
    with_masters(3, async |masters| {
        let locks = short_leases(&masters);
        let [one, other, writer] = [(); 3].map(|()| locks.owner());
        for is_released in [true, false] {
            let long = lease(read(&locks, &one), LONG).await;
            let short = lease(read(&locks, &other), LEASE).await;
            let writing = waiting(write(&locks, &writer));
            until_waiting(&read(&locks, &writer), 1).await;
            if is_released {
                short.release().await.unwrap();
            } else {
                assert_eq!(short.lost().await.reason, LostReason::Expired);
            }
            sleep(LEASE).await; // the key has had time to expire
            assert!(long.is_valid() && !writing.is_finished());
            long.release().await.unwrap();
            served(writing).await.release().await.unwrap();
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testReadLockLeaseTimeoutDiffThreadsRRW.
#[test]
fn a_later_reader_does_not_prolong_an_earlier_lease() {
    with_masters(3, async |masters| {
        let locks = short_leases(&masters);
        let [dead, later, writer] = [(); 3].map(|()| locks.owner());
        let dead = lease(read(&locks, &dead), 2 * LEASE).await;
        let start = Instant::now();
        sleep(LEASE).await;
        let later = lease(read(&locks, &later), LONG).await;
        later.release().await.unwrap();
        let lock = write(&locks, &writer);
        let writing = lock.acquire_within(TEST_TIMEOUT / 8).await.unwrap();
        let took = start.elapsed();
        assert!(took < 2 * LEASE + NOTICED, "{took:?}");
        assert!(!dead.is_valid(), "the writer came during the lease");
        assert!(writing.is_valid());
    });
}

/// Redisson: testReadLockLeaseTimeout, with another result.
#[test]
fn the_levels_of_a_reader_have_one_lease() {
    with_masters(3, async |masters| {
        let locks = short_leases(&masters);
        let (owner, writer) = (locks.owner(), locks.owner());
        let outer = lease(read(&locks, &owner), 2 * LEASE).await;
        sleep(LEASE).await;
        let inner = lease(read(&locks, &owner), 2 * LEASE).await;
        let start = Instant::now();
        inner.release().await.unwrap();
        let lock = write(&locks, &writer);
        let refused = lock.acquire_within(LEASE + LEASE / 6).await; // the first lease has ended
        assert!(matches!(refused, Err(AcquireError::Deadline { .. })));
        assert!(outer.is_valid());
        let writing = lock.acquire_within(TEST_TIMEOUT / 8).await.unwrap();
        let took = start.elapsed();
        assert!(took < 2 * LEASE + NOTICED, "{took:?}");
        assert!(!outer.is_valid() && writing.is_valid());
    });
}

/// Redisson: testWriteLockExpiration.
#[test]
fn a_writer_that_reenters_with_a_short_lease_keeps_its_long_one() {
    with_masters(3, async |masters| {
        let locks = short_leases(&masters);
        let (owner, other) = (locks.owner(), locks.owner());
        let outer = lease(write(&locks, &owner), LONG).await;
        let inner = lease(write(&locks, &owner), LEASE).await;
        let refused = write(&locks, &other).acquire_within(2 * LEASE).await;
        assert!(matches!(refused, Err(AcquireError::Deadline { .. })));
        assert!(outer.is_valid() && inner.is_valid());
        for master in &masters {
            assert!(pttl(master, "r") > 500_000);
        }
    });
}

/// Redisson: testReadLockLeaseTimeoutDiffThreadsWRR.
#[test]
fn all_readers_follow_a_writer_whose_lease_ended() {
    with_masters(3, async |masters| {
        let locks = short_leases(&masters);
        let dead = lease(write(&locks, &locks.owner()), 2 * LEASE).await;
        let start = Instant::now();
        let readers = [(); 2].map(|()| waiting(read(&locks, &locks.owner())));
        let mut guards = Vec::new();
        for reader in readers {
            guards.push(served(reader).await);
        }
        let took = start.elapsed();
        assert!(took < 2 * LEASE + NOTICED, "{took:?}");
        assert!(!dead.is_valid(), "a reader came during the lease");
        assert!(guards.iter().all(Guard::is_valid));
    });
}

/// Redisson: testExpireRead.
#[test]
fn readers_do_not_wait_for_a_lease() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let first = lease(read(&locks, &locks.owner()), LONG).await;
        let second = read(&locks, &locks.owner()).try_acquire().await.unwrap();
        second.release().await.unwrap();
        assert!(first.is_valid());
        first.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testExpireWrite. In Redisson, the late unlock throws.
#[test]
fn a_writer_whose_lease_ended_takes_nothing_from_the_next() {
    with_masters(3, async |masters| {
        let (locks, others) = (short_leases(&masters), coordinator(patient(), &masters));
        let late = lease(write(&locks, &locks.owner()), LEASE).await;
        let start = Instant::now();
        let next = served(waiting(write(&others, &others.owner()))).await;
        let took = start.elapsed();
        assert!(took < LEASE + NOTICED, "{took:?}");
        assert!(!late.is_valid(), "the next writer came during the lease");
        assert_eq!(late.lost().await.reason, LostReason::Expired);
        late.release().await.unwrap(); // releasing an expired lock is a success
        locks.close().await;
        next.extend(LONG).await.unwrap();
        let reader = others.owner();
        assert!(is_contended(&read(&others, &reader).try_acquire().await));
        next.release().await.unwrap();
        others.close().await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testReadLockExpirationRenewal.
#[test]
fn many_readers_are_renewed_at_once() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient().node_timeout(millis(300)).ttl(2 * LEASE), &masters);
        let mut guards = Vec::new();
        for _ in 0..50 {
            guards.push(acquire_on_all(&read(&locks, &locks.owner())).await);
        }
        sleep(4 * LEASE).await;
        assert!(guards.iter().all(Guard::is_valid));
        let held = read(&locks, &locks.owner()).inspect().await.unwrap();
        assert_eq!(held.holders.len(), 50);
        for guard in guards {
            guard.release().await.unwrap();
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testReadWriteTTL.
#[test]
fn a_writer_that_becomes_a_reader_is_renewed_all_the_time() {
    with_masters_alone(3, async |masters| {
        let ttl = millis(1_500);
        let locks = coordinator(patient().node_timeout(millis(300)).ttl(ttl), &masters);
        let (owner, other) = (locks.owner(), locks.owner());
        let writing = acquire_on_all(&write(&locks, &owner)).await;
        let reading = acquire_on_all(&read(&locks, &owner)).await;
        let stays = async |access: Access| {
            let start = Instant::now();
            while start.elapsed() < ttl + ttl / 2 {
                let holder = read(&locks, &other).inspect().await.unwrap();
                let holder = holder.holders.into_iter().next().unwrap();
                assert_eq!(holder.access, access);
                assert!(holder.remaining.unwrap() > ttl / 3, "{holder}");
                assert!(reading.remaining() > ttl / 3);
                sleep(ttl / 10).await;
            }
        };
        stays(Access::Exclusive).await;
        writing.release().await.unwrap();
        until("a reader on all masters", async || {
            let seen = read(&locks, &other).inspect().await.unwrap();
            (seen.holders[0].access == Access::Shared).then_some(())
        })
        .await;
        stays(Access::Shared).await;
        reading.release().await.unwrap();
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}
