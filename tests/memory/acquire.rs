//! Acquisitions, their outcomes, and the validity of the locks.

use std::time::Duration;

use quorlock::Fault;
use tokio::time::{Instant, sleep};

use crate::world::{NAME, World, delay, millis, seconds, timed};

#[tokio::test(start_paused = true)]
async fn a_lock_is_won_as_soon_as_a_majority_has_granted() {
    for (delays, won) in [
        ([10, 20, 30, 40, 45], 30),
        ([45, 10, 40, 20, 30], 30),
        ([40, 40, 5, 5, 5], 5),
        ([0, 45, 45, 0, 45], 45),
    ] {
        let world = World::new(5).await;
        world.inject(delays.map(delay));
        let (took, guard) = timed(world.lock().try_acquire()).await;
        assert_eq!(took, millis(won), "{delays:?}");

        let guard = guard.unwrap();
        for (row, delay) in guard.votes().iter().zip(delays) {
            assert_eq!(row.vote.is_some(), delay <= won);
            assert_eq!(row.latency, (delay <= won).then(|| millis(delay)));
        }
        let (took, votes) = timed(guard.all_votes()).await;
        assert_eq!(took, millis(delays.into_iter().max().unwrap() - won));
        assert_eq!((votes.granted_count(), votes.failed_count()), (5, 0));
        for (row, delay) in votes.iter().zip(delays) {
            assert_eq!(row.latency, Some(millis(delay)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn validity_is_ttl_minus_drift_minus_elapsed() {
    for (ttl, ppm, took, micros) in [
        (10_000, 10_000, 0, 9_898_000),
        (10_000, 10_000, 30, 9_868_000),
        (10_000, 0, 30, 9_968_000),
        (60_000, 100_000, 45, 53_953_000),
        (100, 10_000, 45, 52_000),
        (54, 10_000, 50, 1_460),
    ] {
        let world = World::with(3, |builder| builder.drift_ppm(ppm)).await;
        world.inject([0, took, took].map(delay));
        let guard = world.lock().ttl(millis(ttl)).try_acquire().await.unwrap();
        let validity = Duration::from_micros(micros);
        assert_eq!(guard.validity(), validity, "{ttl} {ppm} {took}");
        assert_eq!(guard.remaining(), validity);
        assert_eq!(guard.valid_until(), (Instant::now() + validity).into_std());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_on_sixty_four_masters_is_won_healed_and_released() {
    let world = World::new(64).await;
    world.occupy(0..31, seconds(60));
    let guard = world.guard().await;
    let votes = guard.all_votes().await;
    assert_eq!(
        (votes.granted_count(), votes.refused_count(), votes.quorum()),
        (33, 31, 33)
    );

    // The last master loses the key. The extension puts the key back after the other masters have
    // confirmed.
    world.masters[63].forget();
    assert!(guard.extend(seconds(20)).await.is_err());
    world.masters[0].set(NAME, world.masters[62].get(NAME).unwrap(), None);
    guard.extend(seconds(20)).await.unwrap();
    assert_eq!(guard.all_votes().await.granted_count(), 34);
    assert_eq!(world.holders()[63], "mine");

    // The last master is down during the release, so it is owed the release.
    world.masters[63].inject(Fault::Down);
    guard.release().await.unwrap();
    sleep(seconds(1)).await;
    world.clear_faults();
    sleep(seconds(2)).await;
    assert_eq!(world.holders()[31..], [""; 33]);
}
