//! Releases of mutexes by `DELEX` or `DELIFEQ` on servers that have one of them, and by the script
//! on others.

use std::time::Duration;

use quorlock::{__internals::plain, Guard, Lock, LockKind};
use testkit::proxy::Proxy;
use tokio::task::JoinSet;

use crate::common::*;

/// The versions that the tests use, and the command with which each releases a mutex.
const VERSIONS: [(&str, &str); 7] = [
    ("redis-6.2", "evalsha"),
    ("redis-7.0", "evalsha"),
    ("redis-8.0", "evalsha"),
    ("redis-8.6", "delex"),
    ("valkey-8.0", "evalsha"),
    ("valkey-8.1", "evalsha"),
    ("valkey-9.1", "delifeq"),
];
const NATIVE: [(&str, &str); 2] = [("redis-8.6", "delex"), ("valkey-9.1", "delifeq")];
const MIXED: [&str; 3] = ["redis-7.0", "redis-8.6", "valkey-9.1"];

/// Each test makes this many cycles, each with a token of its own. The token decides which masters
/// publish, and those release by the script.
const CYCLES: usize = 40;

/// Starts a server of each version, or none if a program is missing.
fn start(versions: &[&str]) -> Option<Vec<Server>> {
    let programs: Vec<_> = versions.iter().map(|name| server::version(name)).collect();
    let programs: Option<Vec<_>> = programs.into_iter().collect();
    Some(programs?.iter().map(|p| Server::start_version(p)).collect())
}

