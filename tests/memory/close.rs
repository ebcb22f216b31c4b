//! The barrier, and where guards and coordinators may be dropped.

use std::{pin::pin, thread};

use quorlock::{AcquireError, Coordinator, Fault, MemoryMaster};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use crate::world::{NAME, World, delay, millis, said, seconds, start, timed};

#[tokio::test(start_paused = true)]
async fn waits_for_what_dropped_guards_posted() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.order([delay(40), delay(20), Fault::None]);
    drop(guard);
    assert_eq!(world.holders(), ["mine"; 3]);
    let (took, ()) = timed(world.close()).await;
    assert_eq!(took, millis(40));
    assert_eq!(world.holders(), [""; 3]);
}

#[tokio::test(start_paused = true)]
async fn refuses_what_comes_later() {
    let world = World::new(3).await;
    let lock = world.lock();
    world.locks.clone().close().await;
    for error in [
        lock.try_acquire().await.unwrap_err(),
        lock.acquire().await.unwrap_err(),
        lock.acquire_within(seconds(1)).await.unwrap_err(),
        world.lock().try_acquire().await.unwrap_err(),
    ] {
        assert!(matches!(error, AcquireError::Closed), "{error}");
    }
    sleep(millis(1)).await;
    assert_eq!(world.commands(), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn ends_waiting() {
    let world = World::new(3).await;
    world.occupy(0..3, seconds(60));
    let lock = world.lock();
    let (result, ()) = tokio::join!(lock.acquire(), async {
        sleep(seconds(5)).await;
        world.close().await;
    });
    assert!(matches!(result, Err(AcquireError::Closed)), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn closing_twice_or_at_once_does_no_harm() {
    let world = World::new(3).await;
    drop(world.guard().await);
    world.masters[0].order(delay(40));
    let (first, second) = (world.locks.clone(), world.locks.clone());
    let closing = async { tokio::join!(first.close(), second.close(), second.close()) };
    let (took, _) = timed(closing).await;
    assert_eq!(took, millis(40));
    let (took, ()) = timed(world.close()).await;
    assert_eq!(took, millis(0));
}

/// Guards that are alive are not hurried.
#[tokio::test(start_paused = true)]
async fn guards_live_on() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    let (took, ()) = timed(world.close()).await;
    assert_eq!(took, millis(0));
    assert!(guard.is_valid());
    world.masters[1].forget();
    guard.extend(seconds(20)).await.unwrap();
    assert_eq!(said(&guard.settled().await), ["granted"; 3]);
    assert_eq!(world.holders(), ["mine"; 3]);
    guard.release().await.unwrap();
    world.close().await;
    assert_eq!(world.holders(), [""; 3]);
}

/// A release that was posted is the masters' business. That somebody still looks at what came of it keeps
/// nobody waiting.
#[tokio::test(start_paused = true)]
async fn does_not_wait_for_whoever_looks_on() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    let mut release = pin!(guard.release());
    start(release.as_mut()).await;
    let closed = timeout(seconds(60), world.locks.close()).await;
    assert!(closed.is_ok(), "a release that nobody polls holds it up");
    assert_eq!(world.holders(), [""; 3]);
    release.await.unwrap();
}

/// As above, for the release of an attempt that was lost.
#[tokio::test(start_paused = true)]
async fn does_not_wait_for_lost_attempts_that_nobody_polls() {
    let world = World::new(3).await;
    world.occupy(0..2, seconds(600));
    let lock = world.lock();
    let mut acquisition = pin!(lock.try_acquire());
    start(acquisition.as_mut()).await;
    sleep(millis(1)).await;
    start(acquisition.as_mut()).await; // lost; its release is posted
    let closed = timeout(seconds(60), world.locks.close()).await;
    assert!(closed.is_ok(), "an attempt that nobody polls holds it up");
    assert_eq!(world.holders(), ["another", "another", ""]);
    acquisition.await.unwrap_err();
}

/// Guards may end on a thread that knows no runtime.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_dropped_on_a_plain_thread_is_released() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    thread::spawn(move || drop(guard)).join().unwrap();
    world.close().await;
    assert_eq!(world.holders(), [""; 3]);
}

#[test]
fn a_guard_may_outlive_its_runtime() {
    let runtime = Runtime::new().unwrap();
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    let (locks, guard) = runtime.block_on(async {
        let locks = Coordinator::new(&masters).unwrap();
        let guard = locks.mutex(NAME).try_acquire().await.unwrap();
        (locks, guard)
    });
    drop(runtime);

    // Nobody is left to serve it; nobody waits either.
    let other = Runtime::new().unwrap();
    other.block_on(async {
        let error = guard.extend(seconds(20)).await.unwrap_err().to_string();
        assert!(error.contains("only 0 of 3 masters confirmed"), "{error}");
        let votes = guard.settled().await;
        assert_eq!(said(&votes), ["closed"; 3]);
        let error = locks.mutex("other").try_acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        drop(guard);
        locks.close().await;
    });
}

/// A caller on one runtime, the supervisors on another that ends while they are asked.
#[test]
fn nobody_waits_for_a_runtime_that_ended() {
    let runtime = Runtime::new().unwrap();
    let other = Runtime::new().unwrap();
    let master = MemoryMaster::new();
    let locks = runtime.block_on(async {
        let locks = Coordinator::builder()
            .master(&master)
            .ttl(seconds(600))
            .node_timeout(seconds(60))
            .build()
            .unwrap();
        drop(locks.mutex("connected").try_acquire().await.unwrap());
        locks
    });
    master.order(Fault::Hang);
    let lock = locks.mutex(NAME);
    let acquisition = other.spawn(async move { lock.try_acquire().await });
    drop(runtime);
    let error = other.block_on(acquisition).unwrap().unwrap_err();
    assert!(error.to_string().ends_with(" closed"), "{error}");
    other.block_on(locks.close());
}

/// Nothing of a coordinator stays in the runtime.
#[tokio::test(start_paused = true)]
async fn its_tasks_end_with_the_last_handle() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let world = World::new(3).await;
    world.masters[2].order(Fault::Down);
    sleep(millis(1)).await; // passes when that is known, so that it will not be owed anything
    let guard = world.guard().await;
    let World { locks, .. } = world;
    let lock = locks.mutex(NAME);
    // One for each master, and one that keeps the locks.
    assert_eq!(tasks(), before + 4);
    drop((locks, lock));
    sleep(seconds(1)).await;
    assert_eq!(tasks(), before + 4);
    guard.release().await.unwrap();
    sleep(millis(1)).await;
    assert_eq!(tasks(), before);
}
