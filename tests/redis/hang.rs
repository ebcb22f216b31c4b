//! Masters that stand still. Their connections stay open, but the masters do not answer.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Failure, Lock};
use tokio::time::sleep;

use crate::common::*;

#[test]
fn a_master_that_stands_still_is_given_up_and_taken_back() {
    with_masters(5, async |masters| {
        let locks = coordinator(brisk(), &masters);
        let lock = locks.mutex("r");
        acquire_on_all(&lock).await.release().await.unwrap();

        masters[0].pause();
        let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
        let votes = guard.settled().await;
        let is_late = matches!(row(&votes, 0).failure(), Some(Failure::TimedOut { .. }));
        assert!(is_late, "{votes}");
        guard.release().await.unwrap();
        until_votes(&lock, "the connection given up", |votes| {
            is_unreachable(votes, 0)
        })
        .await;

        masters[0].resume();
        until_votes(&lock, "five votes", |votes| votes.granted_count() == 5).await;
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn an_acquisition_does_not_wait_for_a_master_that_stands_still() {
    with_masters(5, async |masters| {
        // The node timeout is long, so every wait for the master would be noticed.
        let node_timeout = Duration::from_secs(1);
        let locks = coordinator(brisk().node_timeout(node_timeout), &masters);
        let lock = locks.mutex("r");
        acquire_on_all(&lock).await.release().await.unwrap();
        let healthy = times(&lock).await;
        masters[0].pause();
        let hung = times(&lock).await;
        masters[0].resume();

        let most = (healthy[CYCLES / 2] * 20).max(Duration::from_millis(20));
        assert!(hung[CYCLES / 2] < most, "{healthy:?}, {hung:?}");
        // The connection is given up after three timeouts, so only a few cycles can be slow.
        assert!(hung[CYCLES - 2] < node_timeout / 2, "{hung:?}");
        locks.close().await;
        assert_no_keys(&masters);
    });
}

const CYCLES: usize = 51;

/// Returns the times that it takes to acquire and release the lock, sorted.
async fn times(lock: &Lock) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..CYCLES {
        let start = Instant::now();
        let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
        guard.release().await.unwrap();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times
}

/// The time during which a master stands still, relative to the life of one guard.
#[derive(Clone, Copy, Debug)]
enum Hang {
    /// From before the acquisition until after the release.
    AllAlong,
    /// Like `AllAlong`, and then until the connection has been given up.
    AllAlongAndGivenUp,
    /// During the release only.
    Release,
    /// From before the release until the connection has been given up.
    ReleaseAndGivenUp,
    /// Like `ReleaseAndGivenUp`, but the connection is given up before the release.
    GivenUpBeforeRelease,
}

#[test]
fn a_master_that_stood_still_gets_the_release_when_it_goes_on() {
    with_masters(5, async |masters| {
        for hang in [
            Hang::AllAlong,
            Hang::AllAlongAndGivenUp,
            Hang::Release,
            Hang::ReleaseAndGivenUp,
            Hang::GivenUpBeforeRelease,
        ] {
            let locks = coordinator(brisk(), &masters);
            let given_up = async || {
                until_votes(&locks.mutex("other"), "given up", |votes| {
                    is_unreachable(votes, 0)
                })
                .await
            };
            acquire_on_all(&locks.mutex("warm"))
                .await
                .release()
                .await
                .unwrap();
            if matches!(hang, Hang::AllAlong | Hang::AllAlongAndGivenUp) {
                masters[0].pause();
            }
            let lock = locks.mutex("r");
            let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
            if !matches!(hang, Hang::AllAlong | Hang::AllAlongAndGivenUp) {
                assert_eq!(guard.settled().await.granted_count(), 5);
                masters[0].pause();
            }
            if matches!(hang, Hang::GivenUpBeforeRelease) {
                given_up().await;
            }
            guard.release().await.unwrap();
            if matches!(hang, Hang::AllAlongAndGivenUp | Hang::ReleaseAndGivenUp) {
                given_up().await;
            }
            masters[0].resume();
            locks.close().await;
            for master in &masters {
                assert_eq!(master.command(&["KEYS", "*"]), "", "{hang:?}");
            }
        }
    });
}

/// A guard is dropped while most masters stand still. All masters go on later.
#[test]
fn a_lost_round_is_taken_back_from_masters_that_stood_still() {
    with_masters(3, async |masters| {
        let locks = coordinator(brisk(), &masters);
        acquire_on_all(&locks.mutex("warm"))
            .await
            .release()
            .await
            .unwrap();
        masters[0].pause();
        masters[1].pause();
        let refused = locks.mutex("r").try_acquire().await.unwrap_err();
        assert!(
            refused.to_string().contains("no answer in 100ms"),
            "{refused}"
        );
        masters[0].resume();
        masters[1].resume();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

/// Before a master stands still, clients may have sent it any commands over any number of
/// connections. No key of this crate remains on the master.
#[test]
fn masters_that_stand_still_now_and_then_keep_nothing() {
    with_masters(5, async |masters| {
        let locks = coordinator(brisk(), &masters);
        let contenders: Vec<_> = (0..16)
            .map(|number| tokio::spawn(contend(locks.clone(), number)))
            .collect();
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            let master = &masters[rand::random_range(0..masters.len())];
            master.pause();
            sleep(Duration::from_millis(rand::random_range(0..400))).await;
            master.resume();
        }
        for contender in &contenders {
            contender.abort();
        }
        for contender in contenders {
            assert!(contender.await.unwrap_err().is_cancelled());
        }
        locks.close().await;
        assert_no_keys(&masters);
    });
}

async fn contend(locks: Coordinator, number: usize) {
    let lock = locks.mutex(format!("r{}", number % 8));
    loop {
        let Ok(guard) = lock.acquire().await else {
            panic!("the coordinator was closed too early");
        };
        let _ = guard.extend(LONG * 2).await;
        if rand::random() {
            let _ = guard.release().await;
        }
    }
}