/// Runs `test` with three servers of each version whose program is there.
fn with_each(
    versions: &[(&'static str, &'static str)],
    test: impl AsyncFn(Vec<Server>, &'static str),
) {
    for &(version, release) in versions {
        if let Some(masters) = start(&[version; 3]) {
            run(test(masters, release));
        }
    }
}

/// Returns how often `command` was called, without the calls that the server refused.
fn calls(master: &Server, command: &str) -> u64 {
    master.calls(|name| name == command)
}

/// Returns how often the server refused a command because of rights.
fn denials(master: &Server) -> u64 {
    let errors = master.command(&["INFO", "errorstats"]);
    let count = errors
        .lines()
        .find_map(|line| line.strip_prefix("errorstat_NOPERM:count="));
    count.map_or(0, |count| count.parse().unwrap())
}

async fn cycles(lock: &Lock) {
    for _ in 0..CYCLES {
        acquire_on_all(lock).await.release().await.unwrap();
    }
}

#[test]
fn each_version_releases_by_its_own_command() {
    with_each(&VERSIONS, async |masters, release| {
        let locks = coordinator(patient(), &masters);
        cycles(&locks.mutex("r")).await;
        locks.close().await;
        assert_no_keys(&masters);
        for master in &masters {
            assert!(calls(master, release) > 0, "{release}{}", master.log_tail());
            for (_, native) in NATIVE {
                assert!(native == release || calls(master, native) == 0, "{native}");
            }
        }
    });
}

/// Locks that are fenced or have an owner are more than one key, so they need the script.
#[test]
fn other_locks_are_released_by_the_script() {
    with_each(&NATIVE, async |masters, release| {
        let locks = coordinator(patient(), &masters);
        let owner = locks.new_owner();
        for lock in [
            plain(locks.mutex("r").fenced()),
            locks.of_kind(LockKind::Reentrant, "r", &owner),
            locks.of_kind(LockKind::Fair, "r", &owner),
        ] {
            cycles(&lock).await;
        }
        locks.close().await;
        for master in &masters {
            assert_eq!(calls(master, release), 0);
            assert_eq!(master.command(&["EXISTS", "r"]), "0");
        }
    });
}

/// A release leaves what it did not write, whatever the type of the key is.
#[test]
fn a_key_of_another_client_is_left_alone() {
    for versions in [&["redis-8.6"; 3], &["valkey-9.1"; 3], &MIXED] {
        let Some(masters) = start(versions) else {
            continue;
        };
        run(async {
            let locks = coordinator(patient(), &masters);
            let lock = locks.mutex("r");
            for number in 0..CYCLES {
                let guard = acquire_on_all(&lock).await;
                for master in &masters {
                    assert_eq!(master.command(&["DEL", "r"]), "1");
                    if number % 2 == 0 {
                        assert_eq!(master.command(&["SET", "r", "another's"]), "OK");
                    } else {
                        assert_eq!(master.command(&["HSET", "r", "field", "1"]), "1");
                    }
                }
                // A key of another client counts as released.
                guard.release().await.unwrap();
                for master in &masters {
                    assert_eq!(master.command(&["DEL", "r"]), "1");
                }
            }
            locks.close().await;
        });
    }
}

#[test]
fn a_user_without_the_right_releases_by_the_script() {
    with_each(&NATIVE, async |masters, release| {
        let url = |master| url_as_user(master, &format!("-{release}"));
        let locks = patient().masters(masters.iter().map(url)).build().unwrap();
        cycles(&locks.mutex("r")).await;
        for master in &masters {
            assert_eq!(denials(master), 1, "{}", master.command(&["ACL", "LOG"]));
        }
        locks.close().await;
        assert_no_keys(&masters);
        for master in &masters {
            assert_eq!(calls(master, release), 0);
        }
    });
}

/// Commands that are in flight when the right is taken away are sent again as a script.
#[test]
fn a_user_who_loses_the_right_releases_by_the_script() {
    with_each(&NATIVE, async |masters, release| {
        let set_user = |rule: &str| {
            for master in &masters {
                assert_eq!(master.command(&["ACL", "SETUSER", "default", rule]), "OK");
            }
        };
        let locks = coordinator(patient(), &masters);
        cycles(&locks.mutex("r")).await;
        let mut held = Vec::new();
        for number in 0..CYCLES {
            held.push(acquire_on_all(&locks.mutex(format!("r{number}"))).await);
        }
        let before: Vec<_> = masters.iter().map(|m| calls(m, release)).collect();
        set_user(&format!("-{release}"));
        let mut releases: JoinSet<_> = held.into_iter().map(Guard::release).collect();
        while let Some(released) = releases.join_next().await {
            released.unwrap().unwrap();
        }
        cycles(&locks.mutex("r")).await;
        locks.close().await;
        assert_no_keys(&masters);
        for (master, before) in masters.iter().zip(before) {
            assert_eq!(calls(master, release), before);
            assert!(denials(master) > 0);
        }
    });
}

/// The connection to a server with a native release is lost. The next connection finds an older
/// server, which gets the owed releases in the form that it knows.
#[test]
fn an_owed_release_has_the_form_of_the_server_that_gets_it() {
    for ((new, release), old) in NATIVE.into_iter().zip(["redis-7.0", "valkey-8.0"]) {
        let Some(mut masters) = start(&[old, new, new, new]) else {
            continue;
        };
        run(async {
            let older = masters.remove(0);
            let proxy = Proxy::delay(masters[0].port(), Duration::ZERO);
            let urls = [proxy.url(), masters[1].url(), masters[2].url()];
            let locks = patient().masters(urls).build().unwrap();
            cycles(&locks.mutex("r")).await;
            assert!(calls(&masters[0], release) > 0);

            let mut held = Vec::new();
            for number in 0..CYCLES {
                let name = format!("r{number}");
                held.push(acquire_on_all(&locks.mutex(&name)).await);
                let token = masters[1].command(&["GET", &name]);
                assert_eq!(older.command(&["SET", &name, &token]), "OK");
            }
            proxy.lead_to(older.port());
            masters[0].kill();
            for guard in held {
                guard.release().await.unwrap();
            }
            locks.close().await;
            assert_no_keys(&masters[1..]);
            assert_no_keys(&[older]);
        });
    }
}
