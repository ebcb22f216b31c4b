//! Masters that stand still. Their connections stay open, but the masters do not answer.

use std::time::{Duration, Instant};

use quorlock::{Coordinator, Failure};
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
