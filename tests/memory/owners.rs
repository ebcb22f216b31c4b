//! Reentrant and fair locks when masters fail, and when several tasks of one owner want them at
//! once.

use std::{cell::RefCell, rc::Rc};

use quorlock::{
    __internals::{is_reentrant, plain},
    ConfigError, Coordinator, Fault, LockKind, LockState, LostReason, Owner, Reason, Renewal,
};
use tokio::{
    task::LocalSet,
    time::{sleep, timeout},
};

use crate::world::{KINDS, NAME, World, delay, error, lock, millis, own, seconds, until_queued};

const BOTH: [LockKind; 2] = [LockKind::Reentrant, LockKind::Fair];

/// Returns how deep `owner` holds the lock on each master, or 0 where it does not.
fn depths(world: &World, owner: &Owner) -> Vec<u64> {
    let depth = |master: &quorlock::MemoryMaster| {
        let fields = master.hash(NAME).unwrap_or_default();
        fields
            .get(owner.id())
            .map_or(0, |depth| depth.parse().unwrap())
    };
    world.masters.iter().map(depth).collect()
}

async fn assert_nothing_left(world: &World) {
    world.close().await;
    sleep(millis(1)).await; // lets the answers arrive that no call waits for
    for master in &world.masters {
        assert_eq!(master.keys(), [""; 0]);
    }
}

