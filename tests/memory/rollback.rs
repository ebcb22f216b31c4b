//! A lost round leaves no keys on the masters, whatever their faults are.

use std::pin::pin;

use quorlock::{AcquireError, Fault};
use tokio::time::sleep;

use crate::world::{World, delay, error, millis, seconds, start};

/// Another client holds three of five masters. The other two have the fault during the attempt, and
/// recover a second later.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_on_masters_with_a_fault() {
    for fault in [
        Fault::None,
        delay(20),  // the answer is in time
        delay(80),  // the answer is late
        delay(500), // the answer comes after the connection was given up
        Fault::Down,
        Fault::Hang,
        Fault::Mute, // the command is executed, but the reply is lost
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

/// The fault begins after the masters have granted the lock and before the round is lost.
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

/// Checks that the round was refused by the other client, and that no keys are left after `fault`
/// has gone.
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

/// The release removes the keys, so they do not have to expire.
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
