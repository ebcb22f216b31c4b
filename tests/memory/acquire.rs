//! Acquisitions, their outcomes, and the validity of the locks.

use std::{pin::pin, time::Duration};

use quorlock::{AcquireError, Contention, Fault, Guard};
use tokio::time::{Instant, advance, sleep};

use crate::world::{NAME, World, delay, millis, said, seconds, start, timed, valid};

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
            assert_eq!(row.vote().is_some(), delay <= won);
            assert_eq!(row.latency(), (delay <= won).then(|| millis(delay)));
        }
        let (took, votes) = timed(guard.settled()).await;
        assert_eq!(took, millis(delays.into_iter().max().unwrap() - won));
        assert_eq!((votes.granted_count(), votes.failed_count()), (5, 0));
        for (row, delay) in votes.iter().zip(delays) {
            assert_eq!(row.latency(), Some(millis(delay)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_lost_as_soon_as_a_majority_is_impossible() {
    let world = World::new(5).await;
    drop(world.guard().await); // the first attempt tries the rights, too, with a script
    sleep(millis(1)).await;
    world.occupy(0..5, seconds(5));
    let expires = Instant::now() + seconds(5);
    world.inject([10, 20, 30, 40, 45].map(delay));
    let (took, error) = timed(world.lock().try_acquire()).await;
    // Three masters have refused after 30 ms, and the release is sent. Three masters have answered
    // the release after 30 ms more.
    assert_eq!(took, millis(60));
    let AcquireError::Contended {
        reason: Contention::Held { remaining },
        votes,
        ..
    } = error.unwrap_err()
    else {
        panic!("held by another holder");
    };
    assert_eq!(said(&votes)[..3], ["held by another holder"; 3]);
    // The refusals name no time, but the answers to the release do. The first of these answers is
    // 20 ms old and names the longest time.
    assert_eq!(Instant::now() - millis(20) + remaining.unwrap(), expires);
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
async fn a_lock_becomes_invalid_when_its_validity_ends() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    let validity = valid(seconds(10));
    assert_eq!(guard.validity(), validity);
    sleep(validity - millis(1)).await;
    assert!(guard.is_valid());
    assert_eq!((guard.remaining(), guard.validity()), (millis(1), validity));
    sleep(millis(1)).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), millis(0));
    // The keys outlive the validity by the drift allowance.
    assert_eq!(world.ttls(), [Some(millis(102)); 3]);
}

/// The client stalls before the masters' votes arrive.
#[tokio::test(start_paused = true)]
async fn votes_that_arrive_too_late_give_no_lock() {
    for (pause, won) in [(9_897, true), (9_898, false), (20_000, false)] {
        let world = World::new(3).await;
        let lock = world.lock();
        let mut acquisition = pin!(lock.try_acquire());
        start(acquisition.as_mut()).await;
        advance(millis(pause)).await;
        check_too_slow(acquisition, pause, won).await;
        world.close().await;
        assert_eq!(world.holders(), ["", "", ""]);
    }
}

/// The client stalls after the votes have arrived, before it reads them.
#[tokio::test(start_paused = true)]
async fn votes_that_are_read_too_late_give_no_lock() {
    for (pause, won) in [(9_897, true), (9_898, false), (20_000, false)] {
        let world = World::new(3).await;
        let lock = world.lock();
        let mut acquisition = pin!(lock.try_acquire());
        start(acquisition.as_mut()).await;
        sleep(millis(1)).await;
        assert_eq!(world.holders(), ["mine"; 3]);
        advance(millis(pause - 1)).await;
        check_too_slow(acquisition, pause, won).await;
        world.close().await;
        assert_eq!(world.holders(), ["", "", ""]);
    }
}

async fn check_too_slow(
    acquisition: impl Future<Output = Result<Guard, AcquireError>>,
    pause: u64,
    won: bool,
) {
    match acquisition.await {
        Ok(guard) => {
            assert!(won);
            assert_eq!(guard.validity(), millis(9_898 - pause));
        }
        Err(AcquireError::TooSlow {
            elapsed,
            ttl,
            votes,
            ..
        }) => {
            assert!(!won);
            assert_eq!((elapsed, ttl), (millis(pause), seconds(10)));
            assert_eq!(said(&votes), ["granted"; 3]);
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_on_sixty_four_masters_is_won_healed_and_released() {
    let world = World::new(64).await;
    world.occupy(0..31, seconds(60));
    let guard = world.guard().await;
    let votes = guard.settled().await;
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
    assert_eq!(guard.settled().await.granted_count(), 34);
    assert_eq!(world.holders()[63], "mine");

    // The last master is down during the release, so it is owed the release.
    world.masters[63].inject(Fault::Down);
    guard.release().await.unwrap();
    sleep(seconds(1)).await;
    world.clear_faults();
    sleep(seconds(2)).await;
    assert_eq!(world.holders()[31..], [""; 33]);
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
    assert_eq!(world.commands_since(&before), [2; 5]);
}
