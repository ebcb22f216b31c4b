//! The rows of read-write locks.

use super::*;

#[tokio::test]
async fn a_read_write_lock_is_acquired() {
    check(&[
        "read_write acquire a1: granted, left writer=1x1:40s:a 40s",
        "read_write acquire a1 ~20s: granted, left writer=1x1:40s:a 40s",
        "read_write acquire a1 ~20s fresh: granted, left writer=1x1:40s:a 40s",
        "read_write acquire a1 read: granted, left reader:a=1x1:40s 40s",
        "read_write acquire a1 read ~20s fresh: granted, left reader:a=1x1:40s 40s",
        "read_write acquire a1: granted, delete, read_write acquire b1: granted, left writer=1x1:40s:b 40s",
        // Readers share the lock. The key lives as long as the longest lease.
        "read_write acquire a1 read: granted, read_write acquire b1 read x2 80s: granted, left reader:a=1x1:40s reader:b=1x2:80s 80s",
        "read_write acquire a1 read 80s: granted, read_write acquire b1 read ~20s: granted, left reader:a=1x1:80s reader:b=1x1:40s 80s",
        // A writer excludes everyone, and a reader excludes writers.
        "read_write acquire a1 x2: granted, read_write acquire b1: held a x2 40s, left writer=1x2:40s:a 40s",
        "read_write acquire a1 x2: granted, read_write acquire b1 read: held a x2 40s, left writer=1x2:40s:a 40s",
        "read_write acquire a1 read: granted, read_write acquire b1: held a x1 40s, left reader:a=1x1:40s 40s",
        "read_write acquire b1 read x2 80s: granted, read_write acquire a1 read: granted, read_write acquire c1: held a x1 b x1 80s, left reader:a=1x1:40s reader:b=1x2:80s 80s",
        "write-hash reader:a=1x1:40s reader:b=1x1:40s reader:c=1x1:40s reader:d=1x1:40s reader:e=1x1:40s reader:f=1x1:80s read_write=3 mode=quorlock 80s, read_write acquire g1: held a x1 b x1 c x1 d x1 e x1 80s, left reader:a=1x1:40s reader:b=1x1:40s reader:c=1x1:40s reader:d=1x1:40s reader:e=1x1:40s reader:f=1x1:80s 80s",
        // The owner acquires the lock again, before all waiters. A lease is never shortened.
        "read_write acquire a1: granted, read_write acquire a1 x2 80s: granted, left writer=1x2:80s:a 80s",
        "read_write acquire a1 80s: granted, read_write acquire a1 x2 ~20s: granted, left writer=1x2:80s:a 80s",
        "read_write acquire a1 read 80s: granted, read_write acquire a1 read x2: granted, left reader:a=1x2:80s 80s",
        "read_write acquire a1: granted, enqueue-writers b@2 20s, read_write acquire a1 x2: granted, left writer=1x2:40s:a 40s | writers b@2 20s | - -",
        "read_write acquire a1 read: granted, enqueue-writers b@2 20s, read_write acquire a1 read x2: granted, left reader:a=1x2:40s 40s | writers b@2 20s | - -",
    ])
    .await;
}

#[tokio::test]
async fn the_attempts_of_an_owner_at_a_read_write_lock() {
    check(&[
        // A later attempt takes the place of an earlier one, whatever both do.
        "read_write acquire a1 x2: granted, read_write acquire a2: granted, left writer=2x1:40s:a 40s",
        "read_write acquire a1 read x2: granted, read_write acquire a2 read: granted, left reader:a=2x1:40s 40s",
        "read_write acquire a1 read: granted, read_write acquire a2: granted, left writer=2x1:40s:a 40s",
        "read_write acquire a1: granted, read_write acquire a2 read: granted, left reader:a=2x1:40s 40s",
        "read_write acquire a9: granted, read_write acquire a10: granted, left writer=10x1:40s:a 40s",
        "read_write acquire a1 read: granted, read_write acquire b1 read: granted, read_write acquire a2: held b x1 40s, left reader:b=1x1:40s 40s",
        // It does not pass the waiters. Those whose turn has come are called.
        "read_write acquire b1: granted, enqueue-writers a@1 20s, read_write acquire b2: queued +turn-a:a@1, left nothing | writers a@1 20s | - -",
        "read_write acquire b1: granted, enqueue-writers a@1 20s, enqueue-readers c@3 20s, read_write acquire b2 ~20s: queued #2 +turn-a:a@1, left nothing | writers a@1 20s b@2 20s | readers c@3 20s | 40s - 40s",
        "read_write acquire a1: granted, enqueue-readers b@2 20s, enqueue-readers c@3 20s, read_write acquire a2 read: granted +turn-b:b@2 +turn-c:c@3, left reader:a=2x1:40s 40s | readers b@2 20s c@3 20s | - -",
        // A late command of an earlier attempt changes nothing.
        "read_write acquire a2: granted, read_write acquire a1 x5 80s: held a x1 40s, left writer=2x1:40s:a 40s",
        "read_write acquire a2 read: granted, read_write acquire a1 read x5 80s: held a x1 40s, left reader:a=2x1:40s 40s",
        "read_write acquire a2 read: granted, read_write acquire a1: held a x1 40s, left reader:a=2x1:40s 40s",
        "read_write acquire a2: granted, read_write acquire a1 read: held a x1 40s, left writer=2x1:40s:a 40s",
        "read_write acquire a2: granted, read_write acquire a1 ~20s: held a x1 #1 40s, left writer=2x1:40s:a 40s | writers a@1 20s | 40s 40s",
        "read_write acquire a10: granted, read_write heal a9: held a x1 40s, left writer=10x1:40s:a 40s",
        // An attempt that reads never writes again, but one that writes may read.
        "read_write acquire a1 read: granted, read_write acquire a1 80s: held a x1 40s, left reader:a=1x1:40s 40s",
        "read_write acquire a1 read: granted, read_write heal a1 80s: held a x1 40s, left reader:a=1x1:40s 40s",
        "read_write acquire a1 read: granted, read_write extend a1 80s: gone, left reader:a=1x1:40s 40s",
        "read_write acquire a1 80s: granted, read_write acquire a1 read x2: granted, left reader:a=1x2:80s 80s",
    ])
    .await;
}

