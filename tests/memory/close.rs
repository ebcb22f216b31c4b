//! `close` waits for owed releases, and guards and coordinators may be dropped anywhere.

use std::{future::ready, pin::pin, sync::mpsc, thread};

use quorlock::{Coordinator, Fault, LockState, MasterSpec, MemoryMaster};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn close_waits_for_the_releases_of_dropped_guards() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.inject([delay(40), delay(20), Fault::None]);
    drop(guard);
    assert_eq!(world.holders(), ["mine"; 3]);
    let (took, ()) = timed(world.close()).await;
    assert_eq!(took, millis(40));
    assert_eq!(world.holders(), [""; 3]);
}

/// The guard is in doubt: its last renewal has no majority. `close` does not wait, and the lock is
/// renewed when the masters work again.
#[tokio::test(start_paused = true)]
async fn close_does_not_end_a_guard_in_doubt() {
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
        world.clear_faults();
        sleep(seconds(4)).await;
        assert_eq!(guard.state(), LockState::Held, "{fault:?}");
        assert!(guard.valid_until() > until);
        guard.release().await.unwrap();
        world.close().await;
        assert_eq!(world.holders(), [""; 5], "{fault:?}");
    }
}

/// The masters executed the last renewal, but their replies were lost. If the masters do not answer
/// the release, `close` waits until the TTL of that renewal has passed.
#[tokio::test(start_paused = true)]
async fn close_waits_until_masters_release_or_forget_a_dropped_guard_in_doubt() {
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
                    world.clear_faults();
                }
            });
        })
        .await;
        match comes_back {
            // The release is sent again over the next connection if the first connection has been
            // given up.
            Some(back) => assert!(back <= took && took < back + millis(300), "{took:?}"),
            None => assert!(ttl.abs_diff(took) < millis(100), "{took:?} {ttl:?}"),
        }
        sleep(millis(1)).await; // masters count in milliseconds
        assert_eq!(world.holders(), [""; 5], "{comes_back:?}");
    }
}

/// The masters' tasks deliver a posted release. `close` does not wait for a `release` future that
/// is not polled.
#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_a_release_future_that_is_not_polled() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    let mut release = pin!(guard.release());
    start(release.as_mut()).await;
    let closed = timeout(seconds(60), world.locks.close()).await;
    assert!(closed.is_ok(), "an unpolled release delays close");
    assert_eq!(world.holders(), [""; 3]);
    release.await.unwrap();
}

/// After a lost attempt, `try_acquire` waits for its release. `close` does not wait for a
/// `try_acquire` future that is not polled.
#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_a_lost_attempt_that_is_not_polled() {
    let world = World::new(3).await;
    world.occupy(0..2, seconds(600));
    let lock = world.lock();
    let mut acquisition = pin!(lock.try_acquire());
    start(acquisition.as_mut()).await;
    sleep(millis(1)).await;
    start(acquisition.as_mut()).await; // the attempt is lost, and its release is posted
    let closed = timeout(seconds(60), world.locks.close()).await;
    assert!(closed.is_ok(), "an unpolled attempt delays close");
    assert_eq!(world.holders(), ["another", "another", ""]);
    acquisition.await.unwrap_err();
}

/// Dropping a guard wakes waiters in the same process, even on a thread without a runtime.
#[tokio::test(start_paused = true)]
async fn a_guard_dropped_on_a_plain_thread_wakes_waiters() {
    let world = World::new(3).await;
    let others = Coordinator::new(&world.masters).unwrap();
    // A waiter in another process may hear of the release from the first master before the other
    // masters have executed it. The waiter then makes one attempt that fails.
    for (locks, most) in [(&world.locks, 11), (&others, 450)] {
        let guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
        let lock = locks.mutex(NAME);
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        sleep(seconds(20)).await; // the lock is renewed meanwhile
        let commands = world.commands();
        thread::spawn(move || drop(guard)).join().unwrap();
        assert_eq!(world.commands(), commands); // no task of this runtime runs until the next await
        let next = timeout(millis(most), waiting).await.unwrap().unwrap();
        thread::spawn(move || drop(next)).join().unwrap();
        sleep(millis(1)).await; // the paused clock advances when all tasks are idle
        assert_eq!(world.holders(), [""; 3]);
    }
    world.close().await;
    others.close().await;
}

