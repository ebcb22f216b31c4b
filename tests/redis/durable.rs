//! Masters that are declared to keep all writes. Some of the servers do keep all writes, and others
//! only seem to do so.

use std::time::Duration;

use quorlock::{AcquireError, Builder, Coordinator, Failure, LockState, Quarantine};
use testkit::proxy::Proxy;
use tokio::join;

use crate::{
    common::*,
    quarantine::{ALWAYS, KEY, connected, copy_once, is_copy, is_quarantined, lock, quarantining},
};

/// Returns a builder that declares all masters as durable. A quarantine lasts longer than any test.
fn trusting() -> Builder {
    patient()
        .quarantine(Quarantine::Observed)
        .durable_masters(true)
        .max_ttl(LONG)
}

/// Waits until the first master is reachable again. Returns whether it has a vote.
async fn has_vote(locks: &Coordinator) -> bool {
    let lock = locks.mutex("vote probe");
    until("a vote or none", async || {
        let guard = lock.try_acquire().await.ok()?;
        let votes = guard.settled().await;
        guard.release().await.ok()?;
        match row(&votes, 0).failure() {
            None => Some(true),
            Some(Failure::Quarantined { .. }) => Some(false),
            Some(_) => None,
        }
    })
    .await
}

/// All masters are killed at once, several times. After each restart, they behave as if they had
/// only been unreachable.
#[test]
fn masters_that_keep_all_writes_vote_at_once_and_still_have_their_locks() {
    if server::is_before_7() {
        return;
    }
    with_masters(0, async |_| {
        let mut masters: Vec<_> = (0..3).map(|_| Server::start_with(&ALWAYS)).collect();
        let locks = connected(trusting(), &urls(&masters)).await;
        let owner = locks.owner();
        for round in 0..2 {
            let mut held = Vec::new();
            for kind in KINDS {
                held.push(acquire_on_all(&lock(&locks, kind, "kept", &owner)).await);
            }
            // The master is killed during the rewrite, or just after it.
            masters[round].command(&["BGREWRITEAOF"]);
            masters.iter_mut().for_each(Server::restart);
            let newcomer = trusting().masters(urls(&masters)).build().unwrap();
            for (kind, held) in KINDS.into_iter().zip(held) {
                let other = lock(&newcomer, kind, "kept", &newcomer.owner());
                let refused = other.try_acquire().await.unwrap_err();
                assert!(
                    matches!(&refused, AcquireError::Contended { .. }),
                    "{round} {kind:?}: {refused}"
                );
                until("three votes", async || {
                    held.extend(LONG).await.ok()?;
                    let votes = held.settled().await;
                    assert!((0..3).all(|master| !is_quarantined(&votes, master)));
                    (votes.granted_count() == 3).then_some(())
                })
                .await;
                assert_eq!(held.state(), LockState::Held);
                held.release().await.unwrap();
                drop(acquire_on_all(&other).await);
            }
            // A client that does not trust the declaration relies on the content of the origin key.
            let other = quarantining(Quarantine::Observed).masters(urls(&masters));
            assert!(has_vote(&other.build().unwrap()).await);
        }
    });
}

/// Restarts a master twice. `options` are its start options. `settings` are changed before the
/// master is first used. `expected` says for each of the two restarts whether the master counts as
/// durable over that restart.
async fn check_durability(options: &[&str], settings: &[&str], expected: [bool; 2]) {
    let mut masters = server::masters(2);
    masters.insert(0, Server::start_with(options));
    if !settings.is_empty() {
        let words = [&["CONFIG", "SET"], settings].concat();
        assert_eq!(masters[0].command(&words), "OK");
    }
    let locks = connected(trusting(), &urls(&masters)).await;
    masters[0].restart();
    let row = format!("{options:?} {settings:?}");
    assert_eq!(has_vote(&locks).await, expected[0], "{row}");
    let newcomer = trusting().masters(urls(&masters)).build().unwrap();
    assert_eq!(has_vote(&newcomer).await, expected[0], "{row}");
    // If the master did not count as durable over the first restart, it is in quarantine for longer
    // than the test. So the second check compares origins, and not votes.
    let origin = || masters[0].command(&["HGET", KEY, "origin"]);
    let before = origin();
    masters[0].restart();
    has_vote(&locks).await;
    let origin = || masters[0].command(&["HGET", KEY, "origin"]);
    assert_eq!(origin() == before, expected[1], "{row}");
}

#[test]
fn a_master_that_was_not_durable_before_or_is_not_now_has_no_vote() {
    if server::is_before_7() {
        return;
    }
    with_masters(0, async |_| {
        let everysec = &ALWAYS[..2];
        let pauses = ["no-appendfsync-on-rewrite", "yes"];
        let and_pauses = [&ALWAYS[..], &["--no-appendfsync-on-rewrite", "yes"]].concat();
        join!(
            check_durability(&ALWAYS, &[], [true, true]),
            check_durability(everysec, &[], [false, false]),
            check_durability(&and_pauses, &[], [false, false]),
            // These rows simulate that durability was switched on just before the restart.
            check_durability(&ALWAYS, &["appendfsync", "everysec"], [false, true]),
            check_durability(&ALWAYS, &pauses, [false, true]),
            // This row simulates that the restart switched durability off.
            check_durability(everysec, &["appendfsync", "always"], [false, false]),
        );
    });
}

