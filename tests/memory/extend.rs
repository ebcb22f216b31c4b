//! Extensions and their effects. A failed extension changes nothing.

use std::pin::pin;

use quorlock::{ExtendError, Fault, LostReason};
use tokio::time::{Instant, advance, sleep};

use crate::world::{
    World, delay, error, held_for_a_second, millis, said, seconds, start, timed, valid,
};

#[tokio::test(start_paused = true)]
async fn an_extension_lengthens_the_validity() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    sleep(seconds(5)).await;
    world.inject([delay(10), delay(20), delay(45)]);
    let asked = Instant::now();
    guard.extend(seconds(20)).await.unwrap();
    // The validity counts from when the extension was sent, not from when it was confirmed.
    assert_eq!(guard.valid_until(), (asked + valid(seconds(20))).into_std());
    assert_eq!(guard.validity(), valid(seconds(20)) - millis(20));
    assert_eq!(said(&guard.votes()), ["granted", "granted", "-"]);
    assert_eq!(said(&guard.all_votes().await), ["granted"; 3]);
    let since = Instant::now() - millis(45);
    let left = |after| Some(since + millis(after) + seconds(20) - Instant::now());
    assert_eq!(world.ttls(), [left(10), left(20), left(45)]);
}

/// The slowest master decides whether the lock is lost.
#[tokio::test(start_paused = true)]
async fn an_extension_waits_for_all_masters_to_tell_whether_the_lock_is_lost() {
    for (slow, lost) in [(delay(40), true), (Fault::Hang, false)] {
        let (world, guard) = held_for_a_second().await;
        world.masters[0].forget();
        world.masters[1].inject(error());
        world.masters[2].forget();
        world.masters[2].inject(slow.clone());
        let (took, error) = timed(guard.extend(seconds(20))).await;
        let error = error.unwrap_err();
        assert_eq!(took, millis(if lost { 40 } else { 50 }));
        assert_eq!(matches!(error, ExtendError::Lost(_)), lost, "{error}");
    }
}

/// The masters confirm in time, but the client stalls before it reads the votes.
#[tokio::test(start_paused = true)]
async fn an_extension_whose_votes_are_read_late_is_valid_until_its_new_end() {
    // The extension succeeds even after the old validity has ended. It fails after the new validity
    // has ended.
    for (pause, expected) in [
        (9_000, Ok(())),
        (59_397, Ok(())),
        (59_398, Err(LostReason::Expired)),
        (61_000, Err(LostReason::Expired)),
    ] {
        let (world, guard) = held_for_a_second().await;
        let mut extension = pin!(guard.extend(seconds(60)));
        start(extension.as_mut()).await;
        sleep(millis(1)).await;
        assert!(world.ttls().iter().all(|ttl| *ttl > Some(seconds(59))));
        advance(millis(pause - 1)).await;
        let result = extension.await.map_err(|error| match error {
            ExtendError::Lost(lost) => lost.reason,
            error => panic!("{error}"),
        });
        assert_eq!(result, expected, "{pause}");
        assert_eq!(guard.is_valid(), result.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_by_an_unusable_ttl_is_refused_and_not_sent() {
    let (world, guard) = held_for_a_second().await;
    let before = (guard.valid_until(), world.commands());
    for ttl in [millis(0), millis(52), seconds(u64::MAX)] {
        let error = guard.extend(ttl).await.unwrap_err();
        assert!(matches!(error, ExtendError::Config(_)), "{error}");
    }
    sleep(millis(1)).await;
    let after = (guard.valid_until(), world.commands());
    assert_eq!(before, after);
}

/// An extension takes effect even if its future is dropped.
#[tokio::test(start_paused = true)]
async fn a_dropped_extension_still_takes_effect() {
    let (world, guard) = held_for_a_second().await;
    world.inject([delay(10), delay(10), delay(10)]);
    let begun = Instant::now();
    start(pin!(guard.extend(seconds(60)))).await;
    sleep(seconds(1)).await;
    let until = Instant::from_std(guard.valid_until());
    assert_eq!(until - begun, seconds(60) - millis(602));
    assert_eq!(world.ttls(), [Some(seconds(59) + millis(10)); 3]);
    guard.release().await.unwrap();
    world.close().await;
    assert_eq!(world.holders(), [""; 3]);
}