/// The runtime ends the tasks that hold the lock, wait for it, or wait for its loss. Keys that can
/// no longer be released expire with the TTL.
#[test]
fn guards_and_waiters_end_with_their_runtime() {
    let masters = masters(3);
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
                sleep(millis(2_500)).await; // a renewal is then under way
            }
        });
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            drop(runtime);
            let _ = sender.send(());
        });
        let ended = ended.recv_timeout(seconds(10));
        assert!(ended.is_ok(), "the runtime does not end");
        masters.iter().for_each(|master| master.inject(Fault::None));
        paused_runtime().block_on(async {
            let locks = Coordinator::new(&masters).unwrap();
            let lock = locks.mutex(NAME);
            let guard = lock.acquire_within(seconds(16)).await.unwrap();
            guard.release().await.unwrap();
            locks.close().await;
            sleep(seconds(16)).await; // an attempt of a waiter may have left a key on a minority
            assert!(masters.iter().all(|master| master.keys().is_empty()));
        });
    }
}

/// The caller and the master run on one runtime, and the supervisors run on another. The
/// supervisors' runtime ends during the call.
#[test]
fn a_call_does_not_wait_for_a_runtime_that_ended() {
    let runtime = Runtime::new().unwrap();
    let other = Runtime::new().unwrap();
    let master = MemoryMaster::new();
    let (server, handle) = (master.clone(), other.handle().clone());
    let spec = MasterSpec::with_connector("redis://memory", move || {
        let _other = handle.enter();
        ready(server.connect())
    });
    let locks = runtime.block_on(async {
        let locks = Coordinator::builder()
            .master(spec)
            .ttl(seconds(600))
            .max_ttl(seconds(600))
            .response_timeout(seconds(60))
            .build()
            .unwrap();
        drop(locks.mutex("connected").try_acquire().await.unwrap());
        locks
    });
    master.inject(Fault::Hang);
    let lock = locks.mutex(NAME);
    let mut acquisition = pin!(lock.try_acquire());
    let waits = async { timeout(millis(1), acquisition.as_mut()).await };
    assert!(other.block_on(waits).is_err());
    drop(runtime);
    let error = other.block_on(acquisition).unwrap_err();
    assert!(error.to_string().ends_with(" closed"), "{error}");
    other.block_on(locks.close());
}

/// No task of a coordinator stays in the runtime.
#[tokio::test(start_paused = true)]
async fn a_coordinators_tasks_end_with_its_last_handle() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let world = World::new(3).await;
    world.masters[2].inject(Fault::Down);
    // After this, the master is known to be down. It is sent no acquisition, so it is owed no
    // release.
    sleep(millis(1)).await;
    let guard = world.guard().await;
    let World { locks, .. } = world;
    let lock = locks.mutex(NAME);
    // One task serves the masters and renews the locks. Each of the two masters has a task for the
    // connection.
    assert_eq!(tasks(), before + 3);
    drop((locks, lock));
    sleep(seconds(1)).await;
    assert_eq!(tasks(), before + 3);
    guard.release().await.unwrap();
    sleep(millis(1)).await;
    assert_eq!(tasks(), before);
}

/// The master answers the release with errors until the lock has expired. Then nothing is left to
/// send.
#[tokio::test(start_paused = true)]
async fn the_task_of_a_coordinator_ends_when_its_last_owed_release_expires() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let world = World::new(1).await;
    let guard = world.guard().await;
    world.inject([error()]);
    drop(guard);
    sleep(seconds(1)).await;
    let World { locks, .. } = world;
    drop(locks);
    sleep(seconds(60)).await;
    assert_eq!(tasks(), before);
}

/// The first dial to one master gets no answer, and the connect timeout is longer than the TTL.
#[tokio::test(start_paused = true)]
async fn close_returns_by_the_longest_ttl_during_a_first_dial() {
    let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    masters[0].inject(Fault::Hang);
    let builder = Coordinator::builder().masters(&masters);
    let builder = builder.ttl(seconds(1)).connect_timeout(seconds(30));
    let locks = builder.build().unwrap();
    drop(locks.mutex(NAME).try_acquire().await.unwrap());
    let (took, ()) = timed(locks.close()).await;
    assert!(took <= seconds(1) + millis(100), "{took:?}");
}
