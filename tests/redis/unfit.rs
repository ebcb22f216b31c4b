//! Masters that are up but take no locks. Readiness and health say so, and why.

use std::{fs, time::Duration};

use futures::StreamExt;
use quorlock::{LockKind, health::MasterHealth};
use testkit::captured_log::CapturedLog;
use tracing::Level;

use crate::common::*;

/// A fault of a server, and its end.
struct Cause {
    code: &'static str,
    begin: fn(&Server),
    end: &'static [&'static str],
}

impl Cause {
    /// Returns what health and readiness say. The connection to a replica is closed, to look for a
    /// master there again.
    fn said(&self) -> &'static str {
        match self.code {
            "READONLY" => "replica",
            code => code,
        }
    }
}

const CAUSES: [Cause; 5] = [
    Cause {
        code: "OOM",
        begin: |master| {
            master.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
            master.command(&["CONFIG", "SET", "maxmemory", "1"]);
        },
        end: &["CONFIG", "SET", "maxmemory", "0"],
    },
    Cause {
        code: "READONLY",
        begin: |master| {
            master.command(&["REPLICAOF", "127.0.0.1", "1"]);
        },
        end: &["REPLICAOF", "NO", "ONE"],
    },
    Cause {
        code: "NOREPLICAS",
        begin: |master| {
            master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        },
        end: &["CONFIG", "SET", "min-replicas-to-write", "0"],
    },
    Cause {
        code: "MISCONF",
        begin: |master| {
            // The snapshot cannot be written, because a folder has the name of its file.
            fs::create_dir(master.socket().with_file_name("dump.rdb")).unwrap();
            master.command(&["CONFIG", "SET", "save", "3600 1000000"]);
            master.command(&["BGSAVE"]);
        },
        end: &["CONFIG", "SET", "save", ""],
    },
    Cause {
        code: "NOPERM",
        begin: |master| {
            master.command(&["ACL", "SETUSER", "default", "-set"]);
        },
        end: &["ACL", "SETUSER", "default", "+set"],
    },
];

/// After the fault, only an acquisition shows it: `ready` sends one, or the program does. After its
/// end, `ready` finds out without a lock.
#[test]
fn two_masters_that_take_no_locks_are_not_ready() {
    for cause in CAUSES {
        with_masters(3, async |masters| {
            let locks = coordinator(patient(), &masters);
            let held = acquire_on_all(&locks.mutex("held")).await;
            locks
                .all_ready_within(Duration::from_secs(5))
                .await
                .unwrap();
            masters[..2].iter().for_each(cause.begin);
            let write = ["SET", "x", "y"];
            until(cause.code, async || {
                let mut broken = masters[..2].iter();
                broken
                    .all(|master| master.command(&write).starts_with(cause.code))
                    .then_some(())
            })
            .await;

            locks.mutex("r").try_acquire().await.unwrap_err();
            assert_unfit(&locks.health(), cause.said());
            let refused = locks
                .ready_within(Duration::ZERO)
                .await
                .unwrap_err()
                .to_string();
            assert_eq!(refused.matches(cause.said()).count(), 2, "{refused}");
            let released = held.release().await;
            if cause.code == "OOM" {
                released.unwrap();
            }
            assert_unfit(&locks.health(), cause.said());

            for master in &masters[..2] {
                assert_eq!(master.command(cause.end), "OK");
            }
            until("masters that take locks", async || {
                locks.all_ready_within(Duration::ZERO).await.ok()
            })
            .await;
            assert!(locks.health().iter().all(MasterHealth::can_vote));
            lock_once(&locks).await;
            close_at_once(&locks).await;
        });
    }
}

fn assert_unfit(health: &[MasterHealth], said: &str) {
    let can_vote: Vec<_> = health.iter().map(MasterHealth::can_vote).collect();
    assert_eq!(can_vote, [false, false, true], "{said}: {health:?}");
    for master in &health[..2] {
        assert!(master.to_string().contains(said), "{master}");
    }
}

/// Extensions, releases and inspections succeed on a server without memory. The vote does not come
/// and go with them.
#[test]
fn what_succeeds_without_memory_does_not_give_the_vote_back() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let mut events = locks.health_events();
        let owner = locks.new_owner();
        let guards = KINDS.map(|kind| locks.of_kind(kind, kind.to_string(), &owner));
        let mut held = Vec::new();
        for lock in &guards {
            held.push(acquire_on_all(lock).await);
        }
        masters.iter().for_each(CAUSES[0].begin);
        locks.mutex("r").try_acquire().await.unwrap_err();
        for (guard, lock) in held.into_iter().zip(&guards) {
            guard.extend(LONG / 2).await.unwrap();
            lock.inspect().await.unwrap();
            guard.release().await.unwrap();
        }
        assert!(!locks.health().iter().any(MasterHealth::can_vote));
        let mut gains = 0;
        while let Ok(Some(told)) = tokio::time::timeout(millis(50), events.next()).await {
            gains += u32::from(told.can_vote());
        }
        assert!(gains <= 3, "{gains}"); // at most one for each connection
        close_at_once(&locks).await;
    });
}

/// A user that may not use the keys of some locks still gets the others. Without the right to the
/// key of the question, the log says so, and the answers to locks count: if the first one is
/// denied, the key template may be wrong.
#[test]
fn a_denied_key_says_nothing_about_other_locks() {
    with_masters(3, async |masters| {
        for master in &masters {
            let rights = ["ACL", "SETUSER", "default", "resetkeys", "~mine/*"];
            assert_eq!(master.command(&rights), "OK");
        }
        let (said, _listening) = CapturedLog::listen();
        let locks = coordinator(patient(), &masters);
        for _ in 0..2 {
            locks
                .all_ready_within(Duration::from_secs(5))
                .await
                .unwrap();
        }
        let mut warnings = said.take();
        warnings.retain(|(level, _)| *level == Level::WARN);
        let [(_, warning)] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert!(
            warning.contains("quorlock:check") && warning.contains("NOPERM"),
            "{warning}"
        );
        for is_first in [true, false] {
            let error = locks.mutex("theirs").try_acquire().await.unwrap_err();
            assert!(
                error.to_string().contains("with the key \"theirs\""),
                "{error}"
            );
            assert!(locks.health().iter().all(MasterHealth::can_vote));
            assert_eq!(
                locks.ready_within(Duration::from_secs(5)).await.is_err(),
                is_first
            );
            drop(acquire_on_all(&locks.mutex("mine/1")).await);
            locks.all_ready_within(Duration::ZERO).await.unwrap();
        }
        close_at_once(&locks).await;
    });
}

/// A program with fair locks only needs no right to `SET`, which `ready` uses.
#[test]
fn a_command_that_the_locks_do_not_need_may_be_denied() {
    with_masters(3, async |masters| {
        for master in &masters {
            (CAUSES[4].begin)(master);
        }
        let locks = coordinator(patient(), &masters);
        let owner = locks.new_owner();
        locks
            .all_ready_within(Duration::from_secs(5))
            .await
            .unwrap();
        drop(acquire_on_all(&locks.of_kind(LockKind::Fair, "f", &owner)).await);
        locks.all_ready_within(Duration::ZERO).await.unwrap();
        assert!(locks.health().iter().all(MasterHealth::can_vote));
        close_at_once(&locks).await;
    });
}
