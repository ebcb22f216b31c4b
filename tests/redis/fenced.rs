//! Fencing tokens on real masters.

use std::fmt::Display;

use quorlock::{Coordinator, Guard, Kind, Lock, Renewal};

use crate::common::*;

const COUNTER: &str = "quorlock:fence:{r}";

fn fenced(kind: Kind, locks: &Coordinator) -> Lock {
    named("r", kind, locks)
}

pub(crate) fn named(name: &str, kind: Kind, locks: &Coordinator) -> Lock {
    lock_of_kind(kind, name, locks, &locks.owner()).fenced()
}

/// Returns the token of `guard`. Fails unless the token is larger than `last`.
#[track_caller]
fn larger(guard: &Guard, last: u64, when: impl Display) -> u64 {
    let token = u64::from(guard.fencing_token().unwrap());
    assert!(token > last, "{when}: {token}, and {last} before");
    token
}

#[test]
fn every_holder_has_a_larger_token_than_the_one_before() {
    with_masters(5, async |masters| {
        let locks = coordinator(patient(), &masters);
        for kind in KINDS {
            let mut last = 0;
            for _ in 0..50 {
                let guard = fenced(kind, &locks).acquire().await.unwrap();
                let token = u64::from(guard.fencing_token().unwrap());
                assert!(token > last && token < 1 << 53);
                assert_eq!(guard.rounds(), 1, "{}", guard.votes());
                last = token;
                guard.release().await.unwrap();
            }
            // Counters that are ahead on a minority cost nothing. On a majority, they cost a second
            // round.
            for (ahead, rounds) in [(2, 1), (5, 2)] {
                for master in &masters[..ahead] {
                    last += 20_000; // the sum over all kinds stays within the window
                    let counter = last.to_string();
                    master.command(&["SET", COUNTER, &counter]);
                }
                let guard = fenced(kind, &locks).acquire().await.unwrap();
                let token = u64::from(guard.fencing_token().unwrap());
                assert_eq!(guard.rounds(), rounds, "{kind}: {}", guard.settled().await);
                guard.extend(LONG * 2).await.unwrap();
                assert_eq!(guard.fencing_token(), Some(token.into()));
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

/// The script writes the lock before it checks the candidate. If the check fails, the script must
/// remove the lock itself, because the client may be gone.
#[test]
fn a_user_without_the_right_to_read_the_time_leaves_no_lock() {
    const ACQUIRE: &str = concat!(
        include_str!("../../lua/shared/ballot.lua"),
        include_str!("../../lua/mutex/acquire.lua")
    );
    with_masters(1, async |masters| {
        let master = &masters[0];
        master.command(&["ACL", "SETUSER", "default", "-time"]);
        let (now, window) = ("1770000000000000", "1000000");
        let acquire = [
            "EVAL", ACQUIRE, "2", "r", COUNTER, "token", "10000", now, window,
        ];
        let refused = master.command(&acquire);
        assert!(
            refused.contains("this command") || refused.contains("'time'"),
            "{refused}"
        );
        assert_no_keys(&masters);
    });
}

/// Each master in turn is down, comes back with its data, hangs, and answers errors. Two clients
/// acquire the lock.
#[test]
fn tokens_grow_while_one_master_after_the_other_fails() {
    if server::only_urls() {
        return;
    }
    let persistent = || Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut masters: Vec<_> = (0..3).map(|_| persistent()).collect();
    run(async {
        let both = [
            coordinator(brisk(), &masters),
            coordinator(brisk(), &masters),
        ];
        let mut last = 0;
        for kind in KINDS {
            let mut turns = async |when: &str| {
                for locks in both.iter().cycle().take(4) {
                    let lock = fenced(kind, locks).ttl(LONG).renewal(Renewal::Off);
                    let guard = lock.acquire_within(TEST_TIMEOUT / 4).await.unwrap();
                    last = larger(&guard, last, format_args!("{kind} {when}"));
                    let _ = guard.release().await; // a failed release stays pending
                }
            };
            for master in &mut masters {
                master.kill();
                turns("down").await;
                master.restart();
                turns("back with its data").await;
                master.pause();
                turns("hung").await;
                master.resume();
                turns("resumed").await;
                master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
                turns("answering errors").await;
                master.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
                for locks in &both {
                    let whole = locks.mutex("whole");
                    until_votes(&whole, "all votes", |votes| votes.granted_count() == 3).await;
                }
            }
            for master in &masters {
                // The master that came back with its data may have an old lock.
                master.command(&["DEL", "r"]);
            }
        }
        for locks in both {
            locks.close().await;
        }
    });
}

/// The script that checks tokens in Redis, as shown in `docs/fencing.md`.
#[test]
fn the_script_in_the_docs_compares_numbers_and_refuses_stale_tokens() {
    const SCRIPT: &str = include_str!("../../examples/stale_writer.lua");
    assert!(include_str!("../../docs/fencing.md").contains(SCRIPT));
    with_masters(3, async |masters| {
        let store = Server::start();
        let access = |token: u64, value: &[&str]| {
            let token = token.to_string();
            let mut words = vec!["EVAL", SCRIPT, "2", "account", "account:fence", &token];
            words.extend(value);
            store.command(&words)
        };
        let locks = coordinator(patient(), &masters);
        let lock = locks.mutex("r").fenced();
        let first = lock.acquire().await.unwrap();
        let late = u64::from(first.fencing_token().unwrap());
        assert_eq!(access(late, &["100"]), "100");
        first.release().await.unwrap();
        let second = lock.acquire().await.unwrap();
        let token = u64::from(second.fencing_token().unwrap());
        assert_eq!(access(token, &[]), "100");
        for value in [&[][..], &["110"][..]] {
            let refused = access(late, value);
            assert!(refused.starts_with("STALE token"), "{refused}");
        }
        assert_eq!(access(token, &["105"]), "105");
        assert_eq!(store.command(&["GET", "account:fence"]), token.to_string());

        // If the script compared strings, each of these results would be the opposite.
        store.command(&["SET", "account:fence", "9"]);
        assert_eq!(access(10, &["1"]), "1");
        assert!(access(9, &["2"]).starts_with("STALE"));
        assert_eq!(access((1 << 53) - 1, &["3"]), "3");
        assert!(access((1 << 53) - 2, &["4"]).starts_with("STALE"));
        second.release().await.unwrap();
        locks.close().await;
    });
}
