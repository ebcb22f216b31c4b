//! Locks that are detached from one coordinator, and attached by another one.

use std::time::Duration;

use quorlock::{
    AcquireError, ConfigError, Coordinator, Detached, ExtendError, Fault, Group, Groups, Guard,
    LockKind, LostReason, Quarantine, Reason,
};
use tokio::time::{sleep, timeout};

use crate::world::*;

const LONG: Duration = Duration::from_secs(50);

/// Returns a coordinator of another process.
fn another(world: &World) -> Coordinator {
    let builder = Coordinator::builder().quarantine(Quarantine::Off);
    builder.masters(&world.masters).build().unwrap()
}

async fn detach(guard: impl Into<Guard>) -> Detached {
    let text = guard.into().detach(LONG).await.unwrap().to_string();
    text.parse().unwrap()
}

fn is_gone(attached: Result<Guard, AcquireError>) -> bool {
    attached.is_err_and(|error| *error.reason() == Reason::Gone && error.is_final())
}

/// The process that acquired the lock has ended. Nothing renews the lock in between.
#[tokio::test(start_paused = true)]
async fn a_lock_of_each_kind_is_held_by_one_process_after_the_other() {
    for kind in KINDS {
        let world = World::new(3).await;
        let others = another(&world);
        let lock = own(kind, &world.locks);
        let detached = detach(lock.acquire().await.unwrap()).await;
        assert!(detached.names().eq([NAME]) && detached.ttl() == LONG);
        drop(lock);
        world.close().await;
        drop(world.locks);
        sleep(LONG - seconds(2)).await;
        let refused = own(kind, &others).try_acquire().await.unwrap_err();
        assert!(refused.is_busy(), "{kind}: {refused}");

        let guard = others.attach(&detached).await.unwrap();
        assert_eq!((guard.name(), guard.depth()), (NAME, 1));
        sleep(2 * LONG).await; // the guard renews the lock
        assert!(guard.is_valid(), "{kind}");
        let refused = own(kind, &others).try_acquire().await.unwrap_err();
        assert!(refused.is_busy(), "{kind}: {refused}");
        guard.release().await.unwrap();
        drop(own(kind, &others).try_acquire().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn readers_writers_permits_and_tokens_stay_what_they_were() {
    let world = World::new(3).await;
    let others = another(&world);
    let both = world.locks.read_write(NAME);
    let reader = detach(both.read().acquire().await.unwrap()).await;
    let other_reader = both.read().acquire().await.unwrap();
    let guard = others.attach(&reader).await.unwrap();
    assert!(both.write().try_acquire().await.is_err());
    drop((guard, other_reader));

    let jobs = world.locks.semaphore("jobs", 2);
    let (first, second) = (jobs.acquire().await.unwrap(), jobs.acquire().await.unwrap());
    let slot = second.slot();
    let permit = detach(second).await;
    assert_eq!(permit.slot(), Some(slot));
    let guard = others.attach(&permit).await.unwrap();
    assert_eq!(guard.slot(), Some(slot));
    assert!(jobs.try_acquire().await.is_err());
    guard.release().await.unwrap();
    assert_ne!(jobs.try_acquire().await.unwrap().slot(), first.slot());

    let fenced = world.locks.mutex("fenced").fenced();
    let guard = fenced.acquire().await.unwrap();
    let token = guard.token();
    let detached = detach(guard).await;
    assert!(detached.tokens().eq([("fenced", token)]));
    drop(others.attach(&detached).await.unwrap());
    assert!(fenced.acquire().await.unwrap().token() > token);
}

#[tokio::test(start_paused = true)]
async fn several_names_are_detached_and_attached_together() {
    let world = World::new(3).await;
    let guard = world.locks.multi_mutex(["a", "b"]).acquire().await.unwrap();
    let detached = detach(guard).await;
    assert!(detached.names().eq(["a", "b"]));
    for master in &world.masters {
        master.delete("b");
    }
    assert!(is_gone(another(&world).attach(&detached).await));
    assert!(world.masters[0].get("a").is_some(), "nothing is released");

    let groups = [0, 1].map(|group| {
        let masters = masters(3);
        Group::new(["x", "y"][group], masters)
    });
    let locks = Groups::new(Coordinator::builder(), groups).unwrap();
    let names: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    let guard = locks.multi_mutex(&names).acquire().await.unwrap();
    let detached = detach(guard).await;
    let guard = locks.attach(&detached).await.unwrap();
    assert_eq!(guard.names().count(), 20);
    let name = detached.names().next().unwrap();
    let of_one = locks.of(name).attach(&detached).await.unwrap_err();
    assert!(matches!(
        of_one.reason(),
        Reason::Config(ConfigError::ForeignDetached { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_held_any_more_is_gone() {
    let world = World::new(3).await;
    let others = another(&world);
    let expired = detach(world.guard().await).await;
    sleep(LONG + seconds(1)).await;
    assert!(is_gone(others.attach(&expired).await));

    let taken = detach(world.guard().await).await;
    drop(others.attach(&taken).await.unwrap());
    sleep(seconds(1)).await;
    let _next = others.mutex(NAME).try_acquire().await.unwrap();
    let error = others.attach(&taken).await.unwrap_err();
    let gone = "it is not held any more: it has expired, or was released, broken or forgotten: ";
    let text = format!("could not attach \"orders/42\": {gone}");
    assert!(error.to_string().starts_with(&text), "{error}");
    assert!(is_gone(Err(error)));
}

/// A failed or dropped call releases nothing.
#[tokio::test(start_paused = true)]
async fn a_lock_can_be_attached_after_a_failure() {
    let world = World::new(3).await;
    let others = another(&world);
    let detached = detach(world.guard().await).await;
    world.inject([Fault::Down, Fault::Down]);
    let error = others.attach(&detached).await.unwrap_err();
    assert!(
        *error.reason() == Reason::NoQuorum && error.is_unavailable(),
        "{error}"
    );
    world.clear_faults();
    world.inject_all(&delay(10));
    for patience in 0..20 {
        let attach = others.attach(&detached);
        drop(
            timeout(millis(patience), attach)
                .await
                .map(Result::unwrap)
                .map(std::mem::forget),
        );
    }
    sleep(seconds(1)).await;
    assert_eq!(world.holders(), ["mine"; 3]);
}

/// The masters that lost the key get it back from the renewals of the attached guard.
#[tokio::test(start_paused = true)]
async fn an_attached_lock_is_healed_released_and_lost_like_any_other() {
    let world = World::new(3).await;
    let others = another(&world);
    let detached = detach(world.guard().await).await;
    world.masters[0].delete(NAME);
    let guard = others.attach(&detached).await.unwrap();
    sleep(LONG).await;
    assert_eq!(world.holders(), ["mine"; 3]);
    world.masters.iter().for_each(|master| master.delete(NAME));
    assert_eq!(guard.lost().await.reason, LostReason::TakenAway);
    drop(guard);

    let detached = detach(world.guard().await).await;
    let guard = others.attach(&detached).await.unwrap();
    world.inject([Fault::Down]);
    guard.release().await.unwrap();
    world.clear_faults();
    sleep(seconds(1)).await;
    assert_eq!(world.holders(), [""; 3], "the release is owed");
}

/// A release would take the lock away from the next process.
#[tokio::test(start_paused = true)]
async fn an_abandoned_lock_stays_for_the_next_process() {
    for kind in KINDS {
        let world = World::new(3).await;
        let [worker, others] = [another(&world), another(&world)];
        let detached = detach(own(kind, &world.locks).acquire().await.unwrap()).await;
        let guard = worker.attach(&detached).await.unwrap().abandon_on_drop();
        world.inject([Fault::Down, Fault::Down]);
        drop(guard.detach(LONG).await.unwrap_err());
        world.clear_faults();
        sleep(seconds(1)).await;
        let guard = others.attach(&detached).await.unwrap().abandon_on_drop();
        sleep(2 * LONG).await;
        assert!(guard.is_valid(), "{kind}");
        worker.close().await;
        assert!(guard.is_valid(), "{kind}");
        let job = tokio::spawn(async move {
            let _guard = guard;
            panic!("the job has failed");
        });
        assert!(job.await.is_err());
        let guard = others.attach(&detached).await.unwrap().abandon_on_drop();
        assert!(guard.is_valid(), "{kind}");
        drop(guard);
        sleep(LONG + seconds(1)).await; // nobody renews it
        assert!(is_gone(others.attach(&detached).await), "{kind}");

        // A guard that has lost a lock that another one holds.
        let detached = detach(own(kind, &others).acquire().await.unwrap()).await;
        let lost = others.attach(&detached).await.unwrap().abandon_on_drop();
        lost.stop_renewing();
        let guard = others.attach(&detached).await.unwrap().abandon_on_drop();
        assert_eq!(lost.lost().await.reason, LostReason::Expired, "{kind}");
        drop(lost);
        sleep(LONG).await;
        assert!(guard.is_valid(), "{kind}");
        guard.release().await.unwrap();
        assert!(is_gone(others.attach(&detached).await), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_cannot_be_abandoned_is_dropped() {
    let world = World::new(3).await;
    let owner = world.locks.new_owner();
    let lock = lock(LockKind::Reentrant, &world.locks, &owner);
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    drop(inner.abandon_on_drop());
    assert_eq!(outer.depth(), 1);
    outer.abandon_on_drop().release().await.unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();

    let lock = world.lock().min_hold(seconds(20)); // longer than the TTL
    drop(lock.try_acquire().await.unwrap().abandon_on_drop());
    sleep(seconds(19)).await;
    assert_eq!(world.holders(), ["mine"; 3]);
    sleep(seconds(2)).await;
    assert_eq!(world.holders(), [""; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_or_is_dropped_keeps_or_releases_the_guard() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    world.inject([Fault::Down, Fault::Down]);
    let failed = guard.detach(LONG).await.unwrap_err();
    assert!(matches!(failed.error, ExtendError::NoQuorum(_)), "{failed}");
    assert!(failed.guard.is_valid());
    world.clear_faults();
    sleep(seconds(1)).await;
    world.inject_all(&delay(10));
    assert!(timeout(millis(5), failed.guard.detach(LONG)).await.is_err());
    sleep(seconds(1)).await;
    assert_eq!(world.holders(), [""; 3]);

    let lock = world.lock().min_hold(seconds(5));
    let guard = lock.try_acquire().await.unwrap();
    let failed = guard.detach(LONG).await.unwrap_err();
    let undetachable = |error: &ExtendError| {
        matches!(error, ExtendError::Config(ConfigError::Undetachable { .. }))
    };
    assert!(undetachable(&failed.error), "{failed}");
    sleep(seconds(6)).await;
    failed.guard.detach(LONG).await.unwrap();
}

/// To the masters, an attempt of the owner would take the detached lock over.
#[tokio::test(start_paused = true)]
async fn an_owner_cannot_acquire_what_it_has_detached() {
    for kind in [LockKind::Reentrant, LockKind::Fair, LockKind::ReadWrite] {
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
        let lock = lock(kind, &world.locks, &owner);
        let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
        let failed = inner.detach(LONG).await.unwrap_err();
        drop(failed.guard);
        let detached = detach(outer).await;
        for _ in 0..2 {
            for refused in [lock.try_acquire().await, lock.acquire().await] {
                let refused = refused.unwrap_err();
                assert!(
                    matches!(
                        refused.reason(),
                        Reason::Config(ConfigError::OwnerDetached { .. })
                    ),
                    "{kind}: {refused}"
                );
            }
        }
        let guard = another(&world).attach(&detached).await.unwrap();
        assert!(guard.is_valid());
        drop(
            world
                .locks
                .of_kind(kind, "other", &owner)
                .acquire()
                .await
                .unwrap(),
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_other_masters_or_another_template_is_refused() {
    let world = World::new(3).await;
    let detached = detach(world.guard().await).await;
    let same = || {
        Coordinator::builder()
            .masters(&world.masters)
            .quarantine(Quarantine::Off)
    };
    let before = world.commands();
    for foreign in [
        same().masters(&world.masters[..2]),
        same().masters(masters(3)),
        same().old_masters(masters(3)),
        same().key_template("locks:{name}"),
    ] {
        let refused = foreign
            .build()
            .unwrap()
            .attach(&detached)
            .await
            .unwrap_err();
        let reason = refused.reason();
        assert!(
            matches!(reason, Reason::Config(ConfigError::ForeignDetached { .. })),
            "{refused}"
        );
        assert_eq!(refused.name(), NAME);
    }
    let short = same().max_ttl(LONG / 2).build().unwrap();
    let refused = short.attach(&detached).await.unwrap_err();
    assert!(refused.to_string().contains("max_ttl"), "{refused}");
    let commands = world.commands_since(&before);
    assert!(commands.iter().all(|count| *count < 40), "{commands:?}"); // logins only
    short.close().await;
    let closed = short.attach(&detached).await.unwrap_err();
    assert!(closed.is_final(), "{closed}");
}

/// The minimum holds of several names end one after the other.
#[tokio::test]
async fn several_names_are_detached_together_or_not_at_all() {
    let world = World::new(3).await;
    for _ in 0..50 {
        let lock = world
            .locks
            .multi_mutex(["a", "b", "c", "d"])
            .min_hold(millis(2));
        let mut guard = Guard::from(lock.acquire().await.unwrap());
        let detached = loop {
            match guard.detach(seconds(10)).await {
                Ok(detached) => break detached,
                Err(failed) => guard = failed.guard,
            }
            assert!(guard.is_valid());
        };
        let guard = world.locks.attach(&detached).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_waits_for_the_release_of_an_attached_lock_as_for_any_other() {
    let world = World::new(3).await;
    let others = another(&world);
    let detached = detach(world.guard().await).await;
    let guard = others.attach(&detached).await.unwrap();
    world.inject([Fault::Down]);
    guard.release().await.unwrap();
    assert!(others.close_within(LONG + seconds(1)).await);
}
