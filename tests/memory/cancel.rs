//! Futures dropped at any poll or millisecond leave nothing on the masters.

use quorlock::{__internals::is_reentrant, AcquireError, Fault, Kind, Lock};
use tokio::time::{sleep, timeout};

use crate::world::{KINDS, NAME, World, delay, lock, millis, polled, seconds};

#[tokio::test(start_paused = true)]
async fn a_dropped_try_acquire_that_fails_leaves_nothing() {
    let refuse: fn(&World) = |world| world.occupy(0..3, seconds(60));
    let fail: fn(&World) = |world| world.inject([Fault::Down, Fault::Hang, Fault::Mute]);
    for prepare in [refuse, fail] {
        dropped_anywhere(3, async |world, end| {
            prepare(world);
            end.of(world.lock().try_acquire()).await.is_some()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reentry_leaves_nothing() {
    for kind in KINDS.into_iter().filter(|kind| is_reentrant(*kind)) {
        dropped_anywhere(2, async |world, end| {
            let lock = own(kind, world);
            let _outer = lock.try_acquire().await.unwrap();
            end.of(lock.acquire()).await.is_some()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_extend_that_puts_a_key_back_leaves_nothing() {
    dropped_anywhere(2, async |world, end| {
        let guard = world.guard().await;
        world.masters[0].forget();
        end.of(guard.extend(seconds(20))).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_settled_leaves_nothing() {
    dropped_anywhere(2, async |world, end| {
        let guard = world.guard().await;
        end.of(guard.settled()).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_close_leaves_nothing() {
    dropped_anywhere(2, async |world, end| {
        drop(world.guard().await);
        let is_done = end.of(world.close()).await.is_some();
        if end.is_polled() {
            let refused = world.lock().try_acquire().await;
            assert!(matches!(refused, Err(AcquireError::Closed)));
        }
        is_done
    })
    .await;
}

/// Returns the lock for an owner of its own.
fn own(kind: Kind, world: &World) -> Lock {
    lock(kind, &world.locks, &world.locks.owner())
}

/// The point at which a future is dropped.
#[derive(Clone, Copy, Debug)]
enum End {
    After(u64),
    Polls(usize),
}

impl End {
    async fn of<T>(self, future: impl Future<Output = T>) -> Option<T> {
        match self {
            Self::After(time) => timeout(millis(time), future).await.ok(),
            Self::Polls(polls) => polled(polls, future).await,
        }
    }

    fn is_polled(self) -> bool {
        !matches!(self, Self::Polls(0))
    }
}

/// Runs `case` repeatedly, each time on five new masters: three are slow, one hangs and one is
/// mute. Each run drops the future at a later point, until the future completes before that point.
/// Fails if the future needs fewer than `polls` polls.
async fn dropped_anywhere(polls: usize, case: impl AsyncFn(&World, End) -> bool) {
    let mut needed = 0;
    while !is_done(&case, End::Polls(needed)).await {
        needed += 1;
    }
    assert!(
        needed >= polls,
        "only {needed} polls: does the case still test what it should?"
    );
    let mut time = 0;
    while !is_done(&case, End::After(time)).await {
        time += 1 + time / 100;
    }
}

async fn is_done(case: impl AsyncFn(&World, End) -> bool, end: End) -> bool {
    let world = World::new(5).await;
    world.inject([delay(5), delay(10), delay(15), Fault::Hang, Fault::Mute]);
    let is_done = case(&world, end).await;
    sleep(millis(200)).await;
    world.clear_faults();
    world.close().await;
    let holders = world.holders();
    assert!(!holders.contains(&"mine"), "{end:?}: {holders:?}");
    for master in &world.masters {
        let keys = master.keys(); // neither a hash nor a queue may be left
        let is_anothers = master.get(NAME).is_some() && keys == [NAME];
        assert!(keys.is_empty() || is_anothers, "{end:?}: {keys:?}");
    }
    is_done
}
