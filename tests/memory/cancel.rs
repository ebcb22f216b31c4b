//! Futures that are dropped, at every poll and at every millisecond, leave nothing on the masters.

use quorlock::{AcquireError, Fault, Guard, Kind};
use tokio::time::{sleep, timeout};

use crate::{
    owners::lock,
    world::{NAME, World, delay, millis, polled, seconds},
};

#[tokio::test(start_paused = true)]
async fn try_acquire() {
    dropped_anywhere(2, async |world, end| {
        let lock = world.lock();
        end.of(lock.try_acquire()).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn try_acquire_that_is_refused() {
    dropped_anywhere(3, async |world, end| {
        world.occupy(0..3, seconds(60));
        let lock = world.lock();
        end.of(lock.try_acquire()).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn try_acquire_without_a_quorum() {
    dropped_anywhere(3, async |world, end| {
        world.inject([Fault::Down, Fault::Hang, Fault::Mute]);
        let lock = world.lock();
        end.of(lock.try_acquire()).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn acquire_within() {
    dropped_anywhere(8, async |world, end| {
        world.occupy(0..3, seconds(60));
        let lock = world.lock();
        end.of(lock.acquire_within(millis(60))).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn acquire() {
    dropped_anywhere(8, async |world, end| {
        world.occupy(0..3, millis(60)); // then it is won
        let lock = world.lock();
        end.of(lock.acquire()).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn try_acquire_by_an_owner() {
    for kind in [Kind::Reentrant, Kind::Fair] {
        dropped_anywhere(2, async |world, end| {
            let lock = lock(kind, &world.locks, &world.locks.owner());
            end.of(lock.try_acquire()).await.is_some()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_by_an_owner_who_is_already_in() {
    for kind in [Kind::Reentrant, Kind::Fair] {
        dropped_anywhere(2, async |world, end| {
            let lock = lock(kind, &world.locks, &world.locks.owner());
            let _outer = lock.try_acquire().await.unwrap();
            end.of(lock.acquire()).await.is_some()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_by_an_owner_when_another_lets_go() {
    for kind in [Kind::Reentrant, Kind::Fair] {
        dropped_anywhere(6, async |world, end| {
            let held = lock(kind, &world.locks, &world.locks.owner());
            let held = held.try_acquire().await.unwrap();
            let lock = lock(kind, &world.locks, &world.locks.owner());
            let letting_go = async {
                sleep(millis(130)).await;
                drop(held);
            };
            let (acquired, ()) = tokio::join!(end.of(lock.acquire()), letting_go);
            acquired.is_some()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_by_an_owner_within_a_time() {
    for kind in [Kind::Reentrant, Kind::Fair] {
        dropped_anywhere(5, async |world, end| {
            let held = lock(kind, &world.locks, &world.locks.owner());
            let _held = held.try_acquire().await.unwrap();
            let lock = lock(kind, &world.locks, &world.locks.owner());
            end.of(lock.acquire_within(millis(60))).await.is_some()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn extend() {
    dropped_anywhere(2, async |world, end| {
        let guard = world.guard().await;
        end.of(guard.extend(seconds(20))).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn extend_that_heals() {
    dropped_anywhere(2, async |world, end| {
        let guard = world.guard().await;
        world.masters[0].forget();
        end.of(guard.extend(seconds(20))).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn extend_without_a_quorum() {
    dropped_anywhere(2, async |world, end| {
        let guard = world.guard().await;
        world.inject([Fault::Down, Fault::Down]);
        end.of(guard.extend(seconds(20))).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn settled() {
    dropped_anywhere(2, async |world, end| {
        let guard = world.guard().await;
        end.of(guard.settled()).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn release() {
    dropped_anywhere(2, async |world, end| {
        let guard = world.guard().await;
        end.of(guard.release()).await.is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn close() {
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

/// Of several waiters, one is gone: the others are not the worse for it.
#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_is_in_nobodys_way() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    let lock = world.lock();
    let waiter = lock.acquire();
    assert!(timeout(seconds(1), lock.acquire()).await.is_err());
    guard.release().await.unwrap();
    let guard: Guard = timeout(millis(1), waiter).await.unwrap().unwrap();
    drop(guard);
}

/// Where a future is dropped.
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

/// Runs `case` on five masters, three of which are slow and one each hangs and is mute, with one end after
/// the other until its future is done by then. It takes at least `polls`.
async fn dropped_anywhere(polls: usize, case: impl AsyncFn(&World, End) -> bool) {
    let mut needed = 0;
    while !is_done(&case, End::Polls(needed)).await {
        needed += 1;
    }
    assert!(
        needed >= polls,
        "only {needed} polls: is the case still what it was?"
    );
    for time in 0.. {
        if is_done(&case, End::After(time)).await {
            break;
        }
    }
}

async fn is_done(case: impl AsyncFn(&World, End) -> bool, end: End) -> bool {
    let world = World::new(5).await;
    world.inject([delay(5), delay(10), delay(15), Fault::Hang, Fault::Mute]);
    let is_done = case(&world, end).await;
    sleep(millis(200)).await;
    world.mend();
    world.close().await;
    let holders = world.holders();
    assert!(!holders.contains(&"mine"), "{end:?}: {holders:?}");
    for master in &world.masters {
        let keys = master.keys(); // neither a hash nor a queue
        let is_anothers = master.get(NAME).is_some() && keys == [NAME];
        assert!(keys.is_empty() || is_anothers, "{end:?}: {keys:?}");
    }
    is_done
}
