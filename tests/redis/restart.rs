//! Masters that are killed, that come back empty, or that are not up yet.

use std::time::Duration;

use quorlock::{Coordinator, LockState, Quarantine};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    common::*,
    quarantine::{connected, lock, quarantining},
};

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
