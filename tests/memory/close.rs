//! The barrier, and where guards and coordinators may be dropped.

use std::{pin::pin, sync::mpsc, thread};

use quorlock::{AcquireError, Coordinator, Fault, LockState, MemoryMaster};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn waits_for_what_dropped_guards_posted() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.inject([delay(40), delay(20), Fault::None]);
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
    world.masters[0].inject(delay(40));
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

/// As above, while nobody knows whether masters would still confirm it: that is no reason to wait, nor to
/// give up.
#[tokio::test(start_paused = true)]
async fn a_guard_in_doubt_lives_on() {
    for fault in [Fault::Hang, Fault::Mute, Fault::Down, error()] {
        let world = World::new(5).await;
        let guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
        let until = guard.valid_until();
        world.inject(vec![fault.clone(); 3]);
        sleep(seconds(4)).await; // a renewal is due after 3.3 s
        assert_eq!(guard.state(), LockState::InDoubt, "{fault:?}");
        let (took, ()) = timed(world.close()).await;
        assert_eq!(took, millis(0), "{fault:?}");
        assert_eq!(guard.state(), LockState::InDoubt, "{fault:?}");
        assert_eq!(guard.valid_until(), until);
        world.mend();
        sleep(seconds(4)).await;
        assert_eq!(guard.state(), LockState::Held, "{fault:?}");
        assert!(guard.valid_until() > until);
        guard.release().await.unwrap();
        world.close().await;
        assert_eq!(world.holders(), [""; 5], "{fault:?}");
    }
}

/// What its last renewal may have left counts, too: that was sent, and nobody heard what became of it.
#[tokio::test(start_paused = true)]
async fn a_guard_in_doubt_that_is_dropped_is_waited_for_until_masters_hear_or_forget() {
    for comes_back in [Some(seconds(2)), None] {
        let world = World::new(5).await;
        let guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
        world.inject([Fault::Mute, Fault::Mute, Fault::Mute]);
        sleep(seconds(4)).await;
        assert_eq!(guard.state(), LockState::InDoubt);
        let ttl = world.ttls().into_iter().flatten().max().unwrap();
        assert!(ttl > seconds(9), "{ttl:?}");
        world.inject([Fault::Hang, Fault::Hang, Fault::Hang]);
        drop(guard);
        let (took, ()) = timed(async {
            tokio::join!(world.close(), async {
                if let Some(back) = comes_back {
                    sleep(back).await;
                    world.mend();
                }
            });
        })
        .await;
        match comes_back {
            // Sent again over the next connection, if the one it was sent over has been given up.
            Some(back) => assert!(back <= took && took < back + millis(300), "{took:?}"),
            None => assert!(ttl.abs_diff(took) < millis(100), "{took:?} {ttl:?}"),
        }
        assert_eq!(world.holders(), [""; 5], "{comes_back:?}");
    }
}

/// The connection to a master that hangs is given up later than that.
#[tokio::test(start_paused = true)]
async fn returns_when_the_ttl_has_passed_whatever_a_master_does() {
    let timeouts = |builder: quorlock::Builder| builder.node_timeout(seconds(3)).ttl(seconds(5));
    let world = World::with(3, timeouts).await;
    let guard = world.guard().await;
    world.masters[0].inject(Fault::Hang);
    drop(guard);
    let (took, ()) = timed(world.close()).await;
    assert!(seconds(4) < took && took <= seconds(5), "{took:?}");
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

/// Nor need it know one for the next to be served: who waits in this process is woken by the drop itself.
#[tokio::test(start_paused = true)]
async fn a_guard_dropped_on_a_plain_thread_serves_who_waits() {
    let world = World::new(3).await;
    let others = Coordinator::new(&world.masters).unwrap();
    // Another process may hear of it from the first master before the others have it, and try in vain once.
    for (locks, most) in [(&world.locks, 11), (&others, 450)] {
        let guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
        let lock = locks.mutex(NAME);
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        sleep(seconds(20)).await; // renewed meanwhile
        let commands = world.commands();
        thread::spawn(move || drop(guard)).join().unwrap();
        assert_eq!(world.commands(), commands); // this runtime stands still until we wait
        let next = timeout(millis(most), waiting).await.unwrap().unwrap();
        thread::spawn(move || drop(next)).join().unwrap();
        sleep(millis(1)).await; // passes when nobody has anything to do
        assert_eq!(world.holders(), [""; 3]);
    }
    world.close().await;
    others.close().await;
}

/// With its tasks, which hold the lock, wait for it and for its loss. What they cannot deliver any more is
/// gone when the TTL has passed.
#[test]
fn a_runtime_that_ends_takes_guards_and_waiters_with_it() {
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    for is_lost in [false, true] {
        let runtime = paused_runtime();
        runtime.block_on(async {
            let locks = Coordinator::new(&masters).unwrap();
            let guard = locks.mutex(NAME).acquire().await.unwrap();
            for _ in 0..3 {
                let lock = locks.mutex(NAME);
                tokio::spawn(async move { drop(lock.acquire().await) });
            }
            tokio::spawn(async move { drop(guard.lost().await) });
            sleep(seconds(1)).await;
            if is_lost {
                masters.iter().for_each(|master| master.inject(Fault::Hang));
                sleep(millis(2_500)).await; // with a renewal under way
            }
        });
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            drop(runtime);
            let _ = sender.send(());
        });
        let ended = ended.recv_timeout(seconds(10));
        assert!(ended.is_ok(), "it does not end");
        masters.iter().for_each(|master| master.inject(Fault::None));
        paused_runtime().block_on(async {
            let locks = Coordinator::new(&masters).unwrap();
            let lock = locks.mutex(NAME);
            let guard = lock.acquire_within(seconds(16)).await.unwrap();
            guard.release().await.unwrap();
            locks.close().await;
        });
        assert!(masters.iter().all(|master| master.keys().is_empty()));
    }
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
    master.inject(Fault::Hang);
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
    world.masters[2].inject(Fault::Down);
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

/// A first dial that leads nowhere, and a connect timeout that is longer than the TTL.
#[tokio::test(start_paused = true)]
async fn returns_by_the_longest_ttl_while_a_first_dial_is_under_way() {
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    masters[0].inject(Fault::Hang);
    let builder = Coordinator::builder().masters(&masters);
    let builder = builder.ttl(seconds(1)).connect_timeout(seconds(30));
    let locks = builder.build().unwrap();
    drop(locks.mutex(NAME).try_acquire().await.unwrap());
    let (took, ()) = timed(locks.close()).await;
    assert!(took <= seconds(1) + millis(100), "{took:?}");
}

/// The release is in flight to a master that stands still, and the patience with the connection is
/// longer than the TTL.
#[tokio::test(start_paused = true)]
async fn returns_by_the_longest_ttl_while_a_master_stands_still() {
    for (node_timeout, ttl) in [(50, 60), (2_000, 2_500), (60_000, 62_000)] {
        let (node_timeout, ttl) = (millis(node_timeout), millis(ttl));
        let world = World::with(3, |builder| builder.node_timeout(node_timeout).ttl(ttl)).await;
        let guard = world.guard().await;
        world.masters[0].inject(Fault::Hang);
        drop(guard);
        let (took, ()) = timed(world.close()).await;
        assert!(took <= ttl + millis(10), "{took:?} of {ttl:?}");
    }
}