#[tokio::test]
async fn a_read_write_lock_has_two_queues() {
    check(&[
        // Waiters are ordered by their tickets, over both queues. A reader counts the writers only.
        "read_write acquire a1: granted, read_write acquire c1 ~20s: held a x1 #1 40s, read_write acquire b1 ~20s: held a x1 #1 40s, read_write acquire c1 ~20s: held a x1 #2 40s, left writer=1x1:40s:a 40s | writers b@2 20s c@3 20s | 40s 40s",
        "read_write acquire a1: granted, read_write acquire b1 read ~20s: held a x1 #1 40s, read_write acquire c1 ~20s: held a x1 #2 40s, left writer=1x1:40s:a 40s | writers c@3 20s | readers b@2 20s | 40s 40s 40s",
        "read_write acquire a1: granted, read_write acquire b1 read ~20s: held a x1 #1 40s, read_write acquire c1 read ~20s: held a x1 #1 40s, left writer=1x1:40s:a 40s | readers b@2 20s c@3 20s | 40s 40s",
        "read_write acquire a1: granted, read_write acquire b1 ~20s: held a x1 #1 40s, read_write acquire c1 read ~20s: held a x1 #2 40s, left writer=1x1:40s:a 40s | writers b@2 20s | readers c@3 20s | 40s 40s 40s",
        // A waiting writer holds back later readers, and no earlier ones.
        "read_write acquire a1 read: granted, read_write acquire b1 ~20s: held a x1 #1 40s, read_write acquire c1 read ~20s: queued #2, left reader:a=1x1:40s 40s | writers b@2 20s | readers c@3 20s | 40s 40s 40s",
        "read_write acquire b1 read: granted, enqueue-writers c@3 20s, read_write acquire a1 read ~20s: granted, left reader:a=1x1:40s reader:b=1x1:40s 40s | writers c@3 20s | - 40s",
        "enqueue-writers b@2 20s, read_write acquire c1 read: queued, left nothing | writers b@2 20s | - -",
        "enqueue-writers b@2 20s, read_write acquire c1 read ~20s: queued #2, left nothing | writers b@2 20s | readers c@3 20s | - 40s 40s",
        "enqueue-writers b@2 20s, read_write acquire a1 read: queued, left nothing | writers b@2 20s | - -",
        "enqueue-writers b@2 20s, read_write acquire a1 read ~20s: granted, left reader:a=1x1:40s 40s | writers b@2 20s | - 40s",
        // Waiting readers do not hold back a reader. They hold back later writers.
        "enqueue-readers b@2 20s, read_write acquire c1 read: granted, left reader:c=1x1:40s 40s | readers b@2 20s | - -",
        "enqueue-readers b@2 20s, read_write acquire c1 read ~20s: granted, left reader:c=1x1:40s 40s | readers b@2 20s | - -",
        "enqueue-readers b@2 20s, read_write acquire c1: queued, left nothing | readers b@2 20s | - -",
        "enqueue-readers b@2 20s, read_write acquire c1 ~20s: queued #2, left nothing | writers c@3 20s | readers b@2 20s | 40s - 40s",
        "enqueue-readers b@2 20s, read_write acquire a1 ~20s: granted, left writer=1x1:40s:a 40s | readers b@2 20s | - 40s",
        // A waiter whose turn has come takes the lock, and leaves its queue.
        "enqueue-writers a@1 20s, enqueue-readers b@2 20s, read_write acquire a1 ~20s: granted, left writer=1x1:40s:a 40s | readers b@2 20s | - 40s",
        "enqueue-readers a@1 20s, enqueue-writers b@2 20s, read_write acquire a1 read ~20s: granted, left reader:a=1x1:40s 40s | writers b@2 20s | - 40s",
        // The last call sets the deadline. The longest waiter timeout sets the TTL of the queue.
        "read_write acquire a1: granted, read_write acquire b1 ~30s: held a x1 #1 40s, read_write acquire b1 ~20s: held a x1 #1 40s, left writer=1x1:40s:a 40s | writers b@2 20s | 60s 60s",
    ])
    .await;
}

#[tokio::test]
async fn dead_waiters_for_a_read_write_lock_are_passed_over() {
    check(&[
        "enqueue-writers b@2 -5s, read_write acquire c1 read ~20s: granted, left reader:c=1x1:40s 40s",
        "enqueue-writers b@2 -, read_write acquire c1: granted, left writer=1x1:40s:c 40s",
        "enqueue-readers b@2 -5s, read_write acquire c1: granted, left writer=1x1:40s:c 40s",
        // Those that come next are called.
        "enqueue-writers a@1 -5s, enqueue-readers b@2 20s, enqueue-readers c@3 20s, read_write acquire c1 read ~20s: granted +turn-b:b@2, left reader:c=1x1:40s 40s | readers b@2 20s | - -",
        "enqueue-writers a@1 -5s, enqueue-writers b@2 20s, read_write acquire c1 read @9: queued +turn-b:b@2, left nothing | writers b@2 20s | - -",
        "enqueue-writers a@1 -5s, enqueue-readers b@2 20s, enqueue-writers c@3 20s, read_write acquire c1 @9: queued +turn-b:b@2, left nothing | writers c@3 20s | readers b@2 20s | - - -",
        "enqueue-readers a@1 -5s, enqueue-writers b@2 20s, read_write acquire c1 @9: queued +turn-b:b@2, left nothing | writers b@2 20s | - -",
        "read_write acquire c1 read: granted, enqueue-writers a@1 -5s, enqueue-writers b@2 20s, read_write acquire d1 read: queued, left reader:c=1x1:40s 40s | writers b@2 20s | - -",
        // Readers behind a dead reader were not held back by it.
        "enqueue-readers a@1 -5s, enqueue-readers b@2 20s, read_write acquire c1 ~20s: queued #2, left nothing | writers c@3 20s | readers b@2 20s | 40s - 40s",
        // Only waiters at the head are removed.
        "enqueue-writers b@2 20s, enqueue-writers c@3 -5s, read_write acquire d1: queued, left nothing | writers b@2 20s c@3 -5s | - -",
        // The time in a new ticket must be near the master's clock.
        "read_write acquire a1: granted, read_write acquire b1 ~20s fresh: skewed, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, read_write acquire b1 read ~20s fresh: skewed, left writer=1x1:40s:a 40s",
        "enqueue-writers a@1 -5s, enqueue-readers b@2 20s, enqueue-writers b@3 20s, read_write acquire c1 ~20s fresh: skewed +turn-b:b@2, left nothing | writers b@3 20s | readers b@2 20s | - - -",
        "enqueue-writers a@1 20s, enqueue-readers b@2 20s, read_write acquire b1 read ~20s fresh: queued #2, left nothing | writers a@1 20s | readers b@2 20s | - 40s 40s",
    ])
    .await;
}

