//! The names of clients on real servers.

use std::time::Duration;

use quorlock::{Coordinator, Kind, Lock};
use tokio::time::timeout;

use crate::common::*;

const CLIENT: &str = "web-3/812";

/// The time limit for a waiter that is woken. It is less than the shortest poll interval.
const WOKEN: Duration = Duration::from_millis(300);

/// Returns the lock for an owner of its own.
fn own(kind: Kind, locks: &Coordinator) -> Lock {
    lock_of_kind(kind, "r", locks, &locks.owner())
}

#[test]
fn a_lock_of_a_client_with_a_name_is_shown_kept_handed_over_and_broken() {
    with_masters_alone(3, async |masters| {
        let ours = coordinator(patient().client_name(CLIENT), &masters);
        let theirs = coordinator(patient(), &masters);
        for kind in KINDS {
            let guard = own(kind, &ours).acquire().await.unwrap();
            let look = own(kind, &theirs);
            let seen = look.inspect().await.unwrap();
            let holder = &seen.holders[0];
            assert_eq!(holder.client.as_deref(), Some(CLIENT), "{kind:?}");
            assert_eq!(seen.to_string().matches(CLIENT).count(), 1, "{seen}");

            assert_eq!(guard.settled().await.granted_count(), 3);
            masters[0].command(&["DEL", "r"]);
            guard.extend(2 * LONG).await.unwrap();
            // The master that lost the key gets it back.
            while !masters.iter().all(|master| pttl(master, "r") > 1_000_000) {
                tokio::time::sleep(millis(5)).await;
            }

            let waiting = own(kind, &theirs);
            let before = asked(&masters);
            let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
            while asked(&masters) < before + 3 {
                tokio::time::sleep(millis(5)).await;
            }
            guard.release().await.unwrap();
            let guard = timeout(WOKEN, waiter).await.unwrap().unwrap();
            let seen = own(kind, &ours).inspect().await.unwrap();
            assert_eq!(seen.holders[0].client, None, "{kind:?}");
            guard.release().await.unwrap();
            // The release on the last master must not come after the next attempt.
            while masters
                .iter()
                .any(|master| master.command(&["EXISTS", "r"]) == "1")
            {
                tokio::time::sleep(millis(5)).await;
            }

            let guard = own(kind, &ours).acquire().await.unwrap();
            assert_eq!(guard.settled().await.granted_count(), 3);
            let seen = look.inspect().await.unwrap();
            let votes = theirs.break_held(&seen).await;
            assert_eq!(votes.granted_count(), 3, "{kind:?}: {votes}");
            drop(guard);
        }
        ours.close().await;
        theirs.close().await;
        assert_no_keys(&masters);
    });
}

/// Returns how often all masters together were asked for a lock.
fn asked(masters: &[Server]) -> u64 {
    let is_attempt = |name: &str| ["eval", "evalsha", "set"].contains(&name);
    masters.iter().map(|master| master.calls(is_attempt)).sum()
}

#[test]
fn the_token_of_a_mutex_is_followed_by_the_name() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient().client_name(CLIENT), &masters);
        let guard = locks.mutex("r").acquire().await.unwrap();
        guard.settled().await;
        let value = masters[0].command(&["GET", "r"]);
        let (token, name) = value.split_once('@').unwrap();
        assert_eq!((token.len(), name), (40, CLIENT));
        let seen = locks.mutex("r").inspect().await.unwrap();
        assert!(!format!("{seen:?} {seen} {guard:?}").contains(token));
        guard.release().await.unwrap();

        for value in [
            "secret@example.com",
            &format!("{token}@a b"),
            &format!("0{token}@secret"),
        ] {
            for master in &masters {
                assert_eq!(master.command(&["SET", "r", value]), "OK");
            }
            let seen = locks.mutex("r").inspect().await.unwrap();
            assert_eq!(seen.holders[0].client, None, "{value}");
            let shown = format!("{seen:?} {seen}");
            assert!(
                !["secret", "example", token]
                    .iter()
                    .any(|part| shown.contains(part))
            );
        }
        locks.close().await;
    });
}
