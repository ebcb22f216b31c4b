//! The names under which the locks of a coordinator are shown.

use quorlock::{Coordinator, Holder, Lock, LockKind, Quarantine};
use tokio::time::timeout;

use crate::world::{KINDS, NAME, World, millis, own, seconds};

const CLIENT: &str = "web-3/812";

/// Returns masters with a coordinator that has a name, and a coordinator without a name.
async fn world_and_nameless() -> (World, Coordinator) {
    let world = World::with(3, |builder| builder.client_name(CLIENT)).await;
    let nameless = Coordinator::builder()
        .quarantine(Quarantine::Off)
        .masters(&world.masters)
        .build();
    (world, nameless.unwrap())
}

async fn holder(lock: &Lock) -> Holder {
    lock.inspect().await.unwrap().holders.remove(0)
}

#[tokio::test(start_paused = true)]
async fn an_inspection_shows_the_client() {
    for kind in KINDS {
        let (world, nameless) = world_and_nameless().await;
        let (ours, theirs) = (own(kind, &world.locks), own(kind, &nameless));
        let guard = ours.acquire().await.unwrap();
        for look in [&ours, &theirs] {
            let seen = look.inspect().await.unwrap();
            let holder = &seen.holders[0];
            assert_eq!(holder.client.as_deref(), Some(CLIENT), "{kind:?}");
            let shown = seen.to_string();
            assert_eq!(shown.matches(CLIENT).count(), 1, "{shown}");
            for master in &world.masters {
                let token = master.get(NAME).unwrap_or_default();
                let secret = token.get(..40).unwrap_or("none");
                assert!(!format!("{seen:?} {shown}").contains(secret));
            }
        }
        guard.release().await.unwrap();

        let guard = theirs.acquire().await.unwrap();
        assert_eq!(holder(&ours).await.client, None, "{kind:?}");
        guard.release().await.unwrap();
    }
}

/// The time is that of the attempt that got the lock, and the renewals leave it alone. A lock of
/// another kind shows none, and so does the common token of a coordinator without a name.
#[tokio::test(start_paused = true)]
async fn a_mutex_shows_since_when_it_is_held() {
    for client in ["a", CLIENT, &"n".repeat(64)] {
        let world = World::with(3, |builder| builder.client_name(client)).await;
        let mutex = world.locks.mutex(NAME);
        let guard = mutex.acquire().await.unwrap();
        let seen = holder(&mutex).await;
        assert_eq!(seen.client.as_deref(), Some(client));
        let since = seen.held_since_ms.unwrap();
        let token = world.masters[0].get(NAME).unwrap();
        assert_eq!((token.len(), &token[54..55]), (55 + client.len(), "@"));

        let waiter = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.acquire().await.unwrap() }
        });
        tokio::time::sleep(seconds(600)).await;
        assert_eq!(holder(&mutex).await.held_since_ms, Some(since));
        guard.release().await.unwrap();
        let _guard = waiter.await.unwrap();
        let next = holder(&mutex).await.held_since_ms.unwrap();
        assert!(next > since + 599_000, "{next:?}, {since:?}");
    }
    for kind in KINDS.into_iter().filter(|kind| *kind != LockKind::Mutex) {
        let (world, _) = world_and_nameless().await;
        let lock = own(kind, &world.locks);
        let _guard = lock.acquire().await.unwrap();
        assert_eq!(holder(&lock).await.held_since_ms, None, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_with_a_name_is_kept_and_handed_over() {
    for kind in KINDS {
        let (world, nameless) = world_and_nameless().await;
        for (first, next) in [(&world.locks, &nameless), (&nameless, &world.locks)] {
            let guard = own(kind, first).acquire().await.unwrap();
            guard.all_votes().await;
            // A master that lost the key gets it back.
            world.masters[0].delete(NAME);
            guard.extend(seconds(20)).await.unwrap();
            guard.all_votes().await;
            assert!(world.masters.iter().all(|master| {
                let has_key = master.get(NAME).is_some() || master.hash(NAME).is_some();
                has_key && master.pttl(NAME) > Some(seconds(19))
            }));

            let waiting = own(kind, next);
            let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
            tokio::time::sleep(millis(100)).await;
            guard.release().await.unwrap();
            // The waiter is woken. It does not find out by a poll.
            let guard = timeout(millis(100), waiter).await.unwrap().unwrap();
            guard.release().await.unwrap();
        }
        world.close().await;
        assert!(world.masters.iter().all(|master| master.keys().is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_with_a_name_reenters_and_waits_under_its_id() {
    let (world, nameless) = world_and_nameless().await;
    let owner = world.locks.new_owner();
    assert!(owner.id().ends_with(":1@web-3/812"), "{owner:?}");
    let fair = world.locks.fair(NAME).owner(&owner);
    let outer = fair.acquire().await.unwrap();
    let inner = fair.acquire().await.unwrap();
    let theirs = nameless.new_owner();
    let seen = holder(&nameless.fair(NAME).owner(&theirs)).await;
    assert_eq!((seen.owner.as_deref(), seen.depth), (Some(owner.id()), 2));

    let waiters = [world.locks.new_owner(), theirs, world.locks.new_owner()];
    let mut waiting = Vec::new();
    for (owner, locks) in waiters.iter().zip([&world.locks, &nameless, &world.locks]) {
        let lock = locks.fair(NAME).owner(owner);
        waiting.push(tokio::spawn(async move { drop(lock.acquire().await) }));
        tokio::time::sleep(millis(10)).await;
    }
    let queue = fair.inspect().await.unwrap().waiters;
    assert_eq!(queue, waiters.each_ref().map(|owner| owner.id()));
    drop((outer, inner));
    for waiter in waiting {
        timeout(seconds(1), waiter).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_part_of_a_foreign_value_is_shown() {
    let (world, nameless) = world_and_nameless().await;
    let hex = "0123456789".repeat(4);
    for value in [
        "secret@secret".to_owned(),
        format!("{hex}0@secret"),
        format!("{}@secret", &hex[1..]),
        format!("{}@secret", hex.replace('9', "A")),
        format!("{hex}@{}secret", "s".repeat(60)),
        format!("{hex}@1764252180042@{}secret", "s".repeat(60)),
        format!("{hex}@1764252180042@"),
        format!("{hex}@sec ret"),
        format!("{hex}@\u{1b}[2Jsecret"),
        "@secret".to_owned(),
    ] {
        for master in &world.masters {
            master.set(NAME, &*value, Some(seconds(10)));
        }
        for kind in KINDS {
            let seen = own(kind, &nameless).inspect().await.unwrap();
            assert_eq!(seen.holders[0].client, None, "{value}");
            let shown = format!("{seen} {seen:?}");
            assert!(
                !shown.contains("sec") && !shown.contains("01234"),
                "{shown}"
            );
        }
    }
    // Owners of other libraries.
    for owner in [
        "6e3814a1-e847-452b-a982-45baf93a1df0:17",
        "someone@example.com",
    ] {
        for master in &world.masters {
            master.set_hash(NAME, [(owner, "2")], Some(seconds(10)));
        }
        let seen = holder(&own(LockKind::Reentrant, &nameless)).await;
        let found = (seen.owner.as_deref(), seen.client, seen.depth);
        assert_eq!(found, (Some(owner), None, 2));
    }
}
