//! A lost round leaves nothing on the masters, whatever state they were in.

use std::pin::pin;

use quorlock::{AcquireError, Fault};
use tokio::time::sleep;

use crate::world::{World, delay, error, millis, seconds, start};

/// Another client holds three of five masters. The other two have the fault when they are asked,
/// and recover from it a second later.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_on_masters_with_a_fault() {
    for fault in [
        Fault::None,
        delay(20),  // answered
        delay(80),  // answered late
        delay(500), // answered after they were given up
        Fault::Down,
        Fault::Hang,
        Fault::Mute, // executed the command, but the reply was lost
        error(),
    ] {
        let world = World::new(5).await;
        world.occupy(0..3, seconds(60));
        for master in &world.masters[3..] {
            master.inject(fault.clone());
        }
        let error = world.lock().try_acquire().await.unwrap_err();
        check_rolled_back(&world, &error, &fault).await;
    }
}

/// The fault begins after the master has granted, before the round is lost.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_on_masters_that_granted_and_then_failed() {
    for fault in [Fault::Down, Fault::Hang, Fault::Mute, delay(500)] {
        let world = World::new(5).await;
        world.occupy(0..3, seconds(60));
        world.inject([delay(20), delay(20), delay(20)]);
        let lock = world.lock();
        let mut acquisition = pin!(lock.try_acquire());
        start(acquisition.as_mut()).await;
        sleep(millis(10)).await;
        assert_eq!(world.holders()[3..], ["mine", "mine"]);
        for master in &world.masters[3..] {
            master.inject(fault.clone());
        }
        let error = acquisition.await.unwrap_err();
        check_rolled_back(&world, &error, &fault).await;
    }
}

/// Fails unless the round was lost to the other client, and has left nothing once `fault` is gone.
async fn check_rolled_back(world: &World, error: &AcquireError, fault: &Fault) {
    assert!(
        matches!(error, AcquireError::Contended { .. }),
        "{fault:?}: {error}"
    );
    sleep(seconds(1)).await;
    world.clear_faults();
    world.close().await;
    let holders = ["another", "another", "another", "", ""];
    assert_eq!(world.holders(), holders, "{fault:?}");
}

/// The release removes the keys, not their TTL.
#[tokio::test(start_paused = true)]
async fn a_lost_round_is_taken_back_at_once() {
    let world = World::new(5).await;
    world.occupy(0..3, seconds(60));
    let before = world.commands();
    let error = world.lock().try_acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Contended { .. }), "{error}");
    assert_eq!(world.holders()[3..], ["", ""]);
    // Masters that refused get the release, too: an answer may be outdated when it is read.
    let seen: Vec<_> = world
        .commands()
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    assert_eq!(seen, [2; 5]);
}

/// A minority answers, and a majority does not.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_without_a_quorum() {
    for fault in [delay(80), Fault::Down, Fault::Hang, Fault::Mute] {
        let world = World::new(5).await;
        for master in &world.masters[2..] {
            master.inject(fault.clone());
        }
        let error = world.lock().try_acquire().await.unwrap_err();
        assert!(
            matches!(error, AcquireError::NoQuorum { .. }),
            "{fault:?}: {error}"
        );
        assert_eq!(world.holders()[..2], ["", ""]);
        sleep(seconds(1)).await;
        world.clear_faults();
        world.close().await;
        assert_eq!(world.holders(), [""; 5], "{fault:?}");
    }
}
