//! Masters without free memory. They cannot grant locks, but they still release locks.

use std::time::Duration;

use quorlock::{
    __internals::{is_reentrant, plain},
    Reason, Renewal,
};

use crate::common::*;

fn run_out_of_memory(master: &Server) {
    for setting in [["maxmemory-policy", "noeviction"], ["maxmemory", "1"]] {
        let words = [&["CONFIG", "SET"], &setting[..]].concat();
        assert_eq!(master.command(&words), "OK");
    }
    assert!(master.command(&["SET", "x", "y"]).starts_with("OOM"));
}

#[test]
fn a_held_lock_can_be_extended_and_released_without_memory() {
    with_masters(3, async |masters| {
        let with_fencing = |kind| [(kind, false), (kind, true)];
        for (kind, is_fenced) in KINDS.into_iter().flat_map(with_fencing) {
            let locks = coordinator(patient(), &masters);
            let lock = locks.of_kind(kind, "r", &locks.new_owner());
            let lock = if is_fenced {
                plain(lock.fenced())
            } else {
                lock
            };
            let lock = lock.ttl(Duration::from_secs(30)).renewal(Renewal::Off);
            let guard = lock.try_acquire().await.unwrap();
            assert_eq!(guard.all_votes().await.granted_count(), 3);
            masters.iter().for_each(run_out_of_memory);

            guard.extend(LONG).await.unwrap();
            assert_eq!(guard.all_votes().await.granted_count(), 3);
            for master in &masters {
                assert!(pttl(master, "r") > 60_000);
                // After this, there is no counter that a release could raise.
                master.command(&["DEL", "quorlock:fence:{r}"]);
            }
            guard.release().await.unwrap();
            locks.close().await;
            for master in &masters {
                assert_eq!(master.command(&["EXISTS", "r"]), "0", "{kind}");
                assert_eq!(master.command(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
                master.command(&["DEL", "quorlock:fence:{r}"]);
            }
        }
        assert_no_keys(&masters);
    });
}

/// Without memory, the masters may have a wrong depth. The depth is only informational.
#[test]
fn levels_can_be_acquired_and_released_without_memory() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.new_owner();
        for kind in KINDS.into_iter().filter(|kind| is_reentrant(*kind)) {
            let lock = locks.of_kind(kind, kind.to_string(), &owner);
            let outer = lock.try_acquire().await.unwrap();
            assert_eq!(outer.all_votes().await.granted_count(), 3);
            masters.iter().for_each(run_out_of_memory);

            let inner = lock.try_acquire().await.unwrap();
            assert_eq!(inner.all_votes().await.granted_count(), 3);
            outer.extend(LONG / 2).await.unwrap();
            inner.release().await.unwrap();
            outer.extend(LONG / 2).await.unwrap();
            outer.extend(LONG * 2).await.unwrap();
            outer.release().await.unwrap();
            for master in &masters {
                assert_eq!(master.command(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
            }
        }
        locks.close().await;
        assert_no_keys(&masters);
    });
}

/// The text of a script is sent at its first call over a connection, and again after a flush.
#[test]
fn scripts_are_sent_without_memory() {
    with_masters(3, async |masters| {
        let before = coordinator(patient(), &masters);
        let guard = before.mutex("r").try_acquire().await.unwrap();
        assert_eq!(guard.all_votes().await.granted_count(), 3);
        masters.iter().for_each(run_out_of_memory);
        for master in &masters {
            assert_eq!(master.command(&["SCRIPT", "FLUSH"]), "OK");
        }
        guard.extend(LONG).await.unwrap();
        assert_eq!(guard.all_votes().await.granted_count(), 3);

        let after = coordinator(patient(), &masters);
        let refused = after.mutex("other").try_acquire().await.unwrap_err();
        assert!(*refused.reason() == Reason::NoQuorum);
        assert!(refused.to_string().contains("OOM"), "{refused}");
        guard.release().await.unwrap();
        before.close().await;
        after.close().await;
        assert_no_keys(&masters);
    });
}
