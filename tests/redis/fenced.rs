//! Fencing tokens on real masters.

use quorlock::{Coordinator, Kind};

use crate::common::*;

const COUNTER: &str = "quorlock:fence:{r}";

fn fenced(kind: Kind, locks: &Coordinator) -> quorlock::Lock {
    let owner = locks.owner();
    match kind {
        Kind::Reentrant => locks.reentrant("r", &owner),
        Kind::Fair => locks.fair("r", &owner),
        _ => locks.mutex("r"),
    }
    .fenced()
}

#[test]
fn every_holder_has_a_larger_token_than_the_one_before() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        for kind in [Kind::Mutex, Kind::Reentrant, Kind::Fair] {
            let mut last = 0;
            for _ in 0..50 {
                let guard = fenced(kind, &locks).acquire().await.unwrap();
                let token = guard.fencing_token().unwrap();
                assert!(token > last && token < 1 << 53);
                assert_eq!(guard.rounds(), 1, "{}", guard.votes());
                last = token;
                guard.release().await.unwrap();
            }
            // A counter that is ahead on a minority is no obstacle, and on a majority takes a second round.
            for (ahead, rounds) in [(2, 1), (5, 2)] {
                for master in &masters[..ahead] {
                    last += 50_000; // in all well within the window
                    let counter = last.to_string();
                    master.command(&["SET", COUNTER, &counter]);
                }
                let guard = fenced(kind, &locks).acquire().await.unwrap();
                let token = guard.fencing_token().unwrap();
                assert_eq!(guard.rounds(), rounds, "{}", guard.settled().await);
                guard.extend(LONG * 2).await.unwrap();
                assert_eq!(guard.fencing_token(), Some(token));
                let seen: Vec<u64> = masters
                    .iter()
                    .map(|master| master.command(&["GET", COUNTER]).parse().unwrap())
                    .collect();
                let behind = seen.iter().filter(|seen| **seen <= token).count();
                assert!(behind >= 3, "{token}: {seen:?}");
                guard.release().await.unwrap();
            }
            for master in &masters {
                master.command(&["DEL", COUNTER]);
            }
        }
        locks.close().await;
    });
}
