//! Redisson's read-write lock and its `RPermitExpirableSemaphore` under the name of ours. Their
//! formats are not ours, so each side refuses the other, and changes nothing.
//!
//! The tests imitate Redisson's commands. Redisson's read-write lock is a hash with the field
//! `mode`. Its semaphore is a number, which stays when no one holds a permit.

use quorlock::{AcquireError, Coordinator, Lock, Owner};

use crate::{common::*, redisson::RedissonClient};

const READ_LOCK: &str = "
    local mode = redis.call('HGET', KEYS[1], 'mode')
    local is_writer = redis.call('HEXISTS', KEYS[1], ARGV[2] .. ':write') == 1
    if mode == false or mode == 'read' or mode == 'write' and is_writer then
        if mode == false then
            redis.call('HSET', KEYS[1], 'mode', 'read')
        end
        local level = redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
        local lease = '{' .. KEYS[1] .. '}:' .. ARGV[2] .. ':rwlock_timeout:' .. level
        redis.call('SET', lease, 1, 'PX', ARGV[1])
        local left = redis.call('PTTL', KEYS[1])
        redis.call('PEXPIRE', KEYS[1], math.max(left, ARGV[1]))
        return false
    end
    return redis.call('PTTL', KEYS[1])";

/// Gives back a read lock. Returns false if the caller has none.
const READ_UNLOCK: &str = "
    if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
        return false
    end
    redis.call('DEL', KEYS[1], '{' .. KEYS[1] .. '}:' .. ARGV[2] .. ':rwlock_timeout:1')
    redis.call('PUBLISH', KEYS[2], '0')
    return 1";

/// Redisson's `trySetPermits`, with which each use of a semaphore begins.
const SET_PERMITS: &str = "
    local permits = redis.call('GET', KEYS[1])
    if permits == false then
        redis.call('SET', KEYS[1], 2)
        return 1
    end
    return 0";

/// Redisson's `tryAcquire` of one permit, without a lease.
const PERMIT: &str = "
    local permits = redis.call('GET', KEYS[1])
    if permits ~= false and tonumber(permits) >= 1 then
        redis.call('DECRBY', KEYS[1], 1)
        redis.call('ZADD', '{' .. KEYS[1] .. '}:timeout', 922337203685477, ARGV[2])
        return ARGV[2]
    end
    return false";

/// Returns the locks of this crate that several can hold at once, and the writer's.
fn ours(locks: &Coordinator, owner: &Owner) -> [Lock; 3] {
    let read_write = locks.read_write("r", owner);
    [
        read_write.read(),
        read_write.write(),
        locks.semaphore("r", 2),
    ]
}

async fn refuse_another_kind(locks: &Coordinator) {
    for lock in ours(locks, &locks.owner()) {
        for refused in [lock.try_acquire().await, lock.acquire().await] {
            assert!(
                matches!(refused, Err(AcquireError::OtherKind { .. })),
                "{refused:?}"
            );
        }
    }
}

#[test]
fn redissons_read_write_lock_does_not_take_what_ours_hold() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        for lock in ours(&locks, &locks.owner()) {
            let guard = acquire_on_all(&lock).await;
            for client in RedissonClient::on(&masters, "r") {
                let before = client.master.command(&["HGETALL", "r"]);
                for refused in [client.eval(READ_LOCK), client.write_lock()] {
                    let left: u64 = refused.parse().unwrap();
                    assert!(left > 500_000 && left <= 600_000, "{left}");
                }
                assert_eq!(client.eval(READ_UNLOCK), "(nil)");
                assert_eq!(client.master.command(&["HGETALL", "r"]), before);
                assert_eq!(client.master.command(&["DBSIZE"]), "1");
            }
            guard.extend(LONG).await.unwrap();
            guard.release().await.unwrap();
            until_released(&masters, "r").await;
            for client in RedissonClient::on(&masters, "r") {
                assert_eq!(client.eval(READ_LOCK), "(nil)");
                assert_eq!(client.eval(READ_UNLOCK), "1");
            }
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn ours_do_not_take_what_redissons_read_write_lock_holds() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let theirs = RedissonClient::on(&masters, "r");
        for is_read in [true, false] {
            for client in &theirs {
                let locked = match is_read {
                    true => client.eval(READ_LOCK),
                    false => client.write_lock(),
                };
                assert_eq!(locked, "(nil)");
            }
            let on_masters = || {
                let fields = |master: &Server| master.command(&["HGETALL", "r"]);
                masters.iter().map(fields).collect::<Vec<_>>()
            };
            let before = on_masters();
            refuse_another_kind(&locks).await;
            assert!(locks.semaphore("r", 2).is_held().await.unwrap());
            assert_eq!(on_masters(), before);
            for master in &masters {
                assert!(pttl(master, "r") <= 60_000);
            }
            for client in &theirs {
                assert_eq!(client.eval(READ_UNLOCK), "1");
            }
            for lock in ours(&locks, &locks.owner()) {
                lock.try_acquire().await.unwrap().release().await.unwrap();
                until_released(&masters, "r").await;
            }
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// The name of Redisson's semaphore stays taken, because its number of permits has no TTL.
#[test]
fn redissons_semaphore_and_ours_refuse_each_other() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let theirs = RedissonClient::on(&masters, "r");
        for lock in ours(&locks, &locks.owner()) {
            let guard = acquire_on_all(&lock).await;
            for client in &theirs {
                for script in [SET_PERMITS, PERMIT] {
                    let refused = client.eval(script);
                    assert!(refused.contains("WRONGTYPE"), "{refused}");
                }
                assert_eq!(client.master.command(&["DBSIZE"]), "1");
            }
            guard.extend(LONG).await.unwrap();
            guard.release().await.unwrap();
            until_released(&masters, "r").await;
        }
        for client in &theirs {
            assert_eq!(client.eval(SET_PERMITS), "1");
        }
        refuse_another_kind(&locks).await;
        for client in &theirs {
            assert_ne!(client.eval(PERMIT), "(nil)");
        }
        refuse_another_kind(&locks).await;
        for master in &masters {
            assert_eq!(master.command(&["GET", "r"]), "1");
            assert_eq!(master.command(&["DBSIZE"]), "2");
        }
        close_at_once(&locks).await;
    });
}
