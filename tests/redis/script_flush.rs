//! Servers that forget our scripts while connections to them are open.

use quorlock::health::MasterHealth;

use crate::common::*;

/// The others refuse, so the slow master gets the acquisition and its release together. It lacks
/// the script of the acquisition, which is not sent again after its release.
#[test]
fn a_slow_master_that_lost_the_scripts_still_takes_locks() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let (mine, yours) = (locks.new_owner(), locks.new_owner());
        let held = acquire_on_all(&locks.reentrant("r", &mine)).await;
        let lock = locks.reentrant("r", &yours);
        lock.try_acquire().await.unwrap_err();

        assert_eq!(masters[2].command(&["SCRIPT", "FLUSH"]), "OK");
        masters[2].pause();
        let error = lock.try_acquire().await.unwrap_err();
        assert!(error.is_busy(), "{error}");
        masters[2].resume();
        // The slow master answers in order.
        held.extend(LONG).await.unwrap();
        assert_eq!(held.all_votes().await.granted_count(), 3);
        let health = locks.health();
        assert!(health.iter().all(MasterHealth::can_vote), "{health:?}");
        locks.close().await;
    });
}

/// A script that a server knows slows down all others a little, so only those that are used come.
#[test]
fn a_server_gets_the_text_of_a_script_once_and_only_if_it_is_used() {
    with_masters(3, async |masters| {
        let sent = |master: &Server| master.calls(|name| name == "eval" || name == "script|load");
        let before: Vec<_> = masters.iter().map(sent).collect();
        let locks = coordinator(patient(), &masters);
        let lock = locks.reentrant("r", &locks.new_owner());
        for _ in 0..3 {
            let guard = lock.try_acquire().await.unwrap();
            assert_eq!(guard.all_votes().await.granted_count(), 3);
            guard.release().await.unwrap();
        }
        locks.close().await;
        for (master, before) in masters.iter().zip(before) {
            // The first acquisition also tries the rights, with a text of its own.
            assert_eq!(sent(master) - before, 3, "two acquisitions and the release");
        }
    });
}

#[test]
fn no_vote_is_lost_to_a_script_flush_whatever_the_kind() {
    with_masters(3, async |masters| {
        let flush = || {
            for master in &masters {
                assert_eq!(master.command(&["SCRIPT", "FLUSH"]), "OK");
            }
        };
        let locks = coordinator(patient(), &masters);
        let (mine, yours) = (locks.new_owner(), locks.new_owner());
        for lock in [locks.reentrant("r", &mine), locks.fair("f").owner(&mine)] {
            flush();
            let outer = lock.try_acquire().await.unwrap();
            assert_eq!(outer.all_votes().await.granted_count(), 3);
            flush();
            let inner = lock.try_acquire().await.unwrap();
            assert_eq!(inner.all_votes().await.granted_count(), 3);
            flush();
            inner.release().await.unwrap();
            flush();
            outer.extend(LONG).await.unwrap();
            assert_eq!(outer.all_votes().await.granted_count(), 3);
            flush();
            outer.release().await.unwrap();
        }
        // A flush costs a waiter no vote.
        let held = locks.fair("f").owner(&mine).try_acquire().await.unwrap();
        flush();
        let next = locks.fair("f").owner(&yours);
        let waits = tokio::spawn(async move { next.acquire().await });
        let queue = "quorlock:queue:{f}";
        until("a waiter", async || {
            let is_queued = |master: &Server| master.command(&["ZCARD", queue]) == "1";
            masters.iter().all(is_queued).then_some(())
        })
        .await;
        flush();
        held.release().await.unwrap();
        let next = waits.await.unwrap().unwrap();
        next.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}
