//! Releases that cannot be delivered at once. They are delivered when the master is back.

use futures::FutureExt as _;
use quorlock::{Fault, MemoryMaster, Renewal};
use tokio::time::{Instant, sleep};

use crate::world::{NAME, REDIAL, World, delay, error, millis, seconds};

/// The master answered but did nothing, so the release is not delivered.
#[tokio::test(start_paused = true)]
async fn a_master_that_answers_with_an_error_gets_the_release_later() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.masters[0].inject(error());
    guard.release().await.unwrap();
    sleep(seconds(3)).await;
    assert_eq!(world.holders(), ["mine", "", ""]);
    // The release is repeated only after pauses.
    assert!(world.masters[0].commands() < 20);

    world.clear_faults();
    assert!(until_free(&world.masters[0]).await <= REDIAL);
    world.close().await;
}

/// A dropped guard and [`Guard::release`](quorlock::Guard::release) leave the same pending
/// releases.
#[tokio::test(start_paused = true)]
async fn the_release_of_a_dropped_guard_is_pending_as_well() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.inject([Fault::Down, error(), Fault::Hang]);
    drop(guard);
    sleep(seconds(3)).await;
    assert_eq!(world.holders(), ["mine"; 3]);
    world.clear_faults();
    sleep(REDIAL).await;
    assert_eq!(world.holders(), [""; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_pending_release_ends_with_the_ttl() {
    for fault in [
        Fault::Down,
        Fault::Hang,
        Fault::Mute,
        delay(3_600_000),
        error(),
    ] {
        let world = World::new(3).await;
        let start = Instant::now();
        let guard = world.guard().await;
        world.masters[0].inject(fault.clone());
        guard.release().await.unwrap();
        world.close().await;
        let took = start.elapsed();
        assert!(
            took >= seconds(10) && took <= seconds(10) + REDIAL,
            "{fault:?}: {took:?}"
        );
    }
}

async fn until_free(master: &MemoryMaster) -> tokio::time::Duration {
    let start = Instant::now();
    while master.get(NAME).is_some() {
        assert!(start.elapsed() < seconds(100));
        sleep(millis(1)).await;
    }
    start.elapsed()
}

/// The queue of a master is so full that some commands are never sent. No release is executed
/// before its acquisition.
#[tokio::test(start_paused = true)]
async fn a_release_does_not_overtake_its_acquisition_when_the_queue_is_full() {
    let world = World::new(3).await;
    world.inject_all(&delay(10));
    let lock = |n| {
        world
            .locks
            .mutex(format!("{n}"))
            .ttl(seconds(600))
            .renewal(Renewal::Off)
    };
    let locks: Vec<_> = (0..18_000).map(lock).collect();
    let mut attempts: Vec<_> = locks
        .iter()
        .map(|lock| Box::pin(lock.try_acquire()))
        .collect();
    let mut waiting = 0;
    for attempt in &mut attempts {
        waiting += usize::from(attempt.as_mut().now_or_never().is_none());
    }
    assert_eq!(waiting, 16_384);
    sleep(millis(12)).await;
    drop(attempts);
    sleep(seconds(20)).await;
    world.close().await;
    let left: Vec<_> = world.masters.iter().map(|m| m.keys().len()).collect();
    assert_eq!(left, [0; 3]);
}