/// At the restart, the log of the master is off, and the master loads a snapshot. Switching the log
/// on later does not bring back lost writes.
#[test]
fn a_log_switched_on_after_the_restart_does_not_count() {
    if server::is_before_7() {
        return;
    }
    with_masters(2, async |mut masters| {
        masters.insert(0, Server::start_with(&["--appendfsync", "always"]));
        let switch_on = |master: &Server| {
            assert_eq!(
                master.command(&["CONFIG", "SET", "appendonly", "yes"]),
                "OK"
            );
        };
        switch_on(&masters[0]);
        let is_written = |master: &Server| {
            let info = master.command(&["INFO", "persistence"]);
            (info.contains("aof_rewrite_in_progress:0")
                && !info.contains("aof_last_rewrite_time_sec:-1"))
            .then_some(())
        };
        until("a log", async || is_written(&masters[0])).await;
        let locks = connected(trusting(), &urls(&masters)).await;
        assert_eq!(masters[0].command(&["HGET", KEY, "durable"]), "1");
        assert_eq!(masters[0].command(&["SAVE"]), "OK");
        locks.close().await;
        drop(locks);
        masters[0].restart();
        assert_eq!(masters[0].command(&["HGET", KEY, "durable"]), "1");
        switch_on(&masters[0]);
        until("a log", async || is_written(&masters[0])).await;
        let newcomer = trusting().masters(urls(&masters)).build().unwrap();
        assert!(!has_vote(&newcomer).await);
    });
}

/// The log of the replica has all writes that the master sent to it, including the origin key. The
/// log lacks the writes that the master did not send.
#[test]
fn a_promoted_replica_has_no_vote_however_durable_it_is() {
    if server::is_before_7() || server::is_mixed() {
        return;
    }
    with_masters(2, async |mut masters| {
        masters.insert(0, Server::start_with(&ALWAYS));
        let replica = Server::start_with(&ALWAYS);
        let proxy = Proxy::delay_requests(masters[0].port(), Duration::ZERO);
        let mut urls = urls(&masters);
        urls[0] = proxy.url();
        connected(trusting(), &urls).await.close().await;
        copy_once(&replica, &masters[0]).await;
        assert_eq!(replica.command(&["HGET", KEY, "durable"]), "1");
        proxy.lead_to(replica.port());
        masters[0].kill();
        let newcomer = trusting().masters(&urls).build().unwrap();
        assert!(!has_vote(&newcomer).await);
    });
}

#[test]
fn a_master_with_replicas_or_unreadable_settings_does_not_count_as_durable() {
    if server::is_before_7() || server::is_mixed() {
        return;
    }
    with_masters(4, async |masters| {
        let mut masters = masters;
        let denied = [
            "--user", "lock", "on", ">pw", "~*", "&*", "+@all", "-config",
        ];
        let options = [&ALWAYS[..], &denied].concat();
        let replica = masters.split_off(2);
        for master in [Server::start_with(&ALWAYS), Server::start_with(&options)] {
            masters.insert(0, master);
        }
        let mut urls = urls(&masters[..3]);
        urls[0] = format!("redis://lock:pw@127.0.0.1:{}", masters[0].port());
        let port = masters[1].port().to_string();
        replica[0].command(&["REPLICAOF", "127.0.0.1", &port]);
        until("a copy", async || is_copy(&replica[0])).await;
        let locks = connected(trusting(), &urls).await;
        let durable = |master: &Server| master.command(&["HGET", KEY, "durable"]);
        assert_eq!([durable(&masters[0]), durable(&masters[1])], ["0", "0"]);
        masters[0].restart();
        assert!(!has_vote(&locks).await);
    });
}

#[test]
fn one_more_right_is_enough_to_check_durability() {
    if server::is_before_7() {
        return;
    }
    with_masters(0, async |_| {
        let master = Server::start_with(&ALWAYS);
        let rules =
            "on >pw ~r* ~quorlock:guard +hello +set +get +pttl +del +eval +info +time +hmget +hset";
        let mut words = vec!["ACL", "SETUSER", "lock"];
        words.extend(rules.split(' '));
        words.push("+config|get");
        assert_eq!(master.command(&words), "OK");
        let url = format!("redis://lock:pw@127.0.0.1:{}", master.port());
        let locks = trusting().master(&url).build().unwrap();
        drop(acquire_on_all(&locks.mutex("r")).await);
        assert_eq!(master.command(&["HGET", KEY, "durable"]), "1");
    });
}