/// A lease in the hash ends without an event. An entry whose lease has ended counts as gone.
#[tokio::test]
async fn an_entry_of_a_read_write_lock_ends() {
    check(&[
        "write-hash reader:a=1x1:ended read_write=3 mode=quorlock 40s, read_write acquire b1: granted, left writer=1x1:40s:b 40s",
        "write-hash reader:a=1x1:ended reader:b=1x1:40s read_write=3 mode=quorlock 40s, read_write acquire c1: held b x1 40s, left reader:b=1x1:40s 40s",
        "write-hash writer=1x1:ended:a read_write=3 mode=quorlock 40s, read_write acquire b1: granted, left writer=1x1:40s:b 40s",
        "write-hash writer=1x1:ended:a read_write=3 mode=quorlock 40s, read_write acquire b1 read: granted, left reader:b=1x1:40s 40s",
        // Readers leave the entries of dead readers until there are many.
        "write-hash reader:a=1x1:ended read_write=3 mode=quorlock 40s, read_write acquire b1 read: granted, left reader:a=1x1:ended reader:b=1x1:40s 40s",
        // An extension does not bring the lease back. Others may have held the lock since.
        "write-hash writer=1x1:ended:a read_write=3 mode=quorlock 40s, read_write extend a1: gone, left writer=1x1:ended:a 40s",
        "write-hash writer=1x1:ended:a reader:b=1x1:40s read_write=3 mode=quorlock 40s, read_write extend a1: held b x1 40s, left reader:b=1x1:40s writer=1x1:ended:a 40s",
        "write-hash reader:a=1x1:ended read_write=3 mode=quorlock 40s, read_write extend a1 read: gone, left reader:a=1x1:ended 40s",
        // Nor does an acquisition pass the waiters.
        "write-hash reader:a=1x1:ended read_write=3 mode=quorlock 40s, enqueue-writers b@2 20s, read_write acquire a1 read: queued +turn-b:b@2, left nothing | writers b@2 20s | - -",
        "write-hash writer=1x1:ended:a read_write=3 mode=quorlock 40s, enqueue-readers b@2 20s, read_write acquire a1: queued +turn-b:b@2, left nothing | readers b@2 20s | - -",
        "write-hash reader:a=1x1:ended read_write=3 mode=quorlock 40s, inspect: free, left reader:a=1x1:ended 40s",
        "write-hash reader:a=1x1:ended read_write=3 mode=quorlock 40s, read_write break a: gone, left reader:a=1x1:ended 40s",
        "write-hash reader:a=1x1:ended read_write=3 mode=quorlock 40s, read_write release a1 read: granted, left nothing",
        "write-hash reader:a=1x1:ended reader:b=1x1:40s read_write=3 mode=quorlock 40s, read_write release b1 read: granted, left reader:a=1x1:ended 40s",
        "write-hash writer=1x1:ended:a read_write=3 mode=quorlock 40s, enqueue-writers c@3 20s, read_write release b1 read: gone, left writer=1x1:ended:a 40s | writers c@3 20s | - -",
        "write-hash reader:a=1x1:ended read_write=3 mode=quorlock 40s, read_write heal a1 read: granted, left reader:a=1x1:40s 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_read_write_lock_is_put_back() {
    check(&[
        "read_write heal a1 x2: granted, left writer=1x2:40s:a 40s",
        "read_write heal a1 read x2: granted, left reader:a=1x2:40s 40s",
        "read_write acquire a1 80s: granted, read_write heal a1 x2: granted, left writer=1x2:80s:a 80s",
        "read_write acquire a1 read: granted, read_write heal b1 read: granted, left reader:a=1x1:40s reader:b=1x1:40s 40s",
        "read_write acquire a1 read: granted, read_write heal b1: held a x1 40s, left reader:a=1x1:40s 40s",
        "read_write acquire a1: granted, read_write heal b1 read: held a x1 40s, left writer=1x1:40s:a 40s",
        "read_write acquire a2 read: granted, read_write heal a1 read: held a x1 40s, left reader:a=2x1:40s 40s",
        // A heal ignores waiters, except that the holder no longer waits.
        "enqueue-writers b@2 20s, enqueue-readers c@3 20s, read_write heal a1: granted, left writer=1x1:40s:a 40s | writers b@2 20s | readers c@3 20s | - - -",
        "enqueue-writers b@2 20s, read_write heal a1 read: granted, left reader:a=1x1:40s 40s | writers b@2 20s | - -",
        "enqueue-writers a@1 20s, enqueue-writers b@2 20s, read_write heal a1: granted, left writer=1x1:40s:a 40s | writers b@2 20s | - -",
        "enqueue-readers a@1 20s, read_write heal a1 read: granted, left reader:a=1x1:40s 40s",
        // A writer that became a reader has queued as a writer.
        "enqueue-writers a@1 20s, read_write heal a1 read: granted, left reader:a=1x1:40s 40s",
        "enqueue-writers a@1 20s, enqueue-readers b@2 20s, enqueue-writers c@3 20s, read_write heal a1 read: granted +turn-b:b@2, left reader:a=1x1:40s 40s | writers c@3 20s | readers b@2 20s | - - -",
        "read_write acquire a1 80s: granted, enqueue-readers b@2 20s, read_write heal a1 read: granted +turn-b:b@2, left reader:a=1x1:80s 80s | readers b@2 20s | - -",
        "acquire A 40s: granted, read_write heal a1: kind, left A 40s",
        "fair acquire a1: granted, read_write heal a1 read: kind, left a=1 fair=1 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_read_write_lock_is_extended() {
    check(&[
        "read_write acquire a1: granted, read_write extend a1 x2 80s: granted, left writer=1x2:80s:a 80s",
        "read_write acquire a1 80s: granted, read_write extend a1 x3: granted, left writer=1x3:80s:a 80s",
        "read_write acquire a1 read: granted, read_write extend a1 read x2 80s: granted, left reader:a=1x2:80s 80s",
        "read_write acquire a1 read: granted, read_write acquire b1 read 80s: granted, read_write extend a1 read 60s: granted, left reader:a=1x1:60s reader:b=1x1:80s 80s",
        "read_write extend a1: gone, left nothing",
        "read_write extend a1 read: gone, left nothing",
        "enqueue-writers a@1 20s, read_write extend a1: gone, left nothing | writers a@1 20s | - -",
        "read_write acquire a1: granted, read_write extend b1 80s: held a x1 40s, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, read_write extend b1 read 80s: held a x1 40s, left writer=1x1:40s:a 40s",
        "read_write acquire a1 read: granted, read_write extend b1 80s: held a x1 40s, left reader:a=1x1:40s 40s",
        "read_write acquire a1 read: granted, read_write extend b1 read 80s: gone, left reader:a=1x1:40s 40s",
        "read_write acquire a2: granted, read_write extend a1 80s: held a x1 40s, left writer=2x1:40s:a 40s",
        "read_write acquire a2 read: granted, read_write extend a1 read 80s: held a x1 40s, left reader:a=2x1:40s 40s",
        "read_write acquire a1: granted, read_write extend a2 80s: gone, left writer=1x1:40s:a 40s",
        // A key that lost its TTL gets one again.
        "write-hash writer=1x1:40s:a read_write=3 mode=quorlock -, read_write extend a1 80s: granted, left writer=1x1:80s:a 80s",
    ])
    .await;
}

#[tokio::test]
async fn a_writer_becomes_a_reader() {
    check(&[
        "read_write acquire a1: granted, read_write extend a1 read x2 80s: granted, left reader:a=1x2:80s 80s",
        "read_write acquire a1 80s: granted, read_write extend a1 read: granted, left reader:a=1x1:80s 80s",
        "read_write acquire a1: granted, read_write extend a1 read: granted, read_write acquire b1 read: granted, left reader:a=1x1:40s reader:b=1x1:40s 40s",
        // Readers before the first writer are called.
        "read_write acquire a1: granted, enqueue-readers b@2 20s, enqueue-writers c@3 20s, enqueue-readers c@4 20s, read_write extend a1 read: granted +turn-b:b@2, left reader:a=1x1:40s 40s | writers c@3 20s | readers b@2 20s c@4 20s | - - -",
        "read_write acquire a1: granted, enqueue-writers b@2 20s, enqueue-readers c@3 20s, read_write extend a1 read: granted, left reader:a=1x1:40s 40s | writers b@2 20s | readers c@3 20s | - - -",
        // So it is if the level that excluded others is gone.
        "read_write acquire a1 x2: granted, enqueue-readers b@2 20s, read_write release a1 x1 read: granted +turn-b:b@2, left reader:a=1x1:40s 40s | readers b@2 20s | - -",
        "read_write acquire a1 x3: granted, read_write release a1 x2: granted, left writer=1x2:40s:a 40s",
        // The way back is closed, also to commands that come late.
        "read_write acquire a1: granted, read_write extend a1 read: granted, read_write extend a1 80s: gone, left reader:a=1x1:40s 40s",
        "read_write acquire a1: granted, read_write extend a1 read: granted, read_write acquire b1 read: granted, read_write extend a1 80s: held b x1 40s, left reader:a=1x1:40s reader:b=1x1:40s 40s",
        "read_write acquire a1: granted, read_write extend a1 read: granted, read_write acquire a1 80s: held a x1 40s, left reader:a=1x1:40s 40s",
        "read_write acquire a1 x2: granted, read_write release a1 x1 read: granted, read_write release a1 x1: gone, left reader:a=1x1:40s 40s",
        "read_write acquire a2: granted, read_write extend a1 read 80s: held a x1 40s, left writer=2x1:40s:a 40s",
        // The ticket is still in the queue of writers on a master that did not grant the lock.
        "enqueue-writers a@1 20s, enqueue-readers b@2 20s, read_write release a1 read: gone +turn-b:b@2, left nothing | readers b@2 20s | - -",
    ])
    .await;
}

#[tokio::test]
async fn a_read_write_lock_is_released() {
    check(&[
        "read_write acquire a1: granted, read_write release a1: granted, left nothing",
        "read_write acquire a1 read: granted, read_write release a1 read: granted, left nothing",
        "read_write acquire a1 read: granted, read_write acquire b1 read: granted, read_write release a1 read: granted, left reader:b=1x1:40s 40s",
        // The masters may know another access than the owner has by now.
        "read_write acquire a1: granted, read_write release a1 read: granted, left nothing",
        "read_write acquire a1 read: granted, read_write release a1: granted, left nothing",
        "read_write release a1: gone, left nothing",
        "read_write acquire a1 x2: granted, read_write release a1: granted, read_write release a1: gone, left nothing",
        "read_write acquire a1: granted, read_write release b1: held a x1 40s, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, read_write release b1 read: held a x1 40s, left writer=1x1:40s:a 40s",
        "read_write acquire a1 read: granted, read_write release b1: held a x1 40s, left reader:a=1x1:40s 40s",
        "read_write acquire a1 read: granted, read_write release b1 read: gone, left reader:a=1x1:40s 40s",
        // A release also releases earlier attempts. After a later attempt, it does nothing.
        "read_write acquire a9: granted, read_write release a10: granted, left nothing",
        "read_write acquire a9 read: granted, read_write release a10: granted, left nothing",
        "read_write acquire a10: granted, read_write release a9: held a x1 40s, left writer=10x1:40s:a 40s",
        "read_write acquire a2 read: granted, read_write release a1 read: gone, left reader:a=2x1:40s 40s",
        "read_write acquire a2 x2: granted, read_write release a1 x1: held a x2 40s, left writer=2x2:40s:a 40s",
        // The lock's key is not the caller's.
        "acquire A 40s: granted, read_write release a1: kind, left A 40s",
        "reentrant acquire a1: granted, read_write release a1 read: kind, left a=1 reentrant=1 40s",
        "acquire A 40s: granted, enqueue-writers a@1 20s, read_write release a1: kind, left A 40s",
        "write-hash b=1 mode=read 40s, enqueue-readers a@1 20s, read_write release a1 read: kind, left b=1 mode=read 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_release_of_a_read_write_lock_calls_those_whose_turn_has_come() {
    check(&[
        // A writer leaves: all readers before the first writer, or that writer.
        "read_write acquire a1: granted, enqueue-readers b@2 20s, enqueue-readers c@3 20s, enqueue-writers c@4 20s, enqueue-readers b@5 20s, read_write release a1: granted +turn-b:b@2 +turn-c:c@3, left nothing | writers c@4 20s | readers b@2 20s c@3 20s b@5 20s | - - -",
        "read_write acquire a1: granted, enqueue-writers b@2 20s, enqueue-readers c@3 20s, read_write release a1: granted +turn-b:b@2, left nothing | writers b@2 20s | readers c@3 20s | - - -",
        "read_write acquire a1: granted, enqueue-writers b@2 -5s, enqueue-readers c@3 20s, read_write release a1: granted +turn-c:c@3, left nothing | readers c@3 20s | - -",
        "read_write acquire a1: granted, enqueue-readers b@2 -, enqueue-writers c@3 20s, read_write release a1: granted +turn-c:c@3, left nothing | writers c@3 20s | - -",
        // The last reader leaves. A reader was in the way of writers only.
        "read_write acquire a1 read: granted, enqueue-writers b@2 20s, read_write release a1 read: granted +turn-b:b@2, left nothing | writers b@2 20s | - -",
        "read_write acquire a1 read: granted, read_write acquire c1 read: granted, enqueue-writers b@2 20s, read_write release a1 read: granted, left reader:c=1x1:40s 40s | writers b@2 20s | - -",
        "write-hash reader:a=1x1:40s reader:c=1x1:ended read_write=3 mode=quorlock 40s, enqueue-writers b@2 20s, read_write release a1 read: granted +turn-b:b@2, left reader:c=1x1:ended 40s | writers b@2 20s | - -",
        "read_write acquire a1 read: granted, enqueue-readers b@2 20s, enqueue-writers c@3 20s, read_write release a1 read: granted, left nothing | writers c@3 20s | readers b@2 20s | - - -",
        // A waiter leaves its queue.
        "read_write acquire a1: granted, enqueue-writers b@2 20s, read_write release b1: held a x1 40s, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, enqueue-readers b@2 20s, read_write release b1 read: held a x1 40s, left writer=1x1:40s:a 40s",
        "read_write acquire a1 read: granted, enqueue-writers b@2 20s, enqueue-readers c@3 20s, read_write release b1: held a x1 40s +turn-c:c@3, left reader:a=1x1:40s 40s | readers c@3 20s | - -",
        "read_write acquire a1: granted, enqueue-writers b@2 20s, enqueue-readers c@3 20s, read_write release b1: held a x1 40s +turn-c:c@3, left writer=1x1:40s:a 40s | readers c@3 20s | - -",
        // The next writer becomes the one that looks when the lock will be free.
        "read_write acquire a1: granted, enqueue-writers b@2 20s, enqueue-writers c@3 20s, read_write release b1: held a x1 40s +turn-c:c@3, left writer=1x1:40s:a 40s | writers c@3 20s | - -",
        "read_write acquire a1: granted, enqueue-writers b@2 20s, enqueue-writers c@3 20s, read_write release c1: held a x1 40s, left writer=1x1:40s:a 40s | writers b@2 20s | - -",
        "enqueue-readers b@2 20s, enqueue-writers c@3 20s, read_write release b1 read: gone +turn-c:c@3, left nothing | writers c@3 20s | - -",
        "enqueue-readers b@2 20s, enqueue-readers c@3 20s, read_write release b1 read: gone, left nothing | readers c@3 20s | - -",
        "enqueue-writers b@2 20s, read_write release a1: gone, left nothing | writers b@2 20s | - -",
    ])
    .await;
}

#[tokio::test]
async fn a_read_write_lock_is_yielded() {
    check(&[
        "read_write acquire a1: granted, read_write yield a1 ~20s: granted, left nothing | writers a@1 20s | 40s 40s",
        "read_write acquire a1 read: granted, read_write yield a1 read ~20s: granted, left nothing | readers a@1 20s | 40s 40s",
        "read_write acquire a1 read: granted, read_write acquire b1 read: granted, read_write yield a1 read ~20s: granted, left reader:b=1x1:40s 40s | readers a@1 20s | 40s 40s",
        "read_write acquire a1: granted, read_write yield a1: granted, left nothing",
        // An earlier waiter is called. A reader was not in the way of other readers.
        "read_write acquire b1: granted, enqueue-writers a@1 20s, read_write yield b1 ~20s: granted +turn-a:a@1, left nothing | writers a@1 20s b@2 20s | 40s 40s",
        "read_write acquire b1: granted, enqueue-readers a@1 20s, read_write yield b1 ~20s: granted +turn-a:a@1, left nothing | writers b@2 20s | readers a@1 20s | 40s - 40s",
        "read_write acquire b1 read: granted, enqueue-writers a@1 20s, read_write yield b1 read ~20s: granted +turn-a:a@1, left nothing | writers a@1 20s | readers b@2 20s | - 40s 40s",
        "read_write acquire b1 read: granted, enqueue-readers a@1 20s, enqueue-readers c@3 20s, read_write yield b1 read ~20s: granted, left nothing | readers a@1 20s b@2 20s c@3 20s | 40s 40s",
        "read_write acquire a1: granted, enqueue-readers b@2 20s, read_write yield a1 ~20s: granted, left nothing | writers a@1 20s | readers b@2 20s | 40s - 40s",
        "read_write yield a1 ~20s: gone, left nothing",
        "read_write acquire a1: granted, read_write yield b1 ~20s: gone, left writer=1x1:40s:a 40s",
        "read_write acquire a9: granted, read_write yield a10 ~20s: granted, left nothing | writers a@1 20s | 40s 40s",
        // The yield comes too late, after a release or a later attempt.
        "read_write acquire a10 read: granted, read_write yield a9 read ~20s: gone, left reader:a=10x1:40s 40s",
        "read_write acquire a1: granted, read_write release a1: granted, read_write yield a1 ~20s: gone, left nothing",
        "acquire A 40s: granted, read_write yield a1 ~20s: kind, left A 40s",
        "fair acquire a1: granted, read_write yield a1 ~20s: gone, left a=1 fair=1 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_read_write_lock_is_inspected_and_broken() {
    check(&[
        "read_write acquire a1 x2: granted, inspect: read_write a x2 40s, left writer=1x2:40s:a 40s",
        "read_write acquire a1 read x2: granted, read_write acquire c1 read 80s: granted, inspect: read_write/shared a x2 40s read_write/shared c x1 80s, left reader:a=1x2:40s reader:c=1x1:80s 80s",
        "write-hash reader:a=1x1:40s reader:b=1x1:ended read_write=3 mode=quorlock 80s, inspect: read_write/shared a x1 40s, left reader:a=1x1:40s reader:b=1x1:ended 80s",
        "read_write acquire a1: granted, enqueue-readers c@3 20s, enqueue-writers b@2 -5s, enqueue-writers c@4 -, read_write inspect: read_write a x1 40s b@2 c@3 c@4, left writer=1x1:40s:a 40s | writers b@2 -5s c@4 - | readers c@3 20s | - - -",
        // An inspection of another kind sees the holders, and not the queues.
        "read_write acquire a1: granted, enqueue-readers c@3 20s, inspect: read_write a x1 40s, left writer=1x1:40s:a 40s | readers c@3 20s | - -",
        "fair acquire a1: granted, enqueue b@2 20s, enqueue-writers c@3 20s, read_write inspect: fair a x1 40s c@3, left a=1 fair=1 40s | b@2 20s | writers c@3 20s | - - -",
        "read_write break a: gone, left nothing",
        "read_write acquire a1: granted, read_write break a: granted, read_write break a: gone, left nothing",
        "read_write acquire a1: granted, read_write break b: held 40s, left writer=1x1:40s:a 40s",
        "read_write acquire a1 read 80s: granted, read_write break b: held 80s, left reader:a=1x1:80s 80s",
        "read_write acquire a1: granted, fair break a: held 40s, left writer=1x1:40s:a 40s",
        "fair acquire a1: granted, read_write break a: held 40s, left a=1 fair=1 40s",
        // Only the named holder is removed.
        "read_write acquire a1 read: granted, read_write acquire b1 read 80s: granted, read_write break a: granted, left reader:b=1x1:80s 80s",
        "read_write acquire a1 read: granted, read_write acquire b1 read: granted, read_write break a: granted, read_write break b: granted, left nothing",
        // Those whose turn has come are called.
        "read_write acquire a1: granted, enqueue-readers b@2 20s, enqueue-readers c@3 20s, read_write break a: granted +turn-b:b@2 +turn-c:c@3, left nothing | readers b@2 20s c@3 20s | - -",
        "read_write acquire a1 read: granted, enqueue-writers b@2 20s, read_write break a: granted +turn-b:b@2, left nothing | writers b@2 20s | - -",
        "read_write acquire a1 read: granted, read_write acquire c1 read: granted, enqueue-writers b@2 20s, read_write break a: granted, left reader:c=1x1:40s 40s | writers b@2 20s | - -",
        "read_write acquire a1: granted, spoil-writers, read_write break a: granted, left nothing spoilt-writers 60s",
        "read_write acquire a1: granted, spoil-readers, read_write inspect: read_write a x1 40s, left writer=1x1:40s:a 40s spoilt-readers 60s",
    ])
    .await;
}

#[tokio::test]
async fn a_read_write_lock_excludes_other_kinds() {
    check(&[
        "acquire A 40s: granted, read_write acquire a1: kind, left A 40s",
        "acquire A 40s: granted, read_write acquire a1 read ~20s: kind, left A 40s",
        "acquire A 40s: granted, read_write extend a1: kind, left A 40s",
        "reentrant acquire a1: granted, read_write acquire a1 ~20s: kind, left a=1 reentrant=1 40s",
        "reentrant acquire a1: granted, read_write acquire a1 read: kind, left a=1 reentrant=1 40s",
        "reentrant acquire a1: granted, read_write extend a1 read: kind, left a=1 reentrant=1 40s",
        "fair acquire a1: granted, read_write acquire b1 ~20s: kind, left a=1 fair=1 40s",
        "fair acquire a1: granted, read_write acquire b1 read ~20s: kind, left a=1 fair=1 40s",
        "read_write acquire a1: granted, acquire A 40s: held -, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, extend A 80s: kind, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, release A: kind, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, reentrant acquire a1: kind, left writer=1x1:40s:a 40s",
        "read_write acquire a1 read: granted, reentrant acquire b1: kind, left reader:a=1x1:40s 40s",
        "read_write acquire a1: granted, reentrant release a1: kind, left writer=1x1:40s:a 40s",
        "read_write acquire a1 read: granted, reentrant extend a1 80s: kind, left reader:a=1x1:40s 40s",
        "read_write acquire a1: granted, fair acquire a1 ~20s: kind, left writer=1x1:40s:a 40s",
        "read_write acquire a1 read: granted, fair acquire b1 ~20s: kind, left reader:a=1x1:40s 40s",
        "read_write acquire a1: granted, fair release a1: kind, left writer=1x1:40s:a 40s",
        // Locks of Redisson, and keys that are no locks.
        "write-hash a=1 40s, read_write acquire a1: kind, left a=1 40s",
        "write-hash a=1 40s, read_write acquire b1 read: kind, left a=1 40s",
        "write-hash b=1 mode=read 40s, read_write acquire a1: kind, left b=1 mode=read 40s",
        "write-hash b=1 mode=read 40s, read_write acquire a1 read ~20s: kind, left b=1 mode=read 40s",
        "write-hash b=1 mode=write 40s, read_write acquire b1 read: kind, left b=1 mode=write 40s",
        "write-hash field=some 40s, read_write acquire a1 read: kind, left field=some 40s",
        "write-hash mode=quorlock 40s, read_write acquire a1: kind, left mode=quorlock 40s",
        "write-hash read_write=3 40s, read_write acquire a1: kind, left read_write=3 modeless 40s",
        "write-hash writer=1x1:40s:a mode=quorlock 40s, read_write acquire a1: kind, left writer=1x1:40s:a unmarked 40s",
        "write-hash writer=1x1:40s:a mode=quorlock 40s, inspect: other 40s, left writer=1x1:40s:a unmarked 40s",
        "write-hash writer=1x1:40s:a read_write=3 40s, read_write acquire b1 read: kind, left writer=1x1:40s:a modeless 40s",
        // A marker without an entry is a free lock.
        "write-hash read_write=3 mode=quorlock 40s, read_write acquire a1 80s: granted, left writer=1x1:80s:a 80s",
        "write-hash read_write=3 mode=quorlock 40s, read_write acquire a1 read: granted, left reader:a=1x1:40s 40s",
        "write-hash read_write=3 mode=quorlock 40s, inspect: free, left read_write=3 40s",
    ])
    .await;
}

/// A writer reads all fields. A reader reads only those that can be in its way, because there may
/// be many readers.
#[tokio::test]
async fn a_read_write_lock_that_others_have_changed() {
    check(&[
        "write-hash writer=1x1:40s:a read_write=3 mode=quorlock c=1 40s, read_write acquire b1: kind, left c=1 writer=1x1:40s:a 40s",
        "write-hash reader:a=1x1:40s read_write=3 mode=quorlock c=1 40s, read_write acquire b1: kind, left c=1 reader:a=1x1:40s 40s",
        "write-hash reader:a=1x1:40s read_write=3 mode=quorlock c=1 40s, read_write acquire b1 read: granted, left c=1 reader:a=1x1:40s reader:b=1x1:40s 40s",
        "write-hash reader:a=1x1:40s read_write=3 mode=quorlock c=1 40s, inspect: other 40s, left c=1 reader:a=1x1:40s 40s",
        "write-hash reader:a=1x1:40s read_write=3 mode=quorlock c=1 40s, read_write break a: kind, left c=1 reader:a=1x1:40s 40s",
        "write-hash writer=some read_write=3 mode=quorlock 40s, read_write acquire b1 read: kind, left writer=some 40s",
        "write-hash writer=some read_write=3 mode=quorlock 40s, read_write acquire b1 read ~20s: kind, left writer=some 40s",
        "write-hash writer=some read_write=3 mode=quorlock 40s, read_write acquire b1: kind, left writer=some 40s",
        "write-hash reader:a=1x1:40s read_write=some mode=quorlock 40s, read_write acquire b1 read: granted, left read_write=some reader:a=1x1:40s reader:b=1x1:40s 40s",
        "write-hash writer=1x1:40s:a read_write=3 mode=write b=1 40s, read_write extend a1 80s: kind, left b=1 mode=write writer=1x1:40s:a modeless 40s",
        // A release removes only the fields of this crate.
        "write-hash writer=1x1:40s:a read_write=3 mode=quorlock b=1 40s, read_write release a1: granted, left b=1 read_write=3 40s",
        "write-hash writer=1x1:40s:a read_write=3 mode=write b=1 40s, read_write release a1: granted, left b=1 mode=write read_write=3 modeless 40s",
        "write-hash reader:a=1x1:40s read_write=3 mode=write 40s, read_write release a1 read: granted, left mode=write read_write=3 modeless 40s",
        "write-hash reader:a=1x1:40s read_write=3 mode=quorlock b=1 40s, read_write yield a1 read ~20s: granted, left b=1 read_write=3 40s | readers a@1 20s | 40s 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_writer_has_a_fencing_token() {
    check(&[
        "read_write acquire a1 ^500: granted, left writer=1x1:40s:a 40s ^500 2592000s",
        "read_write acquire a1 ^500 ~20s: granted, left writer=1x1:40s:a 40s ^500 2592000s",
        "count ^500, read_write acquire a1 ^500: stale ^500, left nothing ^500 -",
        "read_write acquire a1 ^-9000: skewed, left nothing",
        "count ^8000, read_write acquire a1 ^8000+1: granted, left writer=1x1:40s:a 40s ^8000+1 2592000s",
        "read_write acquire a1 ^500: granted, read_write acquire a1 ^500 x2 80s: granted, left writer=1x2:80s:a 80s ^500 2592000s",
        "read_write acquire a1 ^600: granted, read_write acquire a1 ^500 x2: stale ^600, left writer=1x1:40s:a 40s ^600 2592000s",
        "read_write acquire a1 ^500: granted, read_write acquire a2 ^600: granted, left writer=2x1:40s:a 40s ^600 2592000s",
        "read_write acquire a1 ^500: granted, read_write acquire b1 ^600: held a x1 40s, left writer=1x1:40s:a 40s ^500 2592000s",
        "read_write acquire a1 read: granted, read_write acquire b1 ^600: held a x1 40s, left reader:a=1x1:40s 40s",
        // The candidate of a waiter does not change the counter before its turn.
        "read_write acquire a1 ^500: granted, read_write acquire b1 ^600 ~20s: held a x1 #1 40s, left writer=1x1:40s:a 40s | writers b@2 20s | 40s 40s ^500 2592000s",
        "enqueue-readers b@2 20s, read_write acquire c1 ^500: queued, left nothing | readers b@2 20s | - -",
        "enqueue-writers b@2 20s, read_write acquire b1 ^500 ~20s: granted, left writer=1x1:40s:b 40s ^500 2592000s",
        "enqueue-writers b@2 20s, count ^600, read_write acquire b1 ^500 ~20s: stale ^600, left nothing | writers b@2 20s | 40s 40s ^600 -",
        "read_write heal a1 ^-9000: granted, left writer=1x1:40s:a 40s ^-9000 2592000s",
        "count ^500, read_write heal a1 x2 ^500: granted, left writer=1x2:40s:a 40s ^500 -",
        "count ^600, read_write heal a1 ^500: granted, left writer=1x1:40s:a 40s ^600 -",
        "read_write acquire a1 ^500: granted, read_write extend a1 x2 80s ^500: granted, left writer=1x2:80s:a 80s ^500 2592000s",
        "read_write acquire a1 ^500: granted, read_write extend a1 read ^500: granted, read_write release a1 read ^500: granted, left nothing ^500 2592000s",
        "read_write acquire a1 ^500: granted, read_write yield a1 ^500 ~20s: granted, left nothing | writers a@1 20s | 40s 40s ^500 2592000s",
        "read_write acquire a1 ^500: granted, read_write release a1 ^500: granted, read_write acquire a1 ^500: stale ^500, left nothing ^500 2592000s",
        "read_write release a1 ^500: gone, read_write acquire a1 ^500: stale ^500, left nothing ^500 3s",
        "read_write acquire b1 ^500: granted, read_write release a1 ^600: held b x1 40s, left writer=1x1:40s:b 40s ^600 2592000s",
        "read_write acquire a1 ^500: granted, enqueue-readers b@2 20s, read_write release a1 ^500: granted +turn-b:b@2, left nothing | readers b@2 20s | - - ^500 2592000s",
        "read_write acquire a1: granted, count-hash, read_write release a1 ^500: granted, left nothing hash -",
        "count-hash, read_write acquire a1 ^500: failed: answered ERR the key .. is not a counter: delete it, left nothing hash -",
    ])
    .await;
}

/// A free lock whose queue is no sorted set is not reported as a lock of another kind.
#[tokio::test]
async fn a_key_that_is_no_queue_of_a_read_write_lock_is_reported() {
    const NO_SET: &str = "failed: answered ERR the key .. is not a sorted set: delete it";
    let rows = [
        "spoil-writers, read_write acquire a1: NO, left nothing spoilt-writers 60s",
        "spoil-writers, read_write acquire a1 read ~20s: NO, left nothing spoilt-writers 60s",
        "spoil-readers, read_write acquire a1: NO, left nothing spoilt-readers 60s",
        "spoil-writers, write 40s, read_write acquire a1 ~20s: kind, left another's 40s spoilt-writers 60s",
        "spoil-writers, write 40s, read_write acquire a1 read: kind, left another's 40s spoilt-writers 60s",
        "read_write acquire a1: granted, spoil-writers, read_write acquire b1 ~20s: NO, left writer=1x1:40s:a 40s spoilt-writers 60s",
        // The waiter is put into neither of the two keys.
        "read_write acquire a1: granted, spoil-readers, read_write acquire b1 read ~20s: NO, left writer=1x1:40s:a 40s spoilt-readers 60s",
        "read_write acquire a1: granted, spoil-deadlines, read_write acquire b1 ~20s: NO, left writer=1x1:40s:a 40s spoilt-deadlines 60s",
        "read_write acquire a1: granted, spoil-deadlines, read_write acquire b1 read ~20s: NO, left writer=1x1:40s:a 40s spoilt-deadlines 60s",
        "enqueue-writers b@2 -, spoil-deadlines, read_write acquire c1 read: NO, left nothing | writers b@2 - | - 60s spoilt-deadlines 60s",
        // A reader that need not wait does not use the queue of readers.
        "spoil-readers, read_write acquire a1 read: granted, left reader:a=1x1:40s 40s spoilt-readers 60s",
        "spoil-readers, read_write acquire a1 read ~20s: granted, left reader:a=1x1:40s 40s spoilt-readers 60s",
        // The lock can still be put back, yielded and released.
        "spoil-writers, read_write heal a1: granted, left writer=1x1:40s:a 40s spoilt-writers 60s",
        "spoil-deadlines, read_write heal a1 read: granted, left reader:a=1x1:40s 40s spoilt-deadlines 60s",
        "read_write acquire a1: granted, spoil-writers, read_write acquire a1 x2: granted, left writer=1x2:40s:a 40s spoilt-writers 60s",
        "read_write acquire a1: granted, spoil-writers, read_write release a1: granted, left nothing spoilt-writers 60s",
        "read_write acquire a1: granted, spoil-readers, read_write release a1: granted, left nothing spoilt-readers 60s",
        "read_write acquire a1: granted, enqueue-readers b@2 -, spoil-deadlines, read_write release a1: granted, left nothing | readers b@2 - | - 60s spoilt-deadlines 60s",
        "enqueue-writers a@1 20s, spoil-readers, read_write release a1: gone, left nothing spoilt-readers 60s",
        "enqueue-readers a@1 20s, spoil-writers, read_write release a1 read: gone, left nothing spoilt-writers 60s",
        "read_write acquire a1: granted, spoil-writers, read_write release b1: held a x1 40s, left writer=1x1:40s:a 40s spoilt-writers 60s",
        "read_write acquire a1: granted, spoil-writers, read_write extend a1 read: granted, left reader:a=1x1:40s 40s spoilt-writers 60s",
        "read_write acquire a1: granted, spoil-writers, read_write yield a1 ~20s: granted, left nothing spoilt-writers 60s",
        "read_write acquire a1 read: granted, spoil-deadlines, read_write yield a1 read ~20s: granted, left nothing spoilt-deadlines 60s",
    ];
    let rows = rows.map(|row| row.replace("NO", NO_SET));
    check(&rows.each_ref().map(String::as_str)).await;
}
