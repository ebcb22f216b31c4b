//! Waiting for a lock: the times of repeated attempts, and the end of the wait.

use std::time::Duration;

use quorlock::Fault;
use tokio::time::sleep;

use crate::world::{World, delay, millis, seconds, timed};

#[tokio::test(start_paused = true)]
async fn a_time_limit_of_zero_allows_one_attempt() {
    let world = World::new(3).await;
    world.guard().await.release().await.unwrap();
    world.occupy(0..3, seconds(60));
    let before = world.commands();
    let (took, result) = timed(world.lock().acquire_within(millis(0))).await;
    let error = result.unwrap_err();
    let waited = (error.attempts(), error.waited(), took);
    assert_eq!(waited, (1, millis(0), millis(0)));
    assert!(error.is_busy());
    sleep(millis(1)).await;
    assert_eq!(world.commands_since(&before), [2; 3]); // an acquisition and its release
}

/// The lock becomes free between the last random attempt and the deadline.
#[tokio::test(start_paused = true)]
async fn the_last_attempt_is_at_the_deadline() {
    let world = World::with(3, |builder| builder.retry_delay(seconds(1)..=seconds(1))).await;
    world.inject_all(&Fault::ErrorReply("OOM no room".into()));
    let lock = world.lock();
    let ((took, guard), ()) = tokio::join!(timed(lock.acquire_within(millis(2_500))), async {
        sleep(millis(2_200)).await;
        world.clear_faults();
    });
    assert!(guard.is_ok());
    assert_eq!(took, millis(2_500));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_overrun_by_two_attempts_at_most() {
    for (fault, response_timeout) in [
        (Fault::Hang, 50),
        (Fault::Mute, 50),
        (delay(45), 60),
        (delay(80), 90), // after the first late answer
        (Fault::Down, 50),
    ] {
        for limit in [millis(0), millis(1), millis(333), seconds(5)] {
            let world = World::new(3).await;
            world.occupy(0..3, seconds(60));
            world.inject_all(&fault);
            let (took, error) = timed(world.lock().acquire_within(limit)).await;
            assert_eq!(error.unwrap_err().waited(), took);
            // One attempt may be under way at the deadline, and another attempt begins then. Each
            // attempt takes one round and one release.
            assert!(
                took >= limit && took <= limit + millis(4 * response_timeout),
                "{fault:?}: {took:?} of {limit:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_beyond_the_clocks_range_is_no_limit() {
    let world = World::new(3).await;
    world.occupy(0..3, seconds(60));
    let guard = world.lock().acquire_within(Duration::MAX).await.unwrap();
    assert!(guard.is_valid());
}

/// After a split vote, the next attempt follows within a short random delay.
#[tokio::test(start_paused = true)]
async fn a_split_vote_is_tried_again() {
    let world = World::new(5).await;
    world.occupy(0..2, seconds(60));
    let lock = world.lock();
    world.occupy([2], millis(5));
    let (took, guard) = timed(lock.acquire_within(seconds(1))).await;
    assert!(guard.is_ok());
    assert!(took >= millis(5) && took <= millis(21), "{took:?}");
}
