//! Which slot of a semaphore a caller gets while masters lack holders.

use std::{future::poll_fn, pin::pin, slice, time::Duration};

use quorlock::{Coordinator, Fault, Guard, LockKind, MemoryMaster};
use tokio::time::{Instant, sleep};

use super::world::{World, masters, millis, seconds, timed};

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
    let masters = masters(3);
    let builder = || {
        let builder = Coordinator::builder().masters(&masters);
        let builder = builder.max_ttl(seconds(600)).ttl(seconds(600));
        builder.silent_waiter_timeout(seconds(120)) // a poll comes after 30 s at the earliest
    };
    let locks = builder().build().unwrap();
    let lock = locks.semaphore(NAME, PERMITS).plain();
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
    let waiting = other.semaphore(NAME, PERMITS).plain();
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
    let response_timeout = millis(50);
    let world = World::with(3, |builder| builder.response_timeout(response_timeout)).await;
    let lock = world.locks.semaphore(NAME, 3).plain();
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(lock.try_acquire().await.unwrap());
    }
    for (slot, master) in world.masters.iter().enumerate() {
        remove(master, &[slot], &guards);
    }
    world.inject_all(&Fault::Delay(response_timeout - millis(5)));
    let (took, refused) = timed(lock.try_acquire()).await;
    let is_refused = matches!(&refused, Err(error) if error.is_busy());
    assert!(is_refused, "{refused:?}");
    assert!(took > 4 * response_timeout, "no second attempt: {took:?}");
    assert!(took <= 5 * response_timeout, "{took:?}");
}

/// Returns what `future` returns. Calls `news` when the masters got commands. Fails if a master got
/// more than 20 of them while no time passed: ten rounds, and what each of them gives back. Looks
/// at each poll, because time does not pass while a waiter makes rounds without a pause.
async fn paused<T>(
    masters: &[MemoryMaster],
    news: impl Fn(),
    future: impl Future<Output = T>,
) -> T {
    const MOST: u64 = 20;
    let commands = || masters.iter().map(MemoryMaster::commands).max().unwrap();
    let (mut began, mut last) = ((Instant::now(), commands()), 0);
    let mut future = pin!(future);
    poll_fn(|cx| {
        let (now, count) = (Instant::now(), commands());
        if now > began.0 {
            began = (now, last);
        }
        if count > last {
            assert!(count - began.1 <= MOST, "{} at {now:?}", count - began.1);
            news();
        }
        last = count;
        future.as_mut().poll(cx)
    })
    .await
}

/// Three masters never choose the same slot: one lacks a holder and grants its slot, and another
/// one grants the slot that is free. The clock of the third is so far off that it accepts no
/// fencing token.
#[tokio::test(start_paused = true)]
async fn a_waiter_pauses_if_the_votes_are_split_again_and_again() {
    // The agreed master is any of the three.
    for (lacking, off) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)].repeat(3) {
        let world = World::new(3).await;
        let lock = world.locks.semaphore(NAME, 2).plain().ttl(seconds(10));
        let mut guards = [
            lock.try_acquire().await.unwrap(),
            lock.try_acquire().await.unwrap(),
        ];
        guards.sort_by_key(Guard::slot);
        let [held, free] = guards;
        let lock = lock.fenced();
        let change = async {
            sleep(millis(20)).await; // the waiter is in the queues
            world.masters[off].set_clock(-2_000_000, 0);
            remove(&world.masters[lacking], &[0], slice::from_ref(&held));
            free.release().await.unwrap();
        };
        let waiter = async { tokio::join!(lock.acquire_within(seconds(60)), change).0 };
        let guard = paused(&world.masters, || (), waiter).await;
        // A renewal of the holder puts its slot back, unless the waiter has it there at that
        // moment.
        assert_eq!(guard.unwrap().slot(), Some(1));
    }
}

/// Calls that come all the time lead to some rounds at once, and then to 20 in a second.
#[tokio::test(start_paused = true)]
async fn a_waiter_pauses_whatever_calls_come() {
    for kind in [LockKind::Fair, LockKind::ReadWrite, LockKind::Semaphore] {
        let world = World::new(3).await;
        let (owner, other) = (world.locks.new_owner(), world.locks.new_owner());
        let lock = |owner| world.locks.of_kind(kind, NAME, owner);
        let held = lock(&owner).try_acquire().await.unwrap();
        let call = || {
            for master in &world.masters {
                let queues = ["queue", "waiters", "writers"]
                    .map(|queue| format!("quorlock:{queue}:{{{NAME}}}"));
                for ticket in queues.iter().flat_map(|queue| master.queue(queue)) {
                    let channel = format!("quorlock:turn:{}", &ticket[17..53]);
                    master.command(&["PUBLISH", &channel, &ticket]);
                }
            }
        };
        let before = world.commands();
        let waiting = lock(&other);
        let waiter = waiting.acquire_within(seconds(5));
        assert!(paused(&world.masters, call, waiter).await.is_err());
        let sent = world.commands_since(&before);
        let most = sent.into_iter().max();
        assert!(most < Some(130), "{kind}: {most:?}");
        assert!(held.is_valid());
    }
}
