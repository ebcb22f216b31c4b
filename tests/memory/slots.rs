//! Which slot of a semaphore a caller gets while masters lack holders.

use std::time::Duration;

use quorlock::{AcquireError, Coordinator, Fault, Guard, MemoryMaster};
use tokio::time::Instant;

use super::world::{World, millis, seconds, timed};

const NAME: &str = "a";
const PERMITS: usize = 20;

/// Removes the holders of `slots` from the master.
fn remove(master: &MemoryMaster, slots: &[usize], guards: &[Guard]) {
    let mut fields = master.hash(NAME).unwrap();
    for guard in guards {
        let slot = guard.slot().unwrap();
        if slots.contains(&slot) {
            let owner = fields.remove(&format!("quorlock:slot:{}", slot + 1));
            fields.remove(&format!("quorlock:permit:{}", owner.unwrap()));
        }
    }
    let ttl = master.pttl(NAME);
    master.delete(NAME);
    master.set_hash(NAME, fields, ttl);
}

/// Returns how long a waiter needs for the last free permit, if each master lacks the holders of
/// some slots.
async fn wait_for_last(lacking: [&[usize]; 3]) -> Duration {
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    let builder = || {
        let builder = Coordinator::builder().masters(&masters);
        let builder = builder.max_ttl(seconds(600)).ttl(seconds(600));
        builder.waiter_timeout(seconds(120)) // a poll comes after 30 s at the earliest
    };
    let locks = builder().build().unwrap();
    let lock = locks.semaphore(NAME, PERMITS);
    let mut guards = Vec::new();
    for _ in 0..PERMITS {
        guards.push(lock.try_acquire().await.unwrap());
    }
    let is_last = |guard: &Guard| guard.slot() == Some(PERMITS - 1);
    let last = guards.iter().position(is_last).unwrap();
    guards.remove(last).release().await.unwrap();
    for (master, slots) in masters.iter().zip(lacking) {
        remove(master, slots, &guards);
    }
    let other = builder().build().unwrap();
    let start = Instant::now();
    let waiting = other.semaphore(NAME, PERMITS);
    let guard = waiting.acquire_within(seconds(60)).await.unwrap();
    assert_eq!(guard.slot(), Some(PERMITS - 1));
    start.elapsed()
}

/// A master that lacks holders chooses a slot that is taken. The waiter does not wait for a call
/// then, because a permit is free and no one releases one.
#[tokio::test(start_paused = true)]
async fn the_last_permit_is_found_although_masters_lack_holders() {
    let all: Vec<_> = (0..PERMITS - 1).collect();
    for lacking in [
        [&[3][..], &[7], &[11]],
        [&[1, 2, 3], &[4, 5, 6], &[7, 8, 9]],
        [&all, &[], &[]],
        [&[], &all, &[]],
        [&[], &[], &all],
    ] {
        let mut waits = Vec::new();
        for _ in 0..20 {
            waits.push(wait_for_last(lacking).await);
        }
        let longest = waits.iter().max().unwrap();
        assert!(*longest < seconds(5), "{lacking:?}: {waits:?}");
    }
}

/// Each master has another free slot. So the first attempt is split, and in the second one, the
/// others refuse the slot of the agreed master.
#[tokio::test(start_paused = true)]
async fn an_attempt_at_a_permit_takes_five_node_timeouts_at_most() {
    let node_timeout = millis(50);
    let world = World::with(3, |builder| builder.node_timeout(node_timeout)).await;
    let lock = world.locks.semaphore(NAME, 3);
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(lock.try_acquire().await.unwrap());
    }
    for (slot, master) in world.masters.iter().enumerate() {
        remove(master, &[slot], &guards);
    }
    world.inject_all(&Fault::Delay(node_timeout - millis(5)));
    let (took, refused) = timed(lock.try_acquire()).await;
    let is_refused = matches!(refused, Err(AcquireError::Contended { .. }));
    assert!(is_refused, "{refused:?}");
    assert!(took > 4 * node_timeout, "no second attempt: {took:?}");
    assert!(took <= 5 * node_timeout, "{took:?}");
}
