//! The numbers of attempts. They make late commands harmless.

use quorlock::MemoryMaster;
use tokio::time::sleep;

use crate::world::{World, seconds};

const NAME: &str = "fair";

/// The command that gives back the grants of one round may arrive after the commands of the next
/// round.
#[tokio::test(start_paused = true)]
async fn every_round_for_a_fair_lock_has_its_own_attempt_number() {
    let world = World::new(3).await;
    let another = [
        ("another", "1"),
        ("quorlock:fair", "1"),
        ("mode", "quorlock"),
    ];
    world.masters[0].set_hash(NAME, another, None);
    world.masters[1].set_hash(NAME, another, None);
    let owner = world.locks.owner();
    let lock = world.locks.fair(NAME, &owner);
    let waits = tokio::spawn(async move { lock.acquire().await.unwrap() });
    sleep(seconds(10)).await; // each attempt gets a grant from one of the three masters

    world.masters[0].delete(NAME);
    let guard = waits.await.unwrap();
    let attempt = |master: &MemoryMaster| -> u64 {
        let fields = master.hash(NAME).unwrap();
        fields["quorlock:fair"].parse().unwrap()
    };
    assert!(attempt(&world.masters[0]) > 2);
    assert_eq!(attempt(&world.masters[0]), attempt(&world.masters[2]));
    guard.release().await.unwrap();
    assert_eq!(world.masters[0].keys(), [""; 0]);
    assert_eq!(world.masters[2].keys(), [""; 0]);
}
