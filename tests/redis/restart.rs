//! Masters that are killed, that come back empty, or that are not up yet.

use std::time::{Duration, Instant};

use quorlock::{AcquireError, Coordinator, LockState, Quarantine, ReleaseError};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    common::*,
    quarantine::{connected, lock, quarantining},
};

#[test]
fn a_dead_master_fails_fast_and_votes_again_when_it_is_back() {
    with_masters(5, async |mut masters| {
        // The node timeout is long, so a wait for the master would be noticed.
        let locks = coordinator(patient(), &masters);
        let lock = locks.mutex("r");
        acquire_on_all(&lock).await.release().await.unwrap();

        masters[0].kill();
        until_votes(&lock, "the dead master unreachable", |votes| {
            is_unreachable(votes, 0)
        })
        .await;
        let start = Instant::now();
        for _ in 0..20 {
            let guard = lock.try_acquire().await.unwrap();
            let votes = guard.settled().await;
            assert_eq!(
                (votes.granted_count(), votes.failed_count()),
                (4, 1),
                "{votes}"
            );
            assert!(is_unreachable(&votes, 0), "{votes}");
            guard.extend(LONG).await.unwrap();
            guard.release().await.unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(5));

        masters[0].restart();
        until_votes(&lock, "five votes", |votes| votes.granted_count() == 5).await;
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn too_few_masters_are_no_quorum_and_not_contention() {
    with_masters(5, async |mut masters| {
        let locks = coordinator(patient(), &masters);
        let lock = locks.mutex("r");
        let guard = acquire_on_all(&lock).await;
        let addresses: Vec<_> = masters[..3]
            .iter_mut()
            .map(|master| {
                master.kill();
                format!("127.0.0.1:{}", master.port())
            })
            .collect();

        let start = Instant::now();
        let refused = lock.try_acquire().await.unwrap_err();
        assert!(
            matches!(&refused, AcquireError::NoQuorum { .. }),
            "{refused}"
        );
        let text = refused.to_string();
        for address in addresses {
            assert!(text.contains(&address), "{text}");
        }
        let Err(ReleaseError::NoQuorum { votes, .. }) = guard.release().await else {
            panic!("unexpected result");
        };
        assert_eq!(
            (votes.granted_count(), votes.failed_count()),
            (2, 3),
            "{votes}"
        );
        assert!(start.elapsed() < Duration::from_secs(4));

        masters[1].restart();
        drop(lock.acquire_within(TEST_TIMEOUT).await.unwrap());
    });
}

#[test]
fn an_extension_heals_a_master_that_restarted_empty() {
    with_masters(5, async |mut masters| {
        let locks = coordinator(patient(), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        let token = masters[1].command(&["GET", "r"]);

        masters[0].restart();
        assert_no_keys(&masters[..1]);
        until("five votes for the extension", async || {
            guard.extend(LONG).await.unwrap();
            (guard.votes().granted_count() == 5).then_some(())
        })
        .await;
        assert_eq!(masters[0].command(&["GET", "r"]), token);
        let ttl = LONG.as_millis() as i64;
        assert!((1..=ttl).contains(&pttl(&masters[0], "r")));

        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

/// The master was unreachable when the lock was won. It got the key only because it was healed.
#[test]
fn a_healed_master_gets_the_release_too() {
    with_masters(3, async |mut masters| {
        masters[0].kill();
        let locks = coordinator(brisk(), &masters);
        let lock = locks.mutex("r");
        let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
        assert!(is_unreachable(&guard.settled().await, 0));
        masters[0].restart();
        until("three votes for the extension", async || {
            guard.extend(LONG).await.unwrap();
            (guard.votes().granted_count() == 3).then_some(())
        })
        .await;

        masters[0].pause();
        until_votes(&locks.mutex("other"), "no connection", |votes| {
            is_unreachable(votes, 0)
        })
        .await;
        guard.release().await.unwrap();
        masters[0].resume();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

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
fn close_waits_for_a_dead_master_only_until_the_ttl_has_passed() {
    with_masters(3, async |mut masters| {
        let locks = coordinator(brisk().ttl(Duration::from_secs(1)), &masters);
        let start = Instant::now();
        let guard = acquire_on_all(&locks.mutex("r")).await;
        masters[0].kill();
        guard.release().await.unwrap();
        locks.close().await;
        let closed = start.elapsed();
        assert!(closed >= Duration::from_millis(990), "{closed:?}");
        assert!(closed < Duration::from_secs(5), "{closed:?}");
        assert_no_keys(&masters[1..]);
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
