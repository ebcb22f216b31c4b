//! The rows. Each row is a series of steps on one lock. After a command and a colon come its answer
//! and the messages that it publishes. After `left` come the keys that are left.

use std::collections::BTreeSet;

use super::{check, check_on, native_subjects, step::Step};
use crate::core::{ballot::Ballot, kind::table::scripts};

#[tokio::test]
async fn a_mutex_is_acquired() {
    check(&[
        "acquire A 40s: granted, left A 40s",
        "acquire A 40s: granted, acquire B 80s: held -, left A 40s",
        // A token belongs to one attempt, so an acquisition fails even if the key holds its own
        // token.
        "acquire A 40s: granted, acquire A 80s: held -, left A 40s",
        "write 40s, acquire A 80s: held -, left another's 40s",
        "write -, acquire A 40s: held -, left another's -",
        "write-hash field=1 40s, acquire A 80s: held -, left field=1 40s",
        "write-hash field=1 -, acquire A 80s: held -, left field=1 -",
        "acquire A 40s: granted, delete, acquire B 80s: granted, left B 80s",
    ])
    .await;
}

#[tokio::test]
async fn a_mutex_is_extended() {
    check(&[
        "acquire A 40s: granted, extend A 80s: granted, left A 80s",
        "acquire A 80s: granted, extend A 40s: granted, left A 80s",
        "acquire A 40s: granted, extend A 40s: granted, left A 40s",
        "write-A -, extend A 40s: granted, left A 40s",
        "extend A 40s: gone, left nothing",
        "acquire A 40s: granted, delete, extend A 80s: gone, left nothing",
        "acquire A 40s: granted, extend B 80s: held 40s, left A 40s",
        "write 40s, extend A 80s: held 40s, left another's 40s",
        "write -, extend A 40s: held -, left another's -",
        "write-hash field=1 40s, extend A 80s: kind, left field=1 40s",
        "write-hash field=1 -, extend A 40s: kind, left field=1 -",
    ])
    .await;
}

#[tokio::test]
async fn a_mutex_is_released() {
    check(&[
        "acquire A 40s: granted, release A: granted, left nothing",
        "acquire A 40s watch: granted, acquire B 40s watch: held 40s, left A 40s",
        "write -, acquire A watch: held -, left another's -",
        "write-A 60s, acquire A 40s watch: granted, left A 60s",
        "write-hash one=1 40s, acquire A watch: kind, left one=1 40s",
        "write 40s, release A watch: held 40s, left another's 40s",
        "acquire A 40s watch: granted, release A watch: granted, release A watch: gone, left nothing",
        "write-A -, release A: granted, left nothing",
        "release A: gone, left nothing",
        "acquire A 40s: granted, release A: granted, release A: gone, left nothing",
        "acquire A 40s: granted, release B: held 40s, left A 40s",
        "write 40s, release A: held 40s, left another's 40s",
        "write -, release A: held -, left another's -",
        "write-hash field=1 40s, release A: kind, left field=1 40s",
        "acquire A 40s: granted, release A: granted, acquire B 80s: granted, release A: held 80s, left B 80s",
    ])
    .await;
}

#[tokio::test]
async fn a_mutex_that_was_won_is_released() {
    let rows = [
        "acquire A 40s: granted, release A won: granted, left nothing",
        "acquire C 40s: granted, release C won: granted, left nothing",
        "write-A -, release A won: granted, left nothing",
        "release A won: gone, left nothing",
        "acquire A 40s: granted, release A won: granted, release A won: gone, left nothing",
        "write-hash field=1 40s, release A won: kind, left field=1 40s",
        "write-hash field=1 -, release A won: kind, left field=1 -",
    ];
    check(&rows).await;
    check_on(&mut native_subjects().await, &rows).await;
    // `DELEX` and `DELIFEQ` do not say that another holds the lock. A release of an attempt that
    // was not won needs to know this.
    let rows = [
        "acquire A 40s: granted, release B won: gone, left A 40s",
        "write 40s, release A won: gone, left another's 40s",
        "write -, release A won: gone, left another's -",
        "acquire A 40s: granted, release A won: granted, acquire B 80s: granted, release A won: gone, left B 80s",
        "acquire A 40s: granted, release B: held 40s, left A 40s",
    ];
    let mut native = native_subjects().await;
    check_on(&mut native, &rows).await;
    for subject in &native {
        // The last row was run once, and once with two copies.
        assert_eq!(subject.store.server_calls("evalsha"), 3);
    }
}

