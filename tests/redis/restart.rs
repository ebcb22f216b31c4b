//! Masters that are killed, that come back empty, or that are not up yet.

use std::time::Duration;

use quorlock::{AcquireError, Coordinator, LockState, Quarantine};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    common::*,
    quarantine::{connected, lock, quarantining},
};

#[test]
fn a_master_that_restarted_gets_the_pending_release() {
    with_masters(3, async |mut masters| {
        // This server saves its data and loads it again, so the key survives the restart.
        let saved = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
        masters[0] = saved;
        let locks = coordinator(patient(), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;

        masters[0].kill();
        guard.release().await.unwrap();
        masters[0].restart();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn an_attempt_waits_for_masters_that_are_not_up_yet() {
    with_masters(0, async |_| {
        let mut masters: Vec<_> = (0..3).map(|_| Server::reserve()).collect();
        let locks = coordinator(brisk(), &masters);
        let lock = locks.mutex("r");
        let refused = lock.try_acquire().await.unwrap_err();
        assert!(
            matches!(&refused, AcquireError::NoQuorum { .. }),
            "{refused}"
        );
        let late = lock.acquire_within(Duration::from_millis(50)).await;
        assert!(matches!(late, Err(AcquireError::Deadline { .. })));

        let waiting = tokio::spawn(async move { lock.acquire().await });
        masters[0].restart();
        masters[1].restart();
        let guard = waiting.await.unwrap().unwrap();
        assert_eq!(guard.settled().await.granted_count(), 2);
        drop(guard);

        masters[2].restart();
        drop(acquire_on_all(&locks.mutex("r")).await);
        locks.close().await;
        assert_no_keys(&masters);
    });
}

/// The steps of a rolling restart in `docs/operations.md`, by the letter. The rivals ask each
/// restarted master before the holder's next renewal, and so raise its counters.
#[test]
fn a_rolling_restart_keeps_all_locks_that_others_wait_for() {
    const TTL: Duration = Duration::from_millis(2_400);
    with_masters_alone(3, async |mut masters| {
        let builder = || {
            let builder = quarantining(Quarantine::Observed).node_timeout(TTL / 6);
            builder.max_ttl(TTL).ttl(TTL)
        };
        let exclusive = |locks: &Coordinator| {
            KINDS.map(|kind| lock(locks, kind, "held", &locks.owner()).fenced())
        };
        let read_write = |locks: &Coordinator| locks.read_write("read", &locks.owner());

        let locks = connected(builder(), &urls(&masters)).await;
        let mut held = vec![acquire_on_all(&read_write(&locks).read()).await];
        for lock in exclusive(&locks) {
            held.push(acquire_on_all(&lock).await);
        }
        let others = connected(builder(), &urls(&masters)).await;
        let mut rivals = JoinSet::new();
        for lock in [read_write(&others).write()]
            .into_iter()
            .chain(exclusive(&others))
        {
            rivals.spawn(async move { lock.acquire().await });
        }

        for master in &mut masters {
            master.restart();
            until_votes(&locks.mutex("r"), "three votes", |votes| {
                votes.granted_count() == 3
            })
            .await;
            // A waiter looks when a renewal changes the key elsewhere. So it may have the key of
            // the restarted master for a moment, and be in the way of that renewal.
            let mut lacking = Vec::new();
            for _ in 0..6 {
                sleep(TTL / 3).await;
                lacking.clear();
                for guard in &held {
                    let votes = guard.settled().await;
                    if votes.granted_count() < 3 {
                        lacking.push(format!("{}: {votes}, {:?}", guard.name(), guard.state()));
                    }
                }
                if lacking.is_empty() {
                    break;
                }
            }
            assert!(lacking.is_empty(), "not put back: {lacking:#?}");
        }
        for guard in &held {
            assert_eq!(guard.state(), LockState::Held, "{}", guard.name());
            for master in &masters {
                assert_eq!(
                    master.command(&["EXISTS", guard.name()]),
                    "1",
                    "{}",
                    guard.name()
                );
            }
        }
        assert!(rivals.try_join_next().is_none());
    });
}
