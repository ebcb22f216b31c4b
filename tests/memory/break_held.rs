//! Breaking a lock that its holder does not release.

use quorlock::{
    AskError, ConfigError, Coordinator, Fault, LockKind, LostReason, Quarantine,
    tools::MasterView,
    votes::{Vote, Votes},
};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{KINDS, NAME, World, millis, own, seconds};

fn granted(votes: &Votes) -> Vec<bool> {
    let rows = votes.iter().map(|row| row.vote == Some(&Vote::Grant));
    rows.collect()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_a_lock_that_is_broken_at_once() {
    for kind in KINDS {
        let world = World::new(3).await;
        let mine = own(kind, &world.locks);
        let guard = mine.acquire().await.unwrap();
        guard.all_votes().await;
        let theirs = own(kind, &world.locks);
        let waiting = tokio::spawn(async move { theirs.acquire().await });
        sleep(seconds(1)).await;

        let seen = mine.inspect().await.unwrap();
        assert!(seen.views().all(|view| matches!(view, MasterView::Held(_))));
        let since = Instant::now();
        let votes = world.locks.break_held(&seen).await.unwrap();
        assert_eq!(granted(&votes), [true; 3], "{votes}");
        let next = timeout(seconds(5), waiting)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(
            since.elapsed() < millis(500),
            "{kind:?}: {:?}",
            since.elapsed()
        );

        // The broken holder finds out at its next renewal.
        let lost = timeout(seconds(10), guard.lost()).await.unwrap();
        assert_eq!(lost.reason, LostReason::TakenAway);
        assert!(next.is_valid(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_holder_keeps_the_lock() {
    for kind in KINDS {
        let world = World::new(3).await;
        let old = own(kind, &world.locks).acquire().await.unwrap();
        let seen = own(kind, &world.locks).inspect().await.unwrap();
        old.release().await.unwrap();
        let new = own(kind, &world.locks).acquire().await.unwrap();
        new.all_votes().await;

        let votes = world.locks.break_held(&seen).await.unwrap();
        assert_eq!(
            (votes.granted_count(), votes.refused_count()),
            (0, 3),
            "{votes}"
        );
        sleep(seconds(20)).await;
        assert!(new.is_valid(), "{kind:?}");
    }
}

/// Each master may have a holder of its own, as after a split vote.
#[tokio::test(start_paused = true)]
async fn every_holder_that_was_seen_is_broken() {
    for kind in KINDS {
        let world = World::new(17).await;
        let mut holders = Vec::new();
        for master in &world.masters {
            let locks = Coordinator::builder()
                .quarantine(Quarantine::Off)
                .master(master)
                .build()
                .unwrap();
            sleep(millis(1)).await;
            let guard = own(kind, &locks).acquire().await.unwrap();
            holders.push((locks, guard));
        }
        let seen = own(kind, &world.locks).inspect().await.unwrap();
        let votes = world.locks.break_held(&seen).await.unwrap();
        assert_eq!(granted(&votes), [true; 17], "{kind:?}: {votes}");
    }
}

/// A mutex has no owner, so its holder is known by its client name.
#[tokio::test(start_paused = true)]
async fn a_break_can_remove_one_holder_of_a_mutex() {
    let world = World::new(3).await;
    let mut guards = Vec::new();
    for (client, masters) in [("a", 0..2), ("b", 2..3)] {
        let locks = Coordinator::builder()
            .quarantine(Quarantine::Off)
            .client_name(client)
            .masters(&world.masters[masters]);
        let locks = locks.build().unwrap();
        let guard = locks.mutex(NAME).acquire().await.unwrap();
        guard.all_votes().await;
        guards.push(guard);
    }
    let seen = world.locks.mutex(NAME).inspect().await.unwrap();
    assert_eq!(seen.holders[0].client.as_deref(), Some("a"));
    let a = &seen.holders[0];
    let mut b = a.clone(); // it has no majority, so it is not shown
    b.client = Some("b".to_owned());
    let votes = world.locks.break_held(&seen.only(&b)).await.unwrap();
    assert_eq!(granted(&votes), [false, false, true], "{votes}");
    let votes = world.locks.break_held(&seen.only(a)).await.unwrap();
    assert_eq!(granted(&votes), [true, true, false], "{votes}");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_is_down_is_a_failure() {
    let world = World::new(3).await;
    let mutex = world.locks.mutex(NAME);
    let guard = mutex.acquire().await.unwrap();
    guard.all_votes().await;
    world.masters[0].inject(Fault::Down);
    sleep(seconds(1)).await;
    let seen = mutex.inspect().await.unwrap();
    let views: Vec<_> = seen
        .views()
        .map(|view| view == MasterView::Unknown)
        .collect();
    assert_eq!(views, [true, false, false]);
    let votes = world.locks.break_held(&seen).await.unwrap();
    assert_eq!(granted(&votes), [false, true, true], "{votes}");
    assert_eq!(votes.failed_count(), 1);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_the_views_are_in_the_error() {
    let world = World::new(3).await;
    let mutex = world.locks.mutex(NAME);
    let guard = mutex.acquire().await.unwrap();
    guard.all_votes().await;
    for master in &world.masters[..2] {
        master.inject(Fault::Down);
    }
    sleep(seconds(1)).await;
    let Err(AskError::NoQuorum(error)) = mutex.inspect().await else {
        panic!("one of three masters is no majority");
    };
    let (views, votes) = (error.views(), &error.votes);
    assert_eq!(views[..2], [MasterView::Unknown, MasterView::Unknown]);
    assert!(matches!(&views[2], MasterView::Held(held) if held[0].kind == Some(LockKind::Mutex)));
    assert_eq!(votes.failed_count(), 2);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn an_inspection_of_another_coordinator_breaks_nothing() {
    let (world, other) = (World::new(3).await, World::new(3).await);
    let guard = world.lock().try_acquire().await.unwrap();
    let seen = world.lock().inspect().await.unwrap();
    let commands = other.commands();
    let refused = other.locks.break_held(&seen).await;
    assert!(
        matches!(
            refused,
            Err(AskError::Config(ConfigError::ForeignInspection))
        ),
        "{refused:?}"
    );
    assert_eq!(other.commands(), commands);
    assert!(guard.is_valid());
}