#[tokio::test]
async fn a_reentrant_lock_is_acquired() {
    check(&[
        "reentrant acquire a1: granted, left a=1 reentrant=1 40s",
        "reentrant acquire a1 x3: granted, left a=3 reentrant=1 40s",
        "reentrant acquire a1: granted, delete, reentrant acquire b1: granted, left b=1 reentrant=1 40s",
        // The owner acquires the lock again. The depth is set, and the TTL is never shortened.
        "reentrant acquire a1: granted, reentrant acquire a1 x2 80s: granted, left a=2 reentrant=1 80s",
        "reentrant acquire a1 80s: granted, reentrant acquire a1 x2 40s: granted, left a=2 reentrant=1 80s",
        "write-hash a=1 reentrant=1 mode=quorlock -, reentrant acquire a1 40s: granted, left a=1 reentrant=1 40s",
        // Another owner tries to acquire the lock.
        "reentrant acquire a1 x2: granted, reentrant acquire b1: held a x2 40s, left a=2 reentrant=1 40s",
        "write-hash a=1 reentrant=1 mode=quorlock -, reentrant acquire b1: held a x1 -, left a=1 reentrant=1 -",
        // A later attempt of the same owner takes over the lock. A late command of an earlier
        // attempt does not.
        "reentrant acquire a1 x2: granted, reentrant acquire a2: granted, left a=1 reentrant=2 40s",
        "reentrant acquire a2: granted, reentrant acquire a1 x5 80s: held a x1 40s, left a=1 reentrant=2 40s",
        "reentrant acquire a9: granted, reentrant acquire a10: granted, left a=1 reentrant=10 40s",
        "reentrant acquire a10: granted, reentrant acquire a9: held a x1 40s, left a=1 reentrant=10 40s",
        // Locks of Redisson.
        "write-hash b=2 40s, reentrant acquire a1: held b x2 40s, left b=2 40s",
        "write-hash a=2 40s, reentrant acquire a1: held a x2 40s, left a=2 40s",
        // Locks of other kinds, and keys that are no locks.
        "acquire A 40s: granted, reentrant acquire a1: kind, left A 40s",
        "fair acquire a1: granted, reentrant acquire a1: kind, left a=1 fair=1 40s",
        "fair acquire a1: granted, reentrant acquire b1: kind, left a=1 fair=1 40s",
        "reentrant acquire a1: granted, acquire A 40s: held -, left a=1 reentrant=1 40s",
        "reentrant acquire a1: granted, extend A 80s: kind, left a=1 reentrant=1 40s",
        "reentrant acquire a1: granted, release A: kind, left a=1 reentrant=1 40s",
        "write-hash field=some 40s, reentrant acquire a1: kind, left field=some 40s",
        "write-hash a=1 b=1 40s, reentrant acquire c1: kind, left a=1 b=1 40s",
        "write-hash a=1 odd=1 40s, reentrant acquire b1: kind, left a=1 odd=1 40s",
        "write-hash reentrant=1 40s, reentrant acquire a1: kind, left reentrant=1 modeless 40s",
        "write-hash a=1 b=1 reentrant=1 40s, reentrant acquire c1: kind, left a=1 b=1 reentrant=1 modeless 40s",
        "write-hash a=1 reentrant=1 40s, reentrant acquire b1: kind, left a=1 reentrant=1 modeless 40s",
        "write-hash a=1 reentrant=1 mode=quorlock 40s, reentrant acquire b1: held a x1 40s, left a=1 reentrant=1 40s",
        // The read-write lock of Redisson.
        "write-hash b=1 mode=read 40s, reentrant acquire a1: kind, left b=1 mode=read 40s",
        "write-hash mode=write 40s, reentrant acquire a1: kind, left mode=write 40s",
        "write-hash mode=quorlock 40s, reentrant acquire a1: kind, left mode=quorlock 40s",
        "write-hash a=1 mode=quorlock 40s, reentrant acquire b1: kind, left a=1 mode=quorlock 40s",
        // Locks of this crate that other clients have changed.
        "write-hash a=1 reentrant=1 mode=quorlock b=1 40s, reentrant acquire a1 x2: kind, left a=1 b=1 reentrant=1 40s",
        "write-hash a=1 reentrant=1 mode=write b=1 40s, reentrant acquire a2: kind, left a=1 b=1 mode=write reentrant=1 modeless 40s",
        "write-hash a=1 reentrant=1 odd=1 40s, reentrant acquire a1: kind, left a=1 odd=1 reentrant=1 modeless 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_reentrant_lock_is_extended() {
    check(&[
        "reentrant acquire a1: granted, reentrant extend a1 80s: granted, left a=1 reentrant=1 80s",
        "reentrant acquire a1 80s: granted, reentrant extend a1 40s: granted, left a=1 reentrant=1 80s",
        "reentrant acquire a1: granted, reentrant extend a1 x3 80s: granted, left a=3 reentrant=1 80s",
        "reentrant acquire a1 x3: granted, reentrant extend a1 x2: granted, left a=2 reentrant=1 40s",
        "write-hash a=1 reentrant=1 mode=quorlock -, reentrant extend a1 40s: granted, left a=1 reentrant=1 40s",
        "reentrant extend a1: gone, left nothing",
        "reentrant acquire a1: granted, reentrant extend b1 80s: held a x1 40s, left a=1 reentrant=1 40s",
        "reentrant acquire a2: granted, reentrant extend a1 x3 80s: held a x1 40s, left a=1 reentrant=2 40s",
        "reentrant acquire a1: granted, reentrant extend a2 x3 80s: held a x1 40s, left a=1 reentrant=1 40s",
        "write-hash a=1 40s, reentrant extend a1 80s: held a x1 40s, left a=1 40s",
        "acquire A 40s: granted, reentrant extend a1 80s: kind, left A 40s",
        "fair acquire a1: granted, reentrant extend a1 80s: kind, left a=1 fair=1 40s",
        // Locks that other clients have changed.
        "write-hash a=1 reentrant=1 mode=quorlock b=1 40s, reentrant extend a1 80s: kind, left a=1 b=1 reentrant=1 40s",
        "write-hash a=1 reentrant=1 mode=write b=1 40s, reentrant extend a1 80s: kind, left a=1 b=1 mode=write reentrant=1 modeless 40s",
        "write-hash a=1 reentrant=1 mode=read 40s, reentrant extend a1 80s: kind, left a=1 mode=read reentrant=1 modeless 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_reentrant_lock_is_released() {
    check(&[
        "reentrant acquire a1: granted, reentrant release a1: granted +redisson:0, left nothing",
        "reentrant acquire a1 x3: granted, reentrant release a1: granted +redisson:0, left nothing",
        // A release of one level sets the depth that is left.
        "reentrant acquire a1 x3: granted, reentrant release a1 x2: granted, left a=2 reentrant=1 40s",
        "reentrant acquire a1 x2: granted, reentrant release a1 x1: granted, reentrant release a1: granted +redisson:0, left nothing",
        "reentrant release a1: gone, left nothing",
        "reentrant release a1 x1: gone, left nothing",
        "reentrant acquire a1: granted, reentrant release a1: granted +redisson:0, reentrant release a1: gone, left nothing",
        "reentrant acquire a1: granted, reentrant release b1: held a x1 40s, left a=1 reentrant=1 40s",
        "reentrant acquire a1: granted, reentrant release b1 x1: held a x1 40s, left a=1 reentrant=1 40s",
        // A release also releases earlier attempts. After a later attempt, it does nothing.
        "reentrant acquire a9: granted, reentrant release a10: granted +redisson:0, left nothing",
        "reentrant acquire a10: granted, reentrant release a9: held a x1 40s, left a=1 reentrant=10 40s",
        "reentrant acquire a1: granted, reentrant acquire a2 x2: granted, reentrant release a1: held a x2 40s, left a=2 reentrant=2 40s",
        "reentrant acquire a1: granted, reentrant acquire a2 x2: granted, reentrant release a1 x1: held a x2 40s, left a=2 reentrant=2 40s",
        "write-hash a=1 40s, reentrant release a1: held a x1 40s, left a=1 40s",
        "acquire A 40s: granted, reentrant release a1: kind, left A 40s",
        "fair acquire a1: granted, reentrant release a1: kind, left a=1 fair=1 40s",
        "write-hash a=1 reentrant=1 mode=quorlock 40s, reentrant release a1: granted +redisson:0, left nothing",
        // Fields of other clients stay.
        "write-hash a=1 reentrant=1 mode=quorlock b=1 40s, reentrant release a1: granted, left b=1 40s",
        "write-hash a=1 reentrant=1 mode=write b=1 40s, reentrant release a1: granted, left b=1 mode=write 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_fair_lock_is_acquired() {
    check(&[
        "fair acquire a1: granted, left a=1 fair=1 40s",
        "fair acquire a1 ~20s: granted, left a=1 fair=1 40s",
        "fair acquire a1 ~20s fresh: granted, left a=1 fair=1 40s",
        "fair acquire a1: granted, delete, fair acquire b1: granted, left b=1 fair=1 40s",
        // The owner acquires the lock again, before all waiters.
        "fair acquire a1: granted, fair acquire a1 x2 80s: granted, left a=2 fair=1 80s",
        "fair acquire a1 80s: granted, fair acquire a1 x2 40s: granted, left a=2 fair=1 80s",
        "fair acquire a1: granted, enqueue b@2 20s, fair acquire a1 x2: granted, left a=2 fair=1 40s | b@2 20s | - -",
        // Another owner tries to acquire the lock, with and without waiting.
        "fair acquire a1 x2: granted, fair acquire b1: held a x2 40s, left a=2 fair=1 40s",
        "write-hash a=1 fair=1 mode=quorlock -, fair acquire b1: held a x1 -, left a=1 fair=1 -",
        "fair acquire a1: granted, fair acquire b1 ~20s: held a x1 #1 40s, left a=1 fair=1 40s | b@2 20s | 40s 40s",
        // One owner makes several attempts, as with reentrant locks.
        "fair acquire a1 x2: granted, fair acquire a2: granted, left a=1 fair=2 40s",
        "fair acquire a2: granted, fair acquire a1 x5 80s: held a x1 40s, left a=1 fair=2 40s",
        "fair acquire a2: granted, fair acquire a1 ~20s: held a x1 #1 40s, left a=1 fair=2 40s | a@1 20s | 40s 40s",
        "fair acquire a9: granted, fair acquire a10: granted, left a=1 fair=10 40s",
        // Locks of other kinds, and keys that are no locks. The waiter is not queued.
        "acquire A 40s: granted, fair acquire a1 ~20s: kind, left A 40s",
        "reentrant acquire a1: granted, fair acquire a1 ~20s: kind, left a=1 reentrant=1 40s",
        "reentrant acquire a1: granted, fair acquire b1 ~20s: kind, left a=1 reentrant=1 40s",
        "write-hash a=1 40s, fair acquire a1 ~20s: kind, left a=1 40s",
        "write-hash a=1 40s, fair acquire b1: kind, left a=1 40s",
        "write-hash field=some 40s, fair acquire b1: kind, left field=some 40s",
        "write-hash fair=1 40s, fair acquire a1: kind, left fair=1 modeless 40s",
        "fair acquire a1: granted, acquire A 40s: held -, left a=1 fair=1 40s",
        "fair acquire a1: granted, extend A 80s: kind, left a=1 fair=1 40s",
        "fair acquire a1: granted, release A: kind, left a=1 fair=1 40s",
        "write-hash a=1 fair=1 mode=quorlock 40s, fair acquire a1 x2: granted, left a=2 fair=1 40s",
        "write-hash a=1 fair=1 mode=quorlock b=1 40s, fair acquire a1 x2 ~20s: kind, left a=1 b=1 fair=1 40s",
        "write-hash b=1 mode=read 40s, fair acquire a1 ~20s: kind, left b=1 mode=read 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_fair_lock_has_a_queue() {
    check(&[
        // Waiters are ordered by their tickets, not by their calls.
        "fair acquire a1: granted, fair acquire c1 ~20s: held a x1 #1 40s, fair acquire b1 ~20s: held a x1 #1 40s, fair acquire c1 ~20s: held a x1 #2 40s, left a=1 fair=1 40s | b@2 20s c@3 20s | 40s 40s",
        "fair acquire a1: granted, fair acquire b1 @3 ~20s: held a x1 #1 40s, fair acquire c1 @3 ~20s: held a x1 #2 40s, left a=1 fair=1 40s | b@3 20s c@3 20s | 40s 40s",
        // The last call sets the deadline. The longest waiter timeout sets the TTL of the queue.
        "fair acquire a1: granted, fair acquire b1 ~20s: held a x1 #1 40s, fair acquire b1 ~30s: held a x1 #1 40s, left a=1 fair=1 40s | b@2 30s | 60s 60s",
        "fair acquire a1: granted, fair acquire b1 ~30s: held a x1 #1 40s, fair acquire b1 ~20s: held a x1 #1 40s, left a=1 fair=1 40s | b@2 20s | 60s 60s",
        "enqueue b@2 20s, enqueue c@3 20s, fair acquire c1: queued, left nothing | b@2 20s c@3 20s | - -",
        "enqueue b@2 20s, fair acquire c1 ~20s: queued #2, left nothing | b@2 20s c@3 20s | 40s 40s",
        "enqueue b@2 20s, enqueue c@3 20s, fair acquire b1: granted, left b=1 fair=1 40s | c@3 20s | - -",
        "enqueue b@2 20s, fair acquire b1: granted, left b=1 fair=1 40s",
        // A waiter with the first ticket takes the lock. An attempt that does not wait has no
        // ticket.
        "enqueue b@2 20s, fair acquire a1 ~20s: granted, left a=1 fair=1 40s | b@2 20s | 40s 40s",
        "enqueue b@2 20s, fair acquire a1: queued, left nothing | b@2 20s | - -",
        // Dead waiters are removed only from the head of the queue. If the lock is free, the waiter
        // that becomes the first is woken.
        "enqueue b@2 -5s, fair acquire c1: granted, left c=1 fair=1 40s",
        "enqueue b@2 -, fair acquire c1: granted, left c=1 fair=1 40s",
        "enqueue a@1 -5s, enqueue b@2 -, enqueue b@3 20s, fair acquire c1 @9: queued +turn-b:b@3, left nothing | b@3 20s | - -",
        "enqueue a@1 -5s, enqueue b@2 20s, fair acquire c1 ~20s: queued #2 +turn-b:b@2, left nothing | b@2 20s c@3 20s | 40s 40s",
        "enqueue a@1 -5s, enqueue b@2 20s, fair acquire b1 ~20s: granted, left b=1 fair=1 40s",
        "enqueue b@2 20s, enqueue c@3 -5s, fair acquire a1 @9: queued, left nothing | b@2 20s c@3 -5s | - -",
        "fair acquire c1: granted, enqueue a@1 -5s, enqueue b@2 20s, fair acquire b1 ~20s: held c x1 #1 40s, left c=1 fair=1 40s | b@2 20s | 40s 40s",
        // A waiter that calls in time is not dead. A waiter that calls too late is queued again.
        "enqueue a@1 20s, enqueue b@2 -5s, fair acquire b1 ~20s: queued #2, left nothing | a@1 20s b@2 20s | 40s 40s",
        "enqueue a@1 -5s, enqueue b@2 20s, fair acquire a1 ~20s: granted, left a=1 fair=1 40s | b@2 20s | 40s 40s",
        // The time in a new ticket must be near the master's clock.
        "fair acquire a1: granted, fair acquire b1 ~20s fresh: skewed, left a=1 fair=1 40s",
        "enqueue a@1 20s, fair acquire b1 ~20s fresh: skewed, left nothing | a@1 20s | - -",
        "enqueue a@1 20s, enqueue b@2 20s, fair acquire b1 ~20s fresh: queued #2, left nothing | a@1 20s b@2 20s | 40s 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_fair_lock_is_extended() {
    check(&[
        "fair acquire a1: granted, fair extend a1 80s: granted, left a=1 fair=1 80s",
        "fair acquire a1 80s: granted, fair extend a1 x3 40s: granted, left a=3 fair=1 80s",
        "fair extend a1: gone, left nothing",
        "enqueue a@1 20s, fair extend a1: gone, left nothing | a@1 20s | - -",
        "fair acquire a1: granted, fair extend b1 80s: held a x1 40s, left a=1 fair=1 40s",
        "fair acquire a2: granted, fair extend a1 80s: held a x1 40s, left a=1 fair=2 40s",
        "acquire A 40s: granted, fair extend a1 80s: kind, left A 40s",
        "reentrant acquire a1: granted, fair extend a1 80s: kind, left a=1 reentrant=1 40s",
        "write-hash a=1 fair=1 mode=quorlock b=1 40s, fair extend a1 80s: kind, left a=1 b=1 fair=1 40s",
        "write-hash a=1 fair=1 mode=write b=1 40s, fair extend a1 80s: kind, left a=1 b=1 fair=1 mode=write modeless 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_fair_lock_is_released() {
    check(&[
        "fair acquire a1: granted, fair release a1: granted, left nothing",
        "fair acquire a1 x2: granted, fair release a1 x1: granted, left a=1 fair=1 40s",
        "fair acquire a1 x2: granted, enqueue b@2 20s, fair release a1 x1: granted, fair release a1: granted +turn-b:b@2, left nothing | b@2 20s | - -",
        "fair release a1: gone, left nothing",
        "fair acquire a1: granted, fair release a1: granted, fair release a1: gone, left nothing",
        "fair acquire a1: granted, fair release b1: held a x1 40s, left a=1 fair=1 40s",
        // The next waiter is woken.
        "fair acquire a1: granted, enqueue b@2 20s, enqueue c@3 20s, fair release a1: granted +turn-b:b@2, left nothing | b@2 20s c@3 20s | - -",
        "fair acquire a1: granted, enqueue b@2 -5s, enqueue c@3 20s, fair release a1: granted +turn-c:c@3, left nothing | c@3 20s | - -",
        "fair acquire a1: granted, enqueue b@2 -5s, fair release a1: granted, left nothing",
        "fair acquire a1: granted, enqueue a@1 20s, enqueue b@2 20s, fair release a1: granted +turn-b:b@2, left nothing | b@2 20s | - -",
        // A waiter leaves the queue. If it was first and the lock is free, the next waiter is
        // woken.
        "fair acquire a1: granted, fair acquire b1 ~20s: held a x1 #1 40s, fair release b1: held a x1 40s, left a=1 fair=1 40s",
        "fair acquire a1: granted, enqueue b@2 20s, enqueue c@3 20s, fair release b1: held a x1 40s, left a=1 fair=1 40s | c@3 20s | - -",
        "enqueue b@2 20s, enqueue c@3 20s, fair release b1: gone +turn-c:c@3, left nothing | c@3 20s | - -",
        "enqueue b@2 20s, enqueue c@3 20s, fair release c1: gone, left nothing | b@2 20s | - -",
        "enqueue b@2 20s, fair release b1: gone, left nothing",
        "enqueue b@2 20s, fair release a1: gone, left nothing | b@2 20s | - -",
        // A release also releases earlier attempts. After a later attempt, it does nothing.
        "fair acquire a9: granted, fair release a10: granted, left nothing",
        "fair acquire a10: granted, fair release a9: held a x1 40s, left a=1 fair=10 40s",
        "fair acquire a1: granted, fair acquire a2: granted, fair release a1: held a x1 40s, left a=1 fair=2 40s",
        "fair acquire a1: granted, fair acquire a2 x2: granted, fair release a1 x1: held a x2 40s, left a=2 fair=2 40s",
        "acquire A 40s: granted, fair release a1: kind, left A 40s",
        "reentrant acquire a1: granted, fair release a1: kind, left a=1 reentrant=1 40s",
        "acquire A 40s: granted, enqueue a@1 20s, fair release a1: kind, left A 40s",
        "write-hash a=1 fair=1 mode=quorlock b=1 40s, fair release a1: granted, left b=1 40s",
        "write-hash a=1 fair=1 mode=write b=1 40s, fair release a1: granted, left b=1 mode=write 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_fair_lock_is_yielded() {
    check(&[
        "fair acquire a1: granted, fair yield a1 ~20s: granted, left nothing | a@1 20s | 40s 40s",
        "fair acquire b1: granted, enqueue c@3 20s, fair yield b1 ~20s: granted, left nothing | b@2 20s c@3 20s | 40s 40s",
        // An earlier waiter is woken.
        "fair acquire b1: granted, enqueue a@1 20s, fair yield b1 ~20s: granted +turn-a:a@1, left nothing | a@1 20s b@2 20s | 40s 40s",
        "fair acquire c1: granted, enqueue a@1 -5s, enqueue b@2 20s, fair yield c1 ~20s: granted +turn-b:b@2, left nothing | b@2 20s c@3 20s | 40s 40s",
        "fair acquire a1: granted, fair yield a1: granted, left nothing",
        "fair yield a1 ~20s: gone, left nothing",
        "fair acquire a1: granted, fair yield b1 ~20s: gone, left a=1 fair=1 40s",
        "fair acquire a9: granted, fair yield a10 ~20s: granted, left nothing | a@1 20s | 40s 40s",
        // The yield comes too late, after a release or a later attempt.
        "fair acquire a10: granted, fair yield a9 ~20s: gone, left a=1 fair=10 40s",
        "fair acquire a1: granted, fair release a1: granted, fair yield a1 ~20s: gone, left nothing",
        "fair acquire a1: granted, fair acquire a2: granted, fair yield a1 ~20s: gone, left a=1 fair=2 40s",
        "acquire A 40s: granted, fair yield a1 ~20s: kind, left A 40s",
        "reentrant acquire a1: granted, fair yield a1 ~20s: gone, left a=1 reentrant=1 40s",
        "write-hash a=1 fair=1 mode=quorlock b=1 40s, fair yield a1 ~20s: granted, left b=1 40s | a@1 20s | 40s 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_lock_is_put_back() {
    check(&[
        "heal A 40s: granted, left A 40s",
        "acquire B 40s: granted, heal A 80s: held -, left B 40s",
        "reentrant heal a1 x2: granted, left a=2 reentrant=1 40s",
        "reentrant acquire a1: granted, reentrant heal a1 x2 80s: granted, left a=2 reentrant=1 80s",
        "reentrant acquire a2: granted, reentrant heal a1 x2 80s: held a x1 40s, left a=1 reentrant=2 40s",
        "reentrant acquire b1: granted, reentrant heal a1: held b x1 40s, left b=1 reentrant=1 40s",
        "fair heal a1 x2: granted, left a=2 fair=1 40s",
        // A heal ignores waiters.
        "enqueue b@2 20s, fair heal a1 x2: granted, left a=2 fair=1 40s | b@2 20s | - -",
        "enqueue b@2 -5s, fair heal a1 x2: granted, left a=2 fair=1 40s | b@2 -5s | - -",
        "fair acquire b1: granted, fair heal a1: held b x1 40s, left b=1 fair=1 40s",
        "fair acquire a2: granted, fair heal a1 x2: held a x1 40s, left a=1 fair=2 40s",
        "fair acquire a1: granted, reentrant heal a1: kind, left a=1 fair=1 40s",
        "reentrant acquire a1: granted, fair heal a1: kind, left a=1 reentrant=1 40s",
        "acquire A 40s: granted, fair heal a1: kind, left A 40s",
        "acquire A 40s: granted, reentrant heal a1: kind, left A 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_lock_is_broken_if_the_holder_is_the_one_that_was_seen() {
    check(&[
        "break ?: gone, left nothing",
        "acquire A 40s: granted, break A: granted, break A: gone, left nothing",
        "write-A -, break A: granted, left nothing",
        "acquire A 40s: granted, break ?: held 40s, left A 40s",
        "write -, break ?: held -, left another's -",
        "reentrant acquire a1: granted, reentrant break b: held 40s, left a=1 reentrant=1 40s",
        "reentrant acquire a1 x2: granted, reentrant break a: granted +redisson:0, left nothing",
        "write-hash a=1 40s, reentrant break a: granted +redisson:0, left nothing",
        "reentrant acquire a1: granted, fair break a: held 40s, left a=1 reentrant=1 40s",
        "fair acquire a1: granted, fair break a: granted, left nothing",
        "fair acquire a1: granted, fair break b: held 40s, left a=1 fair=1 40s",
        "write-hash field=some 40s, break A: kind, left field=some 40s",
        "write-hash a=1 fair=1 mode=quorlock b=1 40s, fair break a: kind, left a=1 b=1 fair=1 40s",
        "fair acquire a1: granted, enqueue b@2 20s, fair break a: granted +turn-b:b@2, left nothing | b@2 20s | - -",
        "fair acquire a1: granted, spoil-queue, fair break a: granted, left nothing spoilt-queue 60s",
    ])
    .await;
}

#[tokio::test]
async fn a_mutex_may_have_a_client_name() {
    check(&[
        "acquire C 40s: granted, inspect: mutex digest@web-3/812 x1 40s, left C 40s",
        "acquire C 40s: granted, extend C 80s: granted, extend A 80s: held 80s, release A: held 80s, release C: granted, left nothing",
        "acquire C 40s: granted, acquire C 80s: held -, break ?: held 40s, break C: granted, break C: gone, left nothing",
        "acquire C watch 40s: granted, acquire C watch 40s: granted, acquire A watch 40s: held 40s, left C 40s",
        "acquire C 40s ^500: granted, extend C 80s: granted, release C ^500: granted, left nothing ^500 2592000s",
        "write-text 0123456789012345678901234567890123456789@nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn -, inspect: mutex digest@nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn x1 -, left another's -",
        // Values of other libraries.
        "write-text 0123456789012345678901234567890123456789 -, inspect: mutex digest x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@ -, inspect: mutex digest x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn -, inspect: mutex digest x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@café -, inspect: mutex digest x1 -, left another's -",
        "write-text 0123456789012345678901234567890123456789@a\nb -, inspect: mutex digest x1 -, left another's -",
        "write-text 012345678901234567890123456789012345678@a -, inspect: mutex digest x1 -, left another's -",
        "write-text 01234567890123456789012345678901234567890@a -, inspect: mutex digest x1 -, left another's -",
        "write-text 012345678901234567890123456789012345678A@a -, inspect: mutex digest x1 -, left another's -",
        "write-text secret@example.com -, inspect: mutex digest x1 -, left another's -",
    ])
    .await;
}

#[tokio::test]
async fn an_owner_may_have_a_client_name() {
    check(&[
        "reentrant acquire c1 x2: granted, inspect: reentrant c x2 40s, reentrant extend c1 x3: granted, reentrant release a1: held c x3 40s, reentrant break c: granted +redisson:0, left nothing",
        "reentrant acquire c1: granted, reentrant acquire c2 x2: granted, reentrant release c2: granted +redisson:0, left nothing",
        "fair acquire c1: granted, fair acquire a1 ~20s @2: held c x1 #1 40s, fair release c1: granted +turn-a:a@2, left nothing | a@2 20s | 40s 40s",
        "fair acquire a1: granted, fair acquire c1 ~20s @2: held a x1 #1 40s, inspect: fair a x1 40s c@2, fair release a1: granted +turn-c:c@2, fair acquire c2 ~20s @2: granted, left c=1 fair=2 40s",
        "fair acquire a1: granted, enqueue c@2 20s, fair break a: granted +turn-c:c@2, left nothing | c@2 20s | - -",
    ])
    .await;
}

#[tokio::test]
async fn a_lock_is_inspected() {
    check(&[
        "inspect: free, left nothing",
        "acquire A 40s: granted, inspect: mutex digest x1 40s, left A 40s",
        "write -, inspect: mutex digest x1 -, left another's -",
        "reentrant acquire a1 x2: granted, inspect: reentrant a x2 40s, left a=2 reentrant=1 40s",
        "fair acquire a1: granted, enqueue c@3 20s, enqueue b@2 -5s, inspect: fair a x1 40s b@2 c@3, left a=1 fair=1 40s | b@2 -5s c@3 20s | - -",
        "enqueue b@2 20s, inspect: free b@2, left nothing | b@2 20s | - -",
        // Locks of Redisson, and keys that are no locks.
        "write-hash a=2 40s, inspect: reentrant a x2 40s, left a=2 40s",
        "write-hash field=some 40s, inspect: other 40s, left field=some 40s",
        "write-hash fair=1 40s, inspect: other 40s, left fair=1 modeless 40s",
        "write-hash a=1 b=1 40s, inspect: other 40s, left a=1 b=1 40s",
        "write-hash a=1 odd=1 -, inspect: other -, left a=1 odd=1 -",
        "write-hash a=1 b=1 fair=1 40s, inspect: other 40s, left a=1 b=1 fair=1 modeless 40s",
        "write-hash b=1 mode=read 40s, inspect: other 40s, left b=1 mode=read 40s",
        "write-hash a=1 fair=1 mode=quorlock 40s, inspect: fair a x1 40s, left a=1 fair=1 40s",
        "write-hash a=1 fair=1 40s, inspect: other 40s, left a=1 fair=1 modeless 40s",
        "write-hash a=1 fair=1 mode=quorlock b=1 40s, inspect: other 40s, left a=1 b=1 fair=1 40s",
    ])
    .await;
}

/// A counter holds the candidate that won, and lives for 30 days.
#[tokio::test]
async fn a_fenced_mutex_is_acquired() {
    check(&[
        "acquire A ^500: granted, left A 40s ^500 2592000s",
        "count ^400, acquire A ^500: granted, left A 40s ^500 2592000s",
        "count ^400, acquire A ^400+1: granted, left A 40s ^400+1 2592000s",
        // Another attempt has won with this candidate or a larger one.
        "count ^500, acquire A ^500: stale ^500, left nothing ^500 -",
        "count ^600, acquire A ^500: stale ^600, left nothing ^600 -",
        "count ^5000, acquire A ^500: stale ^5000, left nothing ^5000 -",
        // Candidates are compared as numbers, not as texts.
        "count-nine, acquire A ^500: granted, left A 40s ^500 2592000s",
        // Candidates that are too far from the master's clock are refused. If the counter itself is
        // too far ahead, the next number after the counter is accepted.
        "acquire A ^-9000: skewed, left nothing",
        "acquire A ^9000: skewed, left nothing",
        "count ^400, acquire A ^9000: skewed, left nothing ^400 -",
        "count ^8000, acquire A ^8000+1: granted, left A 40s ^8000+1 2592000s",
        "count ^8000, acquire A ^8000+2: skewed, left nothing ^8000 -",
        "count ^-9000, acquire A ^-9000: stale ^-9000, left nothing ^-9000 -",
        "count ^-9000, acquire A ^-9000+1: skewed, left nothing ^-9000 -",
        // The same attempt acquires the lock again, with the same, a larger or a smaller candidate.
        "acquire A ^500: granted, acquire A ^500 80s: granted, left A 80s ^500 2592000s",
        "acquire A 80s ^500: granted, acquire A ^500: granted, left A 80s ^500 2592000s",
        "acquire A ^500: granted, acquire A ^600 80s: granted, left A 80s ^600 2592000s",
        "acquire A ^600: granted, acquire A ^500 80s: stale ^600, left A 40s ^600 2592000s",
        "acquire A ^500: granted, acquire A ^9000 80s: skewed, left A 40s ^500 2592000s",
        "acquire A ^500: granted, delete, acquire A ^500: stale ^500, left nothing ^500 2592000s",
        // If another attempt holds the lock, every candidate is refused.
        "acquire A ^500: granted, acquire B ^600: held 40s, left A 40s ^500 2592000s",
        "acquire A ^500: granted, acquire B ^9000: held 40s, left A 40s ^500 2592000s",
        "write -, acquire A ^500: held -, left another's -",
        "acquire A 40s: granted, acquire B ^500: held 40s, left A 40s",
        "acquire A ^500: granted, acquire B 40s: held -, left A 40s ^500 2592000s",
        "write-hash field=1 40s, acquire A ^500: kind, left field=1 40s",
        // A lock that is not fenced ignores the counter.
        "count ^500, acquire A 40s: granted, left A 40s ^500 -",
        "count ^500, acquire A 40s: granted, extend A 80s ^600: granted, release A: granted, left nothing ^500 -",
    ])
    .await;
}

#[tokio::test]
async fn a_fenced_reentrant_lock_is_acquired() {
    check(&[
        "reentrant acquire a1 ^500: granted, left a=1 reentrant=1 40s ^500 2592000s",
        "count ^500, reentrant acquire a1 ^500: stale ^500, left nothing ^500 -",
        "count ^600, reentrant acquire a1 ^500: stale ^600, left nothing ^600 -",
        "reentrant acquire a1 ^-9000: skewed, left nothing",
        "reentrant acquire a1 ^9000: skewed, left nothing",
        "count ^8000, reentrant acquire a1 ^8000+1: granted, left a=1 reentrant=1 40s ^8000+1 2592000s",
        "reentrant acquire a1 ^500: granted, reentrant acquire a1 ^500 x2 80s: granted, left a=2 reentrant=1 80s ^500 2592000s",
        "reentrant acquire a1 ^500: granted, reentrant acquire a1 ^600 80s: granted, left a=1 reentrant=1 80s ^600 2592000s",
        "reentrant acquire a1 ^600: granted, reentrant acquire a1 ^500 x2 80s: stale ^600, left a=1 reentrant=1 40s ^600 2592000s",
        "reentrant acquire a1 ^500: granted, reentrant acquire b1 ^600: held a x1 40s, left a=1 reentrant=1 40s ^500 2592000s",
        // The next attempt of the same owner needs a larger candidate.
        "reentrant acquire a1 ^500: granted, reentrant acquire a2 ^500: stale ^500, left a=1 reentrant=1 40s ^500 2592000s",
        "reentrant acquire a1 ^500: granted, reentrant acquire a2 ^500+1: granted, left a=1 reentrant=2 40s ^500+1 2592000s",
        "reentrant acquire a2 ^500: granted, reentrant acquire a1 ^600: held a x1 40s, left a=1 reentrant=2 40s ^500 2592000s",
        "acquire A ^500: granted, reentrant acquire a1 ^600: kind, left A 40s ^500 2592000s",
        "reentrant acquire a1 x2 ^500: granted, reentrant extend a1 x3 80s ^500: granted, left a=3 reentrant=1 80s ^500 2592000s",
        // One of two levels is released.
        "reentrant acquire a1 x2 ^500: granted, reentrant release a1 x1 ^500: granted, left a=1 reentrant=1 40s ^500 2592000s",
    ])
    .await;
}

#[tokio::test]
async fn a_fenced_fair_lock_is_acquired() {
    check(&[
        "fair acquire a1 ^500: granted, left a=1 fair=1 40s ^500 2592000s",
        "fair acquire a1 ^500 ~20s: granted, left a=1 fair=1 40s ^500 2592000s",
        "count ^500, fair acquire a1 ^500: stale ^500, left nothing ^500 -",
        "fair acquire a1 ^-9000: skewed, left nothing",
        "fair acquire a1 ^9000: skewed, left nothing",
        "count ^8000, fair acquire a1 ^8000+1: granted, left a=1 fair=1 40s ^8000+1 2592000s",
        "fair acquire a1 ^500: granted, fair acquire a1 ^500 x2 80s: granted, left a=2 fair=1 80s ^500 2592000s",
        "fair acquire a1 ^500: granted, fair acquire a1 ^600 80s: granted, left a=1 fair=1 80s ^600 2592000s",
        "fair acquire a1 ^600: granted, fair acquire a1 ^500 x2 80s: stale ^600, left a=1 fair=1 40s ^600 2592000s",
        "fair acquire a1 ^500: granted, fair acquire a2 ^500: stale ^500, left a=1 fair=1 40s ^500 2592000s",
        "fair acquire a1 ^500: granted, fair acquire a2 ^600: granted, left a=1 fair=2 40s ^600 2592000s",
        "fair acquire a1 ^500: granted, fair acquire b1 ^600: held a x1 40s, left a=1 fair=1 40s ^500 2592000s",
        // The candidate of a waiter does not change the counter before its turn.
        "fair acquire a1 ^500: granted, fair acquire b1 ^600 ~20s: held a x1 #1 40s, left a=1 fair=1 40s | b@2 20s | 40s 40s ^500 2592000s",
        "enqueue b@2 20s, fair acquire c1 ^500: queued, left nothing | b@2 20s | - -",
        "enqueue b@2 20s, fair acquire b1 ^500: granted, left b=1 fair=1 40s ^500 2592000s",
        "enqueue b@2 20s, fair acquire a1 ^500 ~20s: granted, left a=1 fair=1 40s | b@2 20s | 40s 40s ^500 2592000s",
        // The next waiter keeps its position if its candidate is too small.
        "enqueue b@2 20s, count ^600, fair acquire b1 ^500: stale ^600, left nothing | b@2 20s | - - ^600 -",
        "enqueue b@2 20s, count ^600, fair acquire a1 ^500 ~20s: stale ^600, left nothing | a@1 20s b@2 20s | 40s 40s ^600 -",
        "enqueue b@2 -5s, count ^600, fair acquire c1 ^500: stale ^600, left nothing ^600 -",
        "fair acquire a1 ^500: granted, fair extend a1 x2 80s ^500: granted, left a=2 fair=1 80s ^500 2592000s",
        "fair acquire a1 ^500: granted, fair yield a1 ^500 ~20s: granted, left nothing | a@1 20s | 40s 40s ^500 2592000s",
    ])
    .await;
}

#[tokio::test]
async fn a_released_attempt_cannot_win_any_more() {
    check(&[
        "acquire A ^500: granted, release A ^500: granted, left nothing ^500 2592000s",
        "acquire A ^500: granted, release A ^500: granted, acquire A ^500: stale ^500, left nothing ^500 2592000s",
        // The release arrives first. The acquisition has failed, or arrives later.
        "release A ^500: gone, left nothing ^500 3s",
        "release A ^500: gone, acquire A ^500: stale ^500, left nothing ^500 3s",
        "release A ^500: gone, acquire B ^600: granted, acquire A ^500: held 40s, left B 40s ^600 2592000s",
        "acquire B ^500: granted, release A ^600: held 40s, left B 40s ^600 2592000s",
        "acquire B ^500: granted, release A ^600: held 40s, acquire B ^500: stale ^600, left B 40s ^600 2592000s",
        // A release gives a counter that was not there a short life, and does not prolong others.
        "release A ^500: gone, release B ^600: gone, left nothing ^600 3s",
        "count-nine-40s, release A ^500: gone, left nothing ^500 40s",
        // The counter never goes down.
        "count ^600, release A ^500: gone, left nothing ^600 -",
        "count ^500, release A ^500: gone, left nothing ^500 -",
        "count-nine, release A ^500: gone, left nothing ^500 2592000s",
        "release A ^9000: gone, left nothing",
        "write -, release A ^500: held -, left another's - ^500 3s",
        "reentrant acquire a1 ^500: granted, reentrant release a1 ^500: granted +redisson:0, left nothing ^500 2592000s",
        "reentrant release a1 ^500: gone, reentrant acquire a1 ^500: stale ^500, left nothing ^500 3s",
        "reentrant acquire b1 ^500: granted, reentrant release a1 ^600: held b x1 40s, left b=1 reentrant=1 40s ^600 2592000s",
        "acquire A ^500: granted, reentrant release a1 ^600: kind, left A 40s ^500 2592000s",
        "fair acquire a1 ^500: granted, fair release a1 ^500: granted, left nothing ^500 2592000s",
        "fair release a1 ^500: gone, fair acquire a1 ^500: stale ^500, left nothing ^500 3s",
        "fair acquire a1 ^500: granted, enqueue b@2 20s, fair release a1 ^500: granted +turn-b:b@2, left nothing | b@2 20s | - - ^500 2592000s",
        "fair acquire b1 ^500: granted, fair release a1 ^600: held b x1 40s, left b=1 fair=1 40s ^600 2592000s",
    ])
    .await;
}

/// A key is put back only if no one else has held the lock since it was lost.
#[tokio::test]
async fn a_fenced_lock_is_put_back() {
    check(&[
        "heal A ^500: granted, left A 40s ^500 2592000s",
        "count ^500, heal A ^500: granted, left A 40s ^500 -",
        "count ^500, heal A ^500+1: granted, left A 40s ^500+1 2592000s",
        "count ^600, heal A ^500: stale ^600, left nothing ^600 -",
        "count ^9000, heal A ^9000: granted, left A 40s ^9000 -",
        // The candidate may be far from the clock, because the lock may have been won long ago.
        "heal A ^-9000: granted, left A 40s ^-9000 2592000s",
        "heal A ^9000: granted, left A 40s ^9000 2592000s",
        "acquire A ^500: granted, heal A ^500 80s: granted, left A 80s ^500 2592000s",
        "acquire B ^500: granted, heal A ^600: held 40s, left B 40s ^500 2592000s",
        "acquire A ^500: granted, release A ^500: granted, acquire B ^600: granted, delete, heal A ^500: stale ^600, left nothing ^600 2592000s",
        "reentrant heal a1 x2 ^-9000: granted, left a=2 reentrant=1 40s ^-9000 2592000s",
        "count ^500, reentrant heal a1 x2 ^500: granted, left a=2 reentrant=1 40s ^500 -",
        "count ^600, reentrant heal a1 x2 ^500: stale ^600, left nothing ^600 -",
        "fair heal a1 x2 ^-9000: granted, left a=2 fair=1 40s ^-9000 2592000s",
        "count ^500, fair heal a1 x2 ^500: granted, left a=2 fair=1 40s ^500 -",
        "count ^600, fair heal a1 x2 ^500: stale ^600, left nothing ^600 -",
        "enqueue b@2 20s, fair heal a1 x2 ^500: granted, left a=2 fair=1 40s | b@2 20s | - - ^500 2592000s",
    ])
    .await;
}

/// If the counter's key holds something else, a fenced lock cannot be acquired. A holder can
/// release the lock, and the counter's key stays as it is.
#[tokio::test]
async fn a_key_that_is_no_counter_is_reported() {
    const NO_COUNTER: &str = "failed: answered ERR the key .. is not a counter: delete it";
    let rows = [
        "count-hash, acquire A ^500: NO, left nothing hash -",
        "acquire A 40s: granted, count-hash, release A ^500: granted, left nothing hash -",
        "count-hash, reentrant acquire a1 ^500: NO, left nothing hash -",
        "reentrant acquire a1: granted, count-hash, reentrant release a1 ^500: granted +redisson:0, left nothing hash -",
        "count-hash, fair acquire a1 ^500: NO, left nothing hash -",
        "fair acquire a1: granted, count-hash, fair release a1 ^500: granted, left nothing hash -",
        "count-text, acquire A ^9000: NO, left nothing text -",
        "count-text, acquire A ^500: NO, left nothing text -",
        "count-text, heal A ^500: NO, left nothing text -",
        "count-text, release A ^500: gone, left nothing text -",
        "acquire A ^500: granted, count-text, release A ^500: granted, left nothing text -",
        // The text is as long as a candidate and sorts before it.
        "count-letters, acquire A ^500: NO, left nothing 0123456789abcdef -",
        "count-hexadecimal, acquire A ^500: NO, left nothing 0x10 -",
        "count-hexadecimal, release A ^500: gone, left nothing 0x10 -",
        // The key has a TTL and keeps it.
        "count-text-60s, acquire A ^500: NO, left nothing text 60s",
        "count-text-60s, acquire A ^9000: NO, left nothing text 60s",
        "count-text-60s, release A ^500: gone, left nothing text 60s",
        // A lock of another kind is reported first.
        "reentrant acquire a1: granted, count-hash, acquire A ^500: kind, left a=1 reentrant=1 40s hash -",
    ];
    let rows = rows.map(|row| row.replace("NO", NO_COUNTER));
    check(&rows.each_ref().map(String::as_str)).await;
}

/// A free lock whose queue is no sorted set is not reported as a lock of another kind.
#[tokio::test]
async fn a_key_that_is_no_queue_is_reported() {
    const NO_SET: &str = "failed: answered ERR the key .. is not a sorted set: delete it";
    let rows = [
        "spoil-queue, fair acquire a1: NO, left nothing spoilt-queue 60s",
        "spoil-queue, fair acquire a1 ~20s: NO, left nothing spoilt-queue 60s",
        "spoil-queue, write 40s, fair acquire a1 ~20s: kind, left another's 40s spoilt-queue 60s",
        "fair acquire a1: granted, spoil-queue, fair acquire b1 ~20s: NO, left a=1 fair=1 40s spoilt-queue 60s",
        // The waiter is put into neither of the two keys.
        "fair acquire a1: granted, spoil-deadlines, fair acquire b1 ~20s: NO, left a=1 fair=1 40s spoilt-deadlines 60s",
        "enqueue b@2 -, spoil-deadlines, fair acquire c1 ~20s: NO, left nothing | b@2 - | - 60s spoilt-deadlines 60s",
        // The lock can still be released.
        "fair acquire a1: granted, spoil-queue, fair release a1: granted, left nothing spoilt-queue 60s",
        "fair acquire a1: granted, spoil-deadlines, fair release a1: granted, left nothing spoilt-deadlines 60s",
        "fair acquire a1: granted, enqueue b@2 -, spoil-deadlines, fair release a1: granted, left nothing | b@2 - | - 60s spoilt-deadlines 60s",
        "fair acquire a1 ^500: granted, spoil-queue, fair release a1 ^500: granted, left nothing spoilt-queue 60s ^500 2592000s",
        "spoil-queue, fair release a1: gone, left nothing spoilt-queue 60s",
        "fair acquire a1: granted, spoil-queue, fair release b1: held a x1 40s, left a=1 fair=1 40s spoilt-queue 60s",
        "acquire A 40s: granted, spoil-queue, fair release a1: kind, left A 40s spoilt-queue 60s",
        "fair acquire a1: granted, spoil-queue, fair yield a1 ~20s: granted, left nothing spoilt-queue 60s",
        "fair acquire a1: granted, spoil-deadlines, fair yield a1 ~20s: granted, left nothing spoilt-deadlines 60s",
        "fair acquire a1: granted, spoil-queue, inspect: fair a x1 40s, left a=1 fair=1 40s spoilt-queue 60s",
    ];
    let rows = rows.map(|row| row.replace("NO", NO_SET));
    check(&rows.each_ref().map(String::as_str)).await;
}

/// A script without a row could differ between servers and memory masters.
#[test]
fn each_script_has_a_row() {
    let mut run = BTreeSet::new();
    let texts = include_str!("rows.rs").split('"');
    for row in texts.filter(|text| text.find(", left ") > Some(0)) {
        let steps = row.split(", ").map(|step| step.split(": ").next());
        for step in steps.flatten().filter(|step| !step.starts_with("left ")) {
            if let Step::Command(command) = Step::parse(step) {
                let ballot = command.ballot.map(|_| Ballot {
                    counter: "counter".into(),
                    candidate: 1,
                });
                let command = command.command("key", ballot);
                run.extend(command.words().script.map(|script| script.name));
            }
        }
    }
    assert_eq!(run, scripts().map(|script| script.name).collect());
}