/// A master first misses that a level is added, and later that a level is removed.
#[tokio::test(start_paused = true)]
async fn a_master_that_missed_a_change_of_depth_learns_it_from_the_next_renewal() {
    for kind in BOTH {
        for fault in [Fault::Down, error()] {
            let world = World::new(3).await;
            let owner = world.locks.new_owner();
            let lock = lock(kind, &world.locks, &owner);
            let outer = lock.acquire().await.unwrap();
            outer.all_votes().await;

            world.masters[0].inject(fault.clone());
            let inner = lock.try_acquire().await.unwrap();
            world.clear_faults();
            assert_eq!(depths(&world, &owner), [1, 2, 2]);
            sleep(seconds(10)).await;
            assert_eq!(depths(&world, &owner), [2; 3]);

            world.masters[0].inject(fault.clone());
            inner.release().await.unwrap();
            world.clear_faults();
            assert_eq!(depths(&world, &owner), [2, 1, 1]);
            sleep(seconds(10)).await;
            assert_eq!(depths(&world, &owner), [1; 3]);

            // The master missed the inner level, but the release still removes the lock from the
            // master.
            world.masters[0].inject(fault.clone());
            let inner = lock.try_acquire().await.unwrap();
            drop((outer, inner));
            world.clear_faults();
            assert_nothing_left(&world).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_guards_of_an_owner_see_the_loss_and_the_owner_can_acquire_anew() {
    for kind in BOTH {
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
        let lock = lock(kind, &world.locks, &owner);
        let old = [lock.acquire().await.unwrap(), lock.acquire().await.unwrap()];
        world.masters[0].forget();
        world.masters[1].forget();
        let (first, second) = tokio::join!(
            timeout(seconds(10), old[0].lost()),
            timeout(seconds(10), old[1].lost())
        );
        for lost in [first.unwrap(), second.unwrap()] {
            assert_eq!(lost.reason, LostReason::TakenAway);
        }
        let new = lock.acquire_within(seconds(1)).await.unwrap();
        assert_eq!((new.depth(), old[0].depth()), (1, 2));
        // Releasing the old guards, including the last one, takes no level from the new lock.
        for guard in old {
            assert!(!guard.is_valid());
            guard.release().await.unwrap();
            sleep(seconds(10)).await;
            assert_eq!(new.state(), LockState::Held);
            assert_eq!(depths(&world, &owner), [1; 3]);
        }
        drop(new);
        assert_nothing_left(&world).await;
    }
}

/// The loss is found only by the attempt to reenter.
#[tokio::test(start_paused = true)]
async fn reentering_a_lost_lock_acquires_it_anew() {
    for kind in BOTH {
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
        let lock = lock(kind, &world.locks, &owner);
        let old = lock.acquire().await.unwrap();
        world.masters[0].forget();
        world.masters[1].forget();
        let new = lock.try_acquire().await.unwrap();
        assert_eq!(old.state(), LockState::Lost(LostReason::TakenAway));
        assert_eq!((new.depth(), new.state()), (1, LockState::Held));
        drop(old);
        sleep(seconds(10)).await;
        assert_eq!(new.state(), LockState::Held);
        assert_eq!(depths(&world, &owner), [1; 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_level_with_a_shorter_ttl_shortens_nothing() {
    for kind in KINDS.into_iter().filter(|kind| is_reentrant(*kind)) {
        let world = World::new(3).await;
        let lock = own(kind, &world.locks).renewal(Renewal::Off);
        let outer = lock.clone().ttl(seconds(60)).acquire().await.unwrap();
        let inner = lock.clone().ttl(seconds(20)).acquire().await.unwrap();
        let left = || (outer.valid_until(), world.ttls());
        let before = left();
        assert!(outer.remaining() > seconds(59), "{kind}");
        assert_eq!(inner.valid_until(), before.0, "{kind}");
        inner.release().await.unwrap();
        sleep(millis(1)).await;
        let after = left();
        assert_eq!(after.0, before.0, "{kind}");
        assert!(after.1.iter().all(|ttl| *ttl > Some(seconds(59))), "{kind}");

        let inner = lock.ttl(seconds(100)).acquire().await.unwrap();
        inner.release().await.unwrap();
        assert!(
            outer.remaining() > seconds(98),
            "{kind}: a longer TTL counts for all levels"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn acquisitions_of_a_lock_without_an_owner_exclude_each_other() {
    let world = World::new(3).await;
    let read_write = world.locks.read_write("config");
    for lock in [world.locks.fair(NAME), plain(read_write.write())] {
        let guard = lock.acquire().await.unwrap();
        for other in [lock.clone(), lock.clone().owner(&world.locks.new_owner())] {
            let refused = other.try_acquire().await.unwrap_err();
            assert!(refused.is_busy(), "{refused}");
        }
        let waiting = lock.clone();
        let waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
        until_queued(&lock, 1).await;
        assert_eq!(guard.depth(), 1);
        guard.release().await.unwrap();
        assert_eq!(waiting.await.unwrap().depth(), 1);

        let lock = lock.owner(&world.locks.new_owner());
        let outer = lock.acquire().await.unwrap();
        assert_eq!(lock.clone().try_acquire().await.unwrap().depth(), 2);
        drop(outer);
    }
    let owned = world
        .locks
        .read_write("config")
        .owner(&world.locks.new_owner());
    let writing = owned.write().acquire().await.unwrap();
    assert_eq!(owned.read().try_acquire().await.unwrap().depth(), 2);
    assert!(read_write.read().try_acquire().await.is_err());
    drop(writing);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_cannot_be_used_is_refused_before_anything_is_sent() {
    let world = World::new(3).await;
    let locks = &world.locks;
    let (owner, foreign) = (
        locks.new_owner(),
        Coordinator::new(&world.masters).unwrap().new_owner(),
    );
    let no_owner = |kind| ConfigError::TakesNoOwner { kind };
    let is_foreign = ConfigError::ForeignOwner {
        owner: foreign.id().to_owned(),
    };
    let refused = "a mutex cannot be given an owner: use a reentrant lock, which an owner can \
                   acquire again";
    assert_eq!(no_owner(LockKind::Mutex).to_string(), refused);
    let commands = world.commands();
    for (lock, error) in [
        (locks.mutex(NAME).owner(&owner), no_owner(LockKind::Mutex)),
        (locks.reentrant(NAME, &foreign), is_foreign.clone()),
        (locks.fair(NAME).owner(&foreign), is_foreign.clone()),
        (
            plain(locks.read_write(NAME).owner(&foreign).read()),
            is_foreign,
        ),
    ] {
        for refused in [
            lock.try_acquire().await,
            lock.acquire_within(seconds(1)).await,
            lock.acquire().await,
        ] {
            let refused = refused.unwrap_err();
            assert_eq!(*refused.reason(), Reason::Config(error.clone()));
        }
    }
    assert_eq!(world.commands(), commands);
}

/// The first task of the owner may release the lock before the owner's other tasks can reenter it.
#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_reenter_in_time_keeps_its_queue_position() {
    for held_for in 0..6 {
        let world = World::new(3).await;
        let others = Coordinator::new(&world.masters).unwrap();
        let held = others.fair(NAME).acquire().await.unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks = LocalSet::new();
        let owner = world.locks.new_owner();
        for n in 0..8 {
            let lock = match n {
                0..5 => lock(LockKind::Fair, &world.locks, &owner),
                _ => lock(LockKind::Fair, &others, &others.new_owner()),
            };
            let order = order.clone();
            tasks.spawn_local(async move {
                let guard = lock.acquire().await.unwrap();
                order.borrow_mut().push(n);
                sleep(millis(if n == 0 { held_for } else { 0 })).await;
                drop(guard);
            });
            tasks.run_until(sleep(millis(20))).await;
            std::thread::sleep(millis(1)); // tickets contain real time, which is not paused
        }
        world.inject_all(&delay(2));
        drop(held);
        timeout(seconds(60), tasks).await.unwrap();
        let order = order.borrow();
        assert!(order[..5].iter().all(|n| *n < 5), "{held_for}: {order:?}");
    }
}
