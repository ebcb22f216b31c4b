//! Servers that forget our scripts while we hold connections to them.

use std::convert::Infallible;

use quorlock::Coordinator;
use tokio::task::yield_now;

use crate::common::*;

#[test]
fn no_vote_is_lost_to_a_script_flush() {
    with_masters(5, async |masters| {
        let flush = || {
            for master in &masters {
                assert_eq!(master.command(&["SCRIPT", "FLUSH"]), "OK");
            }
        };
        let locks = coordinator(patient(), &masters);
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        assert_eq!(guard.settled().await.granted(), 5);

        flush();
        guard.extend(LONG).await.unwrap();
        assert_eq!(guard.settled().await.granted(), 5);

        flush();
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn no_vote_is_lost_while_scripts_are_flushed_all_the_time() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        tokio::select! {
            () = cycles(&locks) => {}
            never = flush_for_ever(&masters) => match never {},
        }
        locks.close().await;
        assert_no_keys(&masters);
    });
}

async fn cycles(locks: &Coordinator) {
    for number in 0..200 {
        // Another name each time: a master whose release is late for want of the script would
        // rightly refuse the same one.
        let lock = locks.mutex(format!("r{number}"));
        let guard = lock.try_acquire().await.unwrap();
        guard.extend(LONG * 2).await.unwrap();
        let votes = guard.settled().await;
        assert_eq!(votes.granted(), 5, "{votes}");
        guard.release().await.unwrap();
    }
}

async fn flush_for_ever(masters: &[Server]) -> Infallible {
    loop {
        for master in masters {
            assert_eq!(master.command(&["SCRIPT", "FLUSH"]), "OK");
            yield_now().await;
        }
    }
}
