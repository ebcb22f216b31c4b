//! An extension that a majority confirmed puts the key back on masters that lost it. Nothing else
//! does.

use std::{pin::pin, time::Duration};

use quorlock::{ExtendError, Fault, Guard};
use tokio::time::{Instant, sleep};

use crate::world::{NAME, World, delay, millis, said, seconds, start, timed};

#[tokio::test(start_paused = true)]
async fn an_extension_puts_the_key_back() {
    // The master that lost the key answers before the majority has confirmed, at the same time, or
    // later.
    for delays in [[0, 0, 0], [0, 20, 20], [20, 0, 0], [45, 0, 0]] {
        let world = World::new(3).await;
        let guard = world.guard().await;
        world.inject(delays.map(delay));
        world.masters[0].forget();
        guard.extend(seconds(20)).await.unwrap();
        sleep(seconds(1)).await;
        assert_eq!(world.holders(), ["mine"; 3], "{delays:?}");
        let ttl = world.masters[0].pttl(NAME).unwrap();
        assert!(ttl > seconds(18) && ttl <= seconds(20), "{ttl:?}");
        assert_eq!(said(&guard.votes()), ["granted"; 3]);

        // From now on, the master counts like any other.
        world.masters[1].inject(Fault::Down);
        guard.extend(seconds(30)).await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(world.holders(), ["", "mine", ""]);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_put_back_when_a_majority_has_lost_it() {
    for forgetful in [2, 3] {
        let world = World::new(3).await;
        let guard = world.guard().await;
        sleep(seconds(1)).await;
        let before = world.commands();
        for master in &world.masters[..forgetful] {
            master.forget();
        }
        let holders = world.holders();
        let error = guard.extend(seconds(20)).await.unwrap_err();
        assert!(matches!(error, ExtendError::Lost { .. }), "{error}");
        sleep(seconds(1)).await;
        assert_eq!(world.holders(), holders);
        // No attempt to put a key back was made.
        let extension = before
            .iter()
            .map(|commands| commands + 1)
            .collect::<Vec<_>>();
        assert_eq!(world.commands(), extension);
    }
}

/// If a majority confirms too late, the lock may have been lost in between.
#[tokio::test(start_paused = true)]
async fn nothing_is_put_back_by_an_extension_that_is_too_late() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    sleep(guard.remaining() - millis(10)).await;
    world.masters[0].forget();
    world.inject([Fault::None, delay(20), delay(20)]);
    let error = guard.extend(seconds(20)).await.unwrap_err();
    assert!(matches!(error, ExtendError::TooSlow { .. }), "{error}");
    sleep(seconds(1)).await;
    assert_eq!(world.holders(), ["", "mine", "mine"]);
}

/// The lock is released before the extension finds that one master has no key. By then, a majority
/// has confirmed the release, or the release still waits for votes.
#[tokio::test(start_paused = true)]
async fn nothing_is_put_back_after_the_release() {
    for (release_after, others) in [(0, 45), (0, 0), (10, 45), (10, 0), (39, 45), (39, 0)] {
        let world = World::new(3).await;
        let guard = world.guard().await;
        let commands = world.masters[0].commands();
        world.masters[0].forget();
        world.masters[0].inject(delay(40));
        guard.extend(seconds(20)).await.unwrap();
        sleep(millis(release_after)).await;
        world.inject([40, others, others].map(delay));
        let (took, result) = timed(guard.release()).await;
        result.unwrap();
        assert_eq!(took, millis(others));
        sleep(seconds(1)).await;
        assert_eq!(world.holders(), [""; 3], "{release_after} {others}");
        assert_eq!(world.masters[0].commands(), commands + 2);
    }
}

/// The command that puts the key back is on its way when the lock is released.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_put_back_is_released() {
    for release_after in [41, 60, 79] {
        let world = World::new(3).await;
        let guard = world.guard().await;
        let commands = world.masters[0].commands();
        world.masters[0].forget();
        world.masters[0].inject(delay(40));
        guard.extend(seconds(20)).await.unwrap();
        sleep(millis(release_after)).await;
        guard.release().await.unwrap();
        world.close().await;
        assert_eq!(world.holders(), [""; 3]);
        assert_eq!(world.masters[0].commands(), commands + 3);
    }
}

/// The key that was put back expires later than the others, because it was written later.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_put_back_is_owed_its_release_for_longer() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.masters[0].forget();
    world.masters[0].inject(delay(140));
    let extended = Instant::now();
    guard.extend(seconds(20)).await.unwrap();
    sleep(millis(300)).await;
    assert_eq!(world.holders(), ["mine"; 3]);
    world.masters[0].inject(Fault::Down);
    guard.release().await.unwrap();
    world.close().await;
    assert!(extended.elapsed() >= seconds(20) + millis(140));
}

/// One master answers that the key is gone. Before the key is put back, another client takes the
/// lock on that master.
#[tokio::test(start_paused = true)]
async fn a_key_that_another_client_took_meanwhile_is_left_alone() {
    let (world, guard) = healed_beside_a_rival(seconds(60)).await;
    assert_eq!(world.holders(), ["another", "mine", "mine"]);
    assert_eq!(said(&guard.votes())[0], "held by another holder");
}

/// A waiter takes the master that lost the key for a moment, because the extension woke it.
#[tokio::test(start_paused = true)]
async fn a_key_is_put_back_after_a_rival_has_left() {
    let (world, guard) = healed_beside_a_rival(millis(60)).await;
    assert_eq!(world.holders(), ["mine"; 3]);
    assert_eq!(said(&guard.votes()), ["granted"; 3]);
}

/// Extends a lock that one master has lost. A rival takes that master before the key is put back,
/// and stays for `time`.
async fn healed_beside_a_rival(time: Duration) -> (World, Guard) {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.masters[0].forget();
    world.masters[0].inject(delay(40));
    guard.extend(seconds(20)).await.unwrap();
    sleep(millis(60)).await;
    world.occupy([0], time);
    sleep(seconds(1)).await;
    (world, guard)
}

/// Healing is not a separate round, so no call waits for it.
#[tokio::test(start_paused = true)]
async fn an_extension_does_not_wait_for_healing() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.masters[0].forget();
    world.masters[0].inject(delay(40));
    let mut extension = pin!(guard.extend(seconds(20)));
    start(extension.as_mut()).await;
    let (took, result) = timed(extension).await;
    result.unwrap();
    assert_eq!(took, millis(0));
    let (took, votes) = timed(guard.settled()).await;
    assert_eq!(took, millis(40));
    assert_eq!(said(&votes)[0], "holds nothing");
}

/// One master answers that it holds nothing, but only after the lock has ended. No call has read
/// the guard's state meanwhile.
#[tokio::test(start_paused = true)]
async fn nothing_is_put_back_when_the_validity_is_over() {
    let world = World::with(3, |builder| builder.node_timeout(seconds(4))).await;
    let guard = world.lock().ttl(seconds(6)).acquire().await.unwrap();
    guard.settled().await;
    world.masters[2].forget();
    world.masters[2].inject(delay(11_000));
    let commands = world.masters[2].commands();
    guard.extend(seconds(6)).await.unwrap();
    sleep(seconds(30)).await;
    assert_eq!(world.masters[2].commands(), commands + 1);
    assert!(!guard.is_valid());
}
