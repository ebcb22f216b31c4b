//! The rows of fair locks.

use super::*;

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
        // Even then, the waiter that becomes the first is woken.
        "enqueue a@1 -5s, enqueue b@2 20s, fair acquire c1 ~20s fresh: skewed +turn-b:b@2, left nothing | b@2 20s | - -",
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
        // A waiter leaves the queue. If it was first, the next waiter is woken.
        "fair acquire a1: granted, fair acquire b1 ~20s: held a x1 #1 40s, fair release b1: held a x1 40s, left a=1 fair=1 40s",
        "fair acquire a1: granted, enqueue b@2 20s, enqueue c@3 20s, fair release b1: held a x1 40s +turn-c:c@3, left a=1 fair=1 40s | c@3 20s | - -",
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
