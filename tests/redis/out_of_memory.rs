//! Masters without free memory. They cannot grant locks, but they still release locks.

use std::time::Duration;

use quorlock::{__internals::has_owner, AcquireError, Renewal};
use testkit::proxy::Proxy;

use crate::common::*;

fn run_out_of_memory(master: &Server) {
    for setting in [["maxmemory-policy", "noeviction"], ["maxmemory", "1"]] {
        let words = [&["CONFIG", "SET"], &setting[..]].concat();
        assert_eq!(master.command(&words), "OK");
    }
    assert!(master.command(&["SET", "x", "y"]).starts_with("OOM"));
}

#[test]
fn a_master_without_memory_counts_as_failed_not_as_refusing() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        masters[..2].iter().for_each(run_out_of_memory);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        let votes = guard.settled().await;
        assert_eq!(
            (
                votes.granted_count(),
                votes.refused_count(),
                votes.failed_count()
            ),
            (3, 0, 2)
        );
        assert!(is_rejected(&votes, 0, "OOM") && is_rejected(&votes, 1, "OOM"));
        drop(guard);

        run_out_of_memory(&masters[2]);
        let refused = locks.mutex("r").try_acquire().await;
        let Err(AcquireError::NoQuorum { votes, .. }) = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!(votes.failed_count(), 3);
        assert!((0..3).all(|master| is_rejected(votes, master, "OOM")));
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("only 2 of 5 masters voted (need 3)")
        );

        locks.close().await;
        assert_no_keys(&masters);
    });
}

/// The round is lost with the second answer, and a majority then confirms the release. Only the
/// slow answer tells that no one can get the lock.
#[test]
fn a_refusal_by_the_only_master_with_memory_is_no_contention() {
    with_masters(3, async |masters| {
        let slow = Proxy::delay(masters[2].port(), Duration::from_millis(10));
        let urls = [masters[0].url(), masters[1].url(), slow.url()];
        let locks = patient().masters(urls).build().unwrap();
        locks.all_ready(Duration::from_secs(5)).await.unwrap();
        masters[0].command(&["SET", "r", "another's", "PX", "60000"]);
        masters[1..].iter().for_each(run_out_of_memory);
        for _ in 0..5 {
            let refused = locks.mutex("r").try_acquire().await;
            assert!(
                matches!(refused, Err(AcquireError::NoQuorum { .. })),
                "{refused:?}"
            );
        }
    });
}

#[test]
fn a_held_lock_can_be_extended_and_released_without_memory() {
    with_masters(3, async |masters| {
        let with_fencing = |kind| [(kind, false), (kind, true)];
        for (kind, is_fenced) in KINDS.into_iter().flat_map(with_fencing) {
            let locks = coordinator(patient(), &masters);
            let lock = locks.of_kind(kind, "r", &locks.owner());
            let lock = if is_fenced { lock.fenced() } else { lock };
            let lock = lock.ttl(Duration::from_secs(30)).renewal(Renewal::Off);
            let guard = lock.try_acquire().await.unwrap();
            assert_eq!(guard.settled().await.granted_count(), 3);
            masters.iter().for_each(run_out_of_memory);

            guard.extend(LONG).await.unwrap();
            assert_eq!(guard.settled().await.granted_count(), 3);
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
        let owner = locks.owner();
        for kind in KINDS.into_iter().filter(|kind| has_owner(*kind)) {
            let lock = locks.of_kind(kind, kind.to_string(), &owner);
            let outer = lock.try_acquire().await.unwrap();
            assert_eq!(outer.settled().await.granted_count(), 3);
            masters.iter().for_each(run_out_of_memory);

            let inner = lock.try_acquire().await.unwrap();
            assert_eq!(inner.settled().await.granted_count(), 3);
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
        assert_eq!(guard.settled().await.granted_count(), 3);
        masters.iter().for_each(run_out_of_memory);
        for master in &masters {
            assert_eq!(master.command(&["SCRIPT", "FLUSH"]), "OK");
        }
        guard.extend(LONG).await.unwrap();
        assert_eq!(guard.settled().await.granted_count(), 3);

        let after = coordinator(patient(), &masters);
        let refused = after.mutex("other").try_acquire().await.unwrap_err();
        assert!(matches!(&refused, AcquireError::NoQuorum { .. }));
        assert!(refused.to_string().contains("OOM"), "{refused}");
        guard.release().await.unwrap();
        before.close().await;
        after.close().await;
        assert_no_keys(&masters);
    });
}
