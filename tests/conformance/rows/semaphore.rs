//! The rows of semaphores.

use super::*;

#[tokio::test]
async fn a_semaphore_is_acquired() {
    check(&[
        "semaphore acquire a1: granted, left permit:a=1:40s:1 40s",
        "semaphore acquire a1 ~20s: granted, left permit:a=1:40s:1 40s",
        "semaphore acquire a1 ~20s fresh: granted, left permit:a=1:40s:1 40s",
        // The search begins at a slot that depends on the ticket. A waiter searches from slot 1.
        "semaphore acquire a1 of3: granted, left permit:a=1:40s:1 40s",
        "semaphore acquire b1 of3: granted, left permit:b=1:40s:2 40s",
        "semaphore acquire c1 of3: granted, left permit:c=1:40s:3 40s",
        "semaphore acquire c1 of3 ~20s: granted, left permit:c=1:40s:1 40s",
        "semaphore acquire c1 of3: granted, semaphore acquire a1 of3 @3: granted, left permit:a=1:40s:1 permit:c=1:40s:3 40s",
        "semaphore acquire a1 of3: granted, semaphore acquire b1 of3 @1: granted, semaphore acquire c1 of3 @1: granted, left permit:a=1:40s:1 permit:b=1:40s:2 permit:c=1:40s:3 40s",
        // A slot that another master has granted.
        "semaphore acquire a1 of3 slot2: granted, left permit:a=1:40s:2 40s",
        "semaphore acquire a1 of3: granted, semaphore acquire b1 of3 slot1: held a x1 40s, left permit:a=1:40s:1 40s",
        // The key lives as long as the longest lease. A refusal says when the first one ends.
        "semaphore acquire a1 of2: granted, semaphore acquire b1 of2 80s: granted, semaphore acquire c1 of2: held a x1 b x1 40s, left permit:a=1:40s:1 permit:b=1:80s:2 80s",
        "semaphore acquire a1 of2 80s: granted, semaphore acquire b1 of2 ~20s: granted, left permit:a=1:80s:1 permit:b=1:40s:2 80s",
        "semaphore acquire a1: granted, semaphore acquire b1: held a x1 40s, left permit:a=1:40s:1 40s",
        "semaphore acquire a1: granted, delete, semaphore acquire b1: granted, left permit:b=1:40s:1 40s",
        // At most five holders are named.
        "write-hash permit:a=1:40s:1 slot:1=a permit:b=1:40s:2 slot:2=b permit:c=1:40s:3 slot:3=c permit:d=1:40s:4 slot:4=d permit:e=1:40s:5 slot:5=e permit:f=1:40s:6 slot:6=f semaphore=40s mode=quorlock 40s, semaphore acquire g1 of6: held a x1 b x1 c x1 d x1 e x1 40s, left permit:a=1:40s:1 permit:b=1:40s:2 permit:c=1:40s:3 permit:d=1:40s:4 permit:e=1:40s:5 permit:f=1:40s:6 40s",
        // The owner acquires its permit again, before all waiters. A lease is never shortened.
        "semaphore acquire a1: granted, semaphore acquire a1 80s: granted, left permit:a=1:80s:1 semaphore=40s 80s",
        "semaphore acquire a1 80s: granted, semaphore acquire a1 ~20s: granted, left permit:a=1:80s:1 80s",
        "semaphore acquire a1: granted, enqueue-waiters b@2 20s, semaphore acquire a1: granted, left permit:a=1:40s:1 40s | waiters b@2 20s | - -",
        "semaphore acquire b1 of3: granted, semaphore acquire b1 of3 @1: granted, left permit:b=1:40s:2 40s",
        "semaphore acquire b1 of3: granted, semaphore acquire b1 of3 slot3: granted, left permit:b=1:40s:3 40s",
        "semaphore acquire b1 of3: granted, semaphore acquire a1 of3: granted, semaphore acquire b1 of3 slot1: held a x1 40s, left permit:a=1:40s:1 40s",
    ])
    .await;
}

