//! Locks of several names on real servers. These tests demand what Redisson's own tests demand of
//! `RedissonMultiLock`, at commit 66863978 (4.7.1-SNAPSHOT), as far as it applies to a majority of
//! masters.
//!
//! The list has each test of `RedissonMultiLockTest`, with the tests here that cover it:
//!
//! - testLockUnlock: `all_names_are_held_and_released_together`
//! - testWaitAndLeaseTimeouts: `one_of_many_attempts_gets_all_names`
//! - testMultiThreads: `a_waiter_follows_the_holder_of_all_names`
//! - test: `a_refused_attempt_keeps_no_name`. In Redisson, each name may be on another server, and
//!   here, all are on the masters of one coordinator
//!
//! `RedissonRedLock`, which extends `RedissonMultiLock`, has its list in `reentrant.rs`.
//! `RedissonFasterMultiLock` locks several values of one name, which no lock here does.

use quorlock::{AcquireError, Coordinator, Guard, Lock, Renewal};

use crate::{
    common::*,
    redisson_read_write::{served, waiting},
    reentrant::is_contended,
};

const NAMES: [&str; 3] = ["lock1", "lock2", "lock3"];

fn all(locks: &Coordinator) -> Lock {
    locks.mutex_all(NAMES)
}

/// Redisson: testLockUnlock.
#[test]
fn all_names_are_held_and_released_together() {
    with_masters(3, async |masters| {
        let (locks, others) = (
            coordinator(patient(), &masters),
            coordinator(patient(), &masters),
        );
        for _ in 0..2 {
            let guard = acquire_on_all(&all(&locks)).await;
            assert!(guard.names().eq(NAMES) && guard.is_valid());
            for name in NAMES {
                let single = others.mutex(name);
                assert!(single.is_held().await.unwrap());
                assert!(is_contended(&single.try_acquire().await));
            }
            guard.release().await.unwrap();
            for name in NAMES {
                assert!(!others.mutex(name).is_held().await.unwrap());
                until_released(&masters, name).await;
            }
        }
        close_at_once(&others).await;
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: testWaitAndLeaseTimeouts. Redisson's attempts do not wait. Here, attempts that do not
/// wait may each get a part of the masters, so that none wins.
#[test]
fn one_of_many_attempts_gets_all_names() {
    const ATTEMPTS: usize = 10;
    with_masters(3, async |masters| {
        let clients = [(); ATTEMPTS].map(|()| coordinator(patient(), &masters));
        let attempts = clients.iter().map(|locks| {
            let lock = all(locks).ttl(LONG).renewal(Renewal::Off);
            tokio::spawn(async move { lock.acquire_within(millis(1_000)).await })
        });
        let mut guards = Vec::new();
        for attempt in attempts.collect::<Vec<_>>() {
            match attempt.await.unwrap() {
                Ok(guard) => guards.push(guard),
                Err(AcquireError::Deadline { .. }) => {}
                Err(refused) => panic!("{refused}"),
            }
        }
        assert_eq!(guards.len(), 1);
        assert!(guards.iter().all(Guard::is_valid));
        drop(guards);
        for locks in &clients {
            close_at_once(locks).await;
        }
        assert_no_keys(&masters);
    });
}

/// Redisson: testMultiThreads.
#[test]
fn a_waiter_follows_the_holder_of_all_names() {
    with_masters(3, async |masters| {
        let (locks, others) = (
            coordinator(patient(), &masters),
            coordinator(patient(), &masters),
        );
        let guard = acquire_on_all(&all(&locks)).await;
        let waiting = waiting(all(&others));
        until_watched(&masters).await;
        assert!(guard.is_valid() && !waiting.is_finished());
        guard.release().await.unwrap();
        let next = served(waiting).await;
        assert!(next.names().eq(NAMES) && next.is_valid());
        next.release().await.unwrap();
        close_at_once(&others).await;
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// Redisson: test.
#[test]
fn a_refused_attempt_keeps_no_name() {
    with_masters(3, async |masters| {
        let (locks, others) = (
            coordinator(patient(), &masters),
            coordinator(patient(), &masters),
        );
        let guard = acquire_on_all(&all(&locks)).await;
        for _ in 0..2 {
            assert!(is_contended(&all(&others).try_acquire().await));
        }
        guard.extend(LONG).await.unwrap();
        guard.release().await.unwrap();
        for held in NAMES {
            let single = acquire_on_all(&locks.mutex(held)).await;
            for _ in 0..2 {
                assert!(is_contended(&all(&others).try_acquire().await));
            }
            for name in NAMES.into_iter().filter(|name| *name != held) {
                let free = locks.mutex(name).acquire_within(TEST_TIMEOUT / 8).await;
                free.unwrap().release().await.unwrap();
                until_released(&masters, name).await;
            }
            single.release().await.unwrap();
            until_released(&masters, held).await;
        }
        close_at_once(&others).await;
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}
