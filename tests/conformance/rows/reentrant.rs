//! The rows of reentrant locks.

use super::*;

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
