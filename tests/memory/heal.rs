//! An extension that a majority confirmed puts the key back on masters that lost it. Nothing else
//! does.

use std::time::Duration;

use quorlock::{Fault, Guard};
use tokio::time::sleep;

use crate::world::{NAME, World, delay, millis, said, seconds};

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