/// Clients may use different numbers. There are never more holders than the larger one.
#[tokio::test]
async fn the_number_of_permits_changes() {
    check(&[
        "semaphore acquire a1: granted, semaphore acquire b1 of2: granted, left permit:a=1:40s:1 permit:b=1:40s:2 40s",
        "semaphore acquire c1 of3: granted, semaphore acquire a1: held c x1 40s, left permit:c=1:40s:3 40s",
        "semaphore acquire b1 of3: granted, semaphore acquire c1 of3: granted, semaphore acquire a1 of2: held b x1 c x1 40s, left permit:b=1:40s:2 permit:c=1:40s:3 40s",
        "semaphore acquire c1 of3: granted, semaphore acquire a1 of2: granted, left permit:a=1:40s:1 permit:c=1:40s:3 40s",
        "semaphore acquire c1 of3: granted, semaphore acquire a1 ~20s: held c x1 #1 40s, left permit:c=1:40s:3 40s | waiters a@1 20s | 40s 40s",
    ])
    .await;
}

#[tokio::test]
async fn the_attempts_of_an_owner_at_a_semaphore() {
    check(&[
        // A later attempt takes the place of an earlier one, and may have another slot.
        "semaphore acquire a1: granted, semaphore acquire a2: granted, left permit:a=2:40s:1 40s",
        "semaphore acquire b1 of3: granted, semaphore acquire b2 of3 @1: granted, left permit:b=2:40s:3 40s",
        "semaphore acquire b9 of3: granted, semaphore acquire b10 of3 slot3: granted, left permit:b=10:40s:3 40s",
        // It does not pass the waiters. Those whose turn has come are called.
        "semaphore acquire b1: granted, enqueue-waiters a@1 20s, semaphore acquire b2: queued +turn-a:a@1, left nothing | waiters a@1 20s | - -",
        "semaphore acquire b1 of2: granted, enqueue-waiters a@1 20s, semaphore acquire b2 of2: granted +turn-a:a@1, left permit:b=2:40s:2 40s | waiters a@1 20s | - -",
        // A late command of an earlier attempt changes nothing.
        "semaphore acquire a2: granted, semaphore acquire a1 80s: held a x1 40s, left permit:a=2:40s:1 40s",
        "semaphore acquire a2: granted, semaphore acquire a1 ~20s: held a x1 40s, left permit:a=2:40s:1 40s",
        "semaphore acquire a10 of2: granted, semaphore heal a9 of2 slot1: held a x1 40s, left permit:a=10:40s:2 40s",
        "semaphore acquire a2 of2: granted, semaphore acquire a1 of2 slot1: held a x1 40s, left permit:a=2:40s:2 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_semaphore_has_a_queue() {
    check(&[
        "semaphore acquire a1: granted, semaphore acquire c1 ~20s: held a x1 #1 40s, semaphore acquire b1 ~20s: held a x1 #1 40s, semaphore acquire c1 ~20s: held a x1 #2 40s, left permit:a=1:40s:1 40s | waiters b@2 20s c@3 20s | 40s 40s",
        // The waiter at place p gets the slot that is free after p others, and leaves the queue.
        "enqueue-waiters a@1 20s, semaphore acquire b1 of2 ~20s: granted +turn-a:a@1, left permit:b=1:40s:2 40s | waiters a@1 20s | 40s 40s",
        "enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore acquire c1 of2 ~20s: queued #3, left nothing | waiters a@1 20s b@2 20s c@3 20s | 40s 40s",
        "enqueue-waiters a@1 20s, semaphore acquire a1 of2 ~20s: granted, left permit:a=1:40s:1 40s",
        // A waiter that is served calls the next one if another permit is free.
        "enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore acquire a1 of2 ~20s: granted +turn-b:b@2, left permit:a=1:40s:1 40s | waiters b@2 20s | 40s 40s",
        "enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore acquire a1 ~20s: granted, left permit:a=1:40s:1 40s | waiters b@2 20s | 40s 40s",
        // A caller that is not queued leaves the waiters their permits.
        "enqueue-waiters a@1 20s, semaphore acquire b1: queued, left nothing | waiters a@1 20s | - -",
        "enqueue-waiters a@1 20s, semaphore acquire b1 of2: granted, left permit:b=1:40s:2 40s | waiters a@1 20s | - -",
        // A waiter for which this master chooses has its place. It searches from its own slot.
        "enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore acquire b1: queued, left nothing | waiters a@1 20s b@2 20s | - -",
        "enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore acquire b1 of3: granted +turn-a:a@1, left permit:b=1:40s:2 40s | waiters a@1 20s | - -",
        "enqueue-waiters b@2 20s, enqueue-waiters c@3 20s, semaphore acquire b1: granted, left permit:b=1:40s:1 40s | waiters c@3 20s | - -",
        // So has one that was granted a slot in an earlier round, and has left the queue.
        "semaphore acquire b1: granted, enqueue-waiters c@3 20s, semaphore acquire b2: granted, left permit:b=2:40s:1 40s | waiters c@3 20s | - -",
        // Dead waiters are passed over, and those that come next are called.
        "enqueue-waiters b@2 -5s, semaphore acquire c1: granted, left permit:c=1:40s:1 40s",
        "enqueue-waiters b@2 -, semaphore acquire c1 ~20s: granted, left permit:c=1:40s:1 40s",
        "enqueue-waiters a@1 -5s, enqueue-waiters b@2 20s, semaphore acquire c1 @9: queued +turn-b:b@2, left nothing | waiters b@2 20s | - -",
        // The time in a new ticket must be near the master's clock.
        "semaphore acquire a1: granted, semaphore acquire b1 ~20s fresh: skewed, left permit:a=1:40s:1 40s",
        "enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore acquire b1 ~20s fresh: queued #2, left nothing | waiters a@1 20s b@2 20s | 40s 40s",
    ])
    .await;
}

/// A lease in the hash ends without an event. An entry whose lease has ended counts as gone.
#[tokio::test]
async fn an_entry_of_a_semaphore_ends() {
    check(&[
        "write-hash permit:a=1:ended:1 slot:1=a semaphore=ended mode=quorlock 40s, semaphore acquire b1: granted, left permit:b=1:40s:1 40s",
        "write-hash permit:a=1:ended:1 slot:1=a permit:b=1:60s:2 slot:2=b semaphore=ended mode=quorlock 60s, semaphore acquire c1 of2: granted, left permit:b=1:60s:2 permit:c=1:40s:1 60s",
        "write-hash permit:a=1:ended:1 slot:1=a permit:b=1:60s:2 slot:2=b semaphore=ended mode=quorlock 60s, semaphore acquire c1: held b x1 60s, left permit:b=1:60s:2 60s",
        // The time of the first end may be too early, but never too late.
        "write-hash permit:a=1:40s:1 slot:1=a semaphore=ended mode=quorlock 40s, semaphore acquire b1: held a x1 40s, left permit:a=1:40s:1 40s",
        "write-hash slot:1=b slot:2=b semaphore=ended mode=quorlock 40s, semaphore acquire a1: held b x1 b x1 0s, left semaphore=ended slot:1=b slot:2=b 40s",
        "write-hash permit:a=1:ended:1 slot:1=a semaphore=ended mode=quorlock 40s, semaphore extend a1: gone, left permit:a=1:ended:1 40s",
        "write-hash permit:a=1:ended:1 slot:1=a semaphore=ended mode=quorlock 40s, enqueue-waiters b@2 20s, semaphore acquire a1: queued +turn-b:b@2, left nothing | waiters b@2 20s | - -",
        "write-hash permit:a=1:ended:1 slot:1=a semaphore=ended mode=quorlock 40s, enqueue-waiters b@2 20s, enqueue-waiters c@3 20s, semaphore acquire a1 of2 @9: queued +turn-b:b@2, left nothing | waiters b@2 20s c@3 20s | - -",
        "write-hash permit:a=1:ended:1 slot:1=a semaphore=ended mode=quorlock 40s, inspect: free, left permit:a=1:ended:1 40s",
        "write-hash permit:a=1:ended:1 slot:1=a semaphore=ended mode=quorlock 40s, semaphore break a: gone, left permit:a=1:ended:1 40s",
        "write-hash permit:a=1:ended:1 slot:1=a semaphore=ended mode=quorlock 40s, semaphore release a1: granted, left nothing",
        // The last holder leaves nothing behind.
        "write-hash permit:a=1:ended:1 slot:1=a permit:b=1:60s:2 slot:2=b semaphore=ended mode=quorlock 60s, semaphore release b1 of2: granted, left nothing",
        "write-hash permit:a=1:ended:1 slot:1=a permit:b=1:60s:2 slot:2=b permit:c=1:40s:3 slot:3=c semaphore=ended mode=quorlock 60s, semaphore release b1 of3: granted, left permit:c=1:40s:3 60s",
        "write-hash permit:a=1:ended:1 slot:1=a permit:b=1:60s:2 slot:2=b semaphore=ended mode=quorlock 60s, semaphore release c1 of2: gone, left permit:b=1:60s:2 60s",
        "write-hash permit:a=1:ended:1 slot:1=a semaphore=ended mode=quorlock 40s, semaphore heal a1: granted, left permit:a=1:40s:1 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_permit_is_put_back() {
    check(&[
        "semaphore heal a1: granted, left permit:a=1:40s:1 40s",
        "semaphore heal a1 of3 slot2: granted, left permit:a=1:40s:2 40s",
        "semaphore acquire a1 80s: granted, semaphore heal a1: granted, left permit:a=1:80s:1 80s",
        // Regardless of the waiters and of the number of permits, but not in the slot of another.
        "enqueue-waiters b@2 20s, semaphore heal a1: granted, left permit:a=1:40s:1 40s | waiters b@2 20s | - -",
        "semaphore acquire a1 of3: granted, semaphore acquire c1 of3: granted, semaphore heal b1 of2 slot2: granted, left permit:a=1:40s:1 permit:b=1:40s:2 permit:c=1:40s:3 40s",
        "semaphore acquire a1: granted, semaphore heal b1: held a x1 40s, left permit:a=1:40s:1 40s",
        // A holder waits no more, also where another has its slot.
        "semaphore acquire a1: granted, enqueue-waiters b@2 20s, enqueue-waiters c@3 20s, semaphore heal b1: held a x1 40s, left permit:a=1:40s:1 40s | waiters c@3 20s | - -",
        "semaphore acquire a1 of2: granted, enqueue-waiters b@2 20s, enqueue-waiters c@3 20s, semaphore heal b1 of2 slot1: held a x1 40s +turn-c:c@3, left permit:a=1:40s:1 40s | waiters c@3 20s | - -",
        // A late grant has another slot. The holder moves to the one that it has won, or has none
        // here while another has that one.
        "semaphore acquire b1 of3: granted, semaphore heal b1 of3 slot3: granted, left permit:b=1:40s:3 40s",
        "semaphore acquire b1 of3: granted, semaphore acquire a1 of3: granted, semaphore heal b1 of3 slot1: held a x1 40s, left permit:a=1:40s:1 40s",
        "semaphore acquire b1 of3: granted, semaphore acquire a1 of3: granted, enqueue-waiters c@3 20s, semaphore heal b1 of3 slot1: held a x1 40s +turn-c:c@3, left permit:a=1:40s:1 40s | waiters c@3 20s | - -",
        // The waiter that is next is called, also if all permits were held before.
        "semaphore acquire b1 of2: granted, semaphore acquire a1 of2: granted, enqueue-waiters c@3 20s, semaphore heal b1 of2 slot2: held a x1 40s +turn-c:c@3, left permit:a=1:40s:2 40s | waiters c@3 20s | - -",
        "write-hash permit:a=1:ended:1 slot:1=a permit:b=1:40s:2 slot:2=b semaphore=ended mode=quorlock 40s, enqueue-waiters c@3 20s, semaphore heal b1 of2 slot2: granted +turn-c:c@3, left permit:b=1:40s:2 40s | waiters c@3 20s | - -",
        // A permit that moves to another slot is not free meanwhile.
        "semaphore acquire b1 of2: granted, enqueue-waiters c@3 20s, semaphore heal b1 of2 slot2: granted, left permit:b=1:40s:2 40s | waiters c@3 20s | - -",
    ])
    .await;
}

#[tokio::test]
async fn a_permit_is_extended() {
    check(&[
        "semaphore acquire a1: granted, semaphore extend a1 80s: granted, left permit:a=1:80s:1 semaphore=40s 80s",
        "semaphore acquire a1 80s: granted, semaphore extend a1: granted, left permit:a=1:80s:1 80s",
        "semaphore acquire a1 80s: granted, semaphore acquire b1 of2: granted, semaphore extend b1 slot2 60s: granted, left permit:a=1:80s:1 permit:b=1:60s:2 semaphore=40s 80s",
        "semaphore extend a1: gone, left nothing",
        // Only the slot that was won counts.
        "semaphore acquire b1 of3: granted, semaphore extend b1 slot1 80s: gone, left nothing",
        "semaphore acquire b1 of3: granted, semaphore acquire a1 of3: granted, semaphore extend b1 slot1 80s: held a x1 40s, left permit:a=1:40s:1 40s",
        "semaphore acquire b1 of2: granted, semaphore acquire a1 of2: granted, enqueue-waiters c@3 20s, semaphore extend b1 slot2: held a x1 40s +turn-c:c@3, left permit:a=1:40s:2 40s | waiters c@3 20s | - -",
        "semaphore acquire a1: granted, semaphore extend b1: held a x1 40s, left permit:a=1:40s:1 40s",
        "semaphore acquire a2: granted, semaphore extend a1 80s: held a x1 40s, left permit:a=2:40s:1 40s",
        "semaphore acquire a1: granted, semaphore extend a2 80s: gone, left permit:a=1:40s:1 40s",
    ])
    .await;
}

#[tokio::test]
async fn a_permit_is_released() {
    check(&[
        "semaphore acquire a1: granted, semaphore release a1: granted, left nothing",
        "semaphore acquire a1: granted, semaphore release a2: granted, left nothing",
        "semaphore acquire a1 of3: granted, semaphore acquire b1 of3: granted, semaphore acquire c1 of3: granted, semaphore release a1 of3: granted, left permit:b=1:40s:2 permit:c=1:40s:3 40s",
        // The slot that others have written stays.
        "write-hash permit:a=1:40s:1 slot:1=b semaphore=40s c=1 mode=quorlock 40s, semaphore release a1: granted, left c=1 semaphore=40s slot:1=b 40s",
        "semaphore acquire a2: granted, semaphore release a1: held a x1 40s, left permit:a=2:40s:1 40s",
        "semaphore acquire a1 of2: granted, semaphore acquire b1 of2: granted, semaphore release a1 of2: granted, left permit:b=1:40s:2 40s",
        "semaphore release a1: gone, left nothing",
        "semaphore acquire a1 of2: granted, semaphore release b1 of2: gone, left permit:a=1:40s:1 40s",
        // One waiter is called: the head.
        "semaphore acquire a1: granted, enqueue-waiters b@2 20s, enqueue-waiters c@3 20s, semaphore release a1: granted +turn-b:b@2, left nothing | waiters b@2 20s c@3 20s | - -",
        "semaphore acquire a1: granted, enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore release a1: granted +turn-b:b@2, left nothing | waiters b@2 20s | - -",
        "enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore release a1: gone +turn-b:b@2, left nothing | waiters b@2 20s | - -",
        "semaphore acquire c1: granted, enqueue-waiters a@1 20s, enqueue-waiters b@2 20s, semaphore release b1: held c x1 40s +turn-a:a@1, left permit:c=1:40s:1 40s | waiters a@1 20s | - -",
        // What an attempt without a majority gives back.
        "semaphore acquire a1: granted, semaphore yield a1 ~20s: granted, left nothing | waiters a@1 20s | 40s 40s",
        "semaphore acquire b1: granted, enqueue-waiters a@1 20s, semaphore yield b1 ~20s: granted +turn-a:a@1, left nothing | waiters a@1 20s b@2 20s | 40s 40s",
        "semaphore acquire a2: granted, semaphore yield a1 ~20s: gone, left permit:a=2:40s:1 40s",
        "semaphore yield a1 ~20s: gone, left nothing",
    ])
    .await;
}

#[tokio::test]
async fn a_fenced_permit() {
    check(&[
        "semaphore acquire a1 of2 ^500: granted, semaphore acquire b1 of2 ^400: stale ^500, semaphore acquire b1 of2 ^600: granted, left permit:a=1:40s:1 permit:b=1:40s:2 40s ^600 2592000s",
        // Another may have offered the same candidate for another slot. So even a caller that has a
        // slot must offer a larger one.
        "semaphore acquire a1 of2 ^500: granted, semaphore acquire a1 of2 ^500: stale ^500, left permit:a=1:40s:1 40s ^500 2592000s",
        "semaphore acquire a1 of2 ^500: granted, semaphore acquire a1 of2 ^501: granted, left permit:a=1:40s:1 40s ^501 2592000s",
        // A waiter whose candidate is refused stays in the queue. A fresh ticket must be close to
        // the master's time.
        "semaphore acquire a1 of2 ^500: granted, semaphore acquire b1 of2 ^400 ~20s: stale ^500, semaphore acquire c1 of2 ^600: queued, left permit:a=1:40s:1 40s | waiters b@2 20s | 40s 40s ^500 2592000s",
        "semaphore acquire a1 of2 ^500: granted, semaphore acquire b1 of2 ^400 ~20s fresh: stale ^500, left permit:a=1:40s:1 40s ^500 2592000s",
        // A holder is put back with its token, although others have larger ones.
        "semaphore acquire a1 of2 ^600: granted, semaphore heal b1 of2 slot2 ^500: granted, left permit:a=1:40s:1 permit:b=1:40s:2 40s ^600 2592000s",
        "semaphore heal b1 of2 slot2 ^500: granted, left permit:b=1:40s:2 40s ^500 2592000s",
        "semaphore acquire a1 of2 ^9000: skewed, left nothing",
        "semaphore acquire a1 of2 ^500: granted, semaphore release a1 of2 ^500: granted, left nothing ^500 2592000s",
        "semaphore acquire a1 ^500 of2: granted, semaphore heal b1 of2 slot2 ^500: granted, left permit:a=1:40s:1 permit:b=1:40s:2 40s ^500 2592000s",
    ])
    .await;
}

#[tokio::test]
async fn semaphores_and_other_kinds() {
    check(&[
        "semaphore acquire a1: granted, inspect: semaphore/shared a x1 40s, left permit:a=1:40s:1 40s",
        "semaphore acquire a1 of2: granted, semaphore acquire b1 of2 80s: granted, semaphore inspect: semaphore/shared a x1 40s semaphore/shared b x1 80s, left permit:a=1:40s:1 permit:b=1:80s:2 80s",
        "semaphore acquire a1: granted, semaphore acquire b1 ~20s: held a x1 #1 40s, semaphore inspect: semaphore/shared a x1 40s b@2, left permit:a=1:40s:1 40s | waiters b@2 20s | 40s 40s",
        // A break removes the named holders only.
        "semaphore acquire a1 of2: granted, semaphore acquire b1 of2: granted, semaphore break a: granted, left permit:b=1:40s:2 40s",
        "semaphore acquire a1: granted, enqueue-waiters b@2 20s, semaphore break a: granted +turn-b:b@2, left nothing | waiters b@2 20s | - -",
        "semaphore acquire a1: granted, semaphore break b: held 40s, left permit:a=1:40s:1 40s",
        "semaphore acquire a1: granted, acquire A: held -, left permit:a=1:40s:1 40s",
        "semaphore acquire a1: granted, reentrant acquire b1: kind, left permit:a=1:40s:1 40s",
        "semaphore acquire a1: granted, fair acquire b1 ~20s: kind, left permit:a=1:40s:1 40s",
        "semaphore acquire a1: granted, read_write acquire b1: kind, left permit:a=1:40s:1 40s",
        "semaphore acquire a1: granted, read_write acquire b1 read: kind, left permit:a=1:40s:1 40s",
        "acquire A: granted, semaphore acquire b1: kind, left A 40s",
        // The read-write lock of Redisson.
        "write-hash b=1 mode=read 40s, semaphore acquire a1: kind, left b=1 mode=read 40s",
        "write-hash b=1 mode=write 40s, semaphore acquire a1: kind, left b=1 mode=write 40s",
        "reentrant acquire a1: granted, semaphore acquire b1: kind, left a=1 reentrant=1 40s",
        "fair acquire a1: granted, semaphore acquire b1 ~20s: kind, left a=1 fair=1 40s",
        "read_write acquire a1: granted, semaphore acquire b1: kind, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, semaphore extend b1: kind, left writer=1x1:40s:a 40s",
        "read_write acquire a1: granted, semaphore release b1: kind, left writer=1x1:40s:a 40s",
        "write-hash a=1 40s, semaphore acquire b1: kind, left a=1 40s",
        "write-hash permit:a=1:40s:1 slot:1=a semaphore=40s mode=quorlock 40s, semaphore acquire a1: granted, left permit:a=1:40s:1 40s",
        "write-hash permit:a=1:40s:1 slot:1=a semaphore=40s mode=quorlock c=1 40s, inspect: other 40s, left c=1 permit:a=1:40s:1 40s",
    ])
    .await;
}
