//! Fencing tokens on real masters.

use std::{
    env,
    fmt::Display,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use quorlock::{Coordinator, Guard, Kind, Lock};
use tokio::{
    task::{JoinSet, block_in_place},
    time::sleep,
};

use crate::{common::*, process::Process, suspend::shim};

const KINDS: [Kind; 3] = [Kind::Mutex, Kind::Reentrant, Kind::Fair];
const COUNTER: &str = "quorlock:fence:{r}";

fn fenced(kind: Kind, locks: &Coordinator) -> Lock {
    named("r", kind, locks)
}

fn named(name: &str, kind: Kind, locks: &Coordinator) -> Lock {
    let owner = locks.owner();
    match kind {
        Kind::Reentrant => locks.reentrant(name, &owner),
        Kind::Fair => locks.fair(name, &owner),
        _ => locks.mutex(name),
    }
    .fenced()
}

/// The token of `guard`, which must be larger than `last`.
#[track_caller]
fn larger(guard: &Guard, last: u64, when: impl Display) -> u64 {
    let token = guard.fencing_token().unwrap();
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

/// The lock is taken before the candidate is looked at, and nobody may be there any more to release it.
#[test]
fn who_may_not_ask_for_the_time_leaves_no_lock() {
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

/// Down, back with its data, hung, and answering errors: each master in its turn, and two clients.
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
                    let lock = fenced(kind, locks).ttl(LONG);
                    let guard = lock.acquire_within(PATIENCE / 4).await.unwrap();
                    last = larger(&guard, last, format_args!("{kind} {when}"));
                    let _ = guard.release().await; // what fails is owed it
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
                turns("going on").await;
                master.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
                turns("answering errors").await;
                master.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
                for locks in &both {
                    let whole = locks.mutex("whole");
                    until_votes(&whole, "all votes", |votes| votes.granted() == 3).await;
                }
            }
            for master in &masters {
                master.command(&["DEL", "r"]); // what came back with its data has the lock of a time before
            }
        }
        for locks in both {
            locks.close().await;
        }
    });
}

/// The store's side in Redis, as `docs/fencing.md` has it.
#[test]
fn the_script_in_the_docs_admits_by_number_and_refuses_what_is_late() {
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
        let late = first.fencing_token().unwrap();
        assert_eq!(access(late, &["100"]), "100");
        first.release().await.unwrap();
        let second = lock.acquire().await.unwrap();
        let token = second.fencing_token().unwrap();
        assert_eq!(access(token, &[]), "100");
        for value in [&[][..], &["110"][..]] {
            let refused = access(late, value);
            assert!(refused.starts_with("STALE token"), "{refused}");
        }
        assert_eq!(access(token, &["105"]), "105");
        assert_eq!(store.command(&["GET", "account:fence"]), token.to_string());

        // As strings, all of these would be the other way round.
        store.command(&["SET", "account:fence", "9"]);
        assert_eq!(access(10, &["1"]), "1");
        assert!(access(9, &["2"]).starts_with("STALE"));
        assert_eq!(access((1 << 53) - 1, &["3"]), "3");
        assert!(access((1 << 53) - 2, &["4"]).starts_with("STALE"));
        second.release().await.unwrap();
        locks.close().await;
    });
}

const PROCESSES: usize = 4;
const COORDINATORS: usize = 4;
/// Of each coordinator, for each kind of lock.
const TASKS: usize = 2;

/// What makes a second run of a test one of the contending processes.
const MASTERS: &str = "QUORLOCK_FENCED_MASTERS";
const LOGS: &str = "QUORLOCK_FENCED_LOGS";
const TURNS: &str = "QUORLOCK_FENCED_TURNS";

#[test]
fn tokens_grow_from_holder_to_holder_whose_clocks_are_off_and_jump() {
    // So that it is over in seconds; the number of acquisitions is said.
    let test = "fenced::tokens_grow_from_holder_to_holder_whose_clocks_are_off_and_jump";
    run(contend(test, 60));
}

#[test]
#[ignore = "takes long: a million acquisitions"]
fn a_million_tokens_of_holders_whose_clocks_are_off_and_jump() {
    let test = "fenced::a_million_tokens_of_holders_whose_clocks_are_off_and_jump";
    let tasks = PROCESSES * COORDINATORS * TASKS * KINDS.len();
    runtime().block_on(contend(test, 1_000_000 / tasks + 1));
}

/// All tasks, of all processes, take so many `turns`. They note their tokens while they hold the lock.
async fn contend(test: &str, turns: usize) {
    const HOUR: i64 = 3_600_000_000_000;
    if let (Ok(masters), Some(logs)) = (env::var(MASTERS), env::var_os(LOGS)) {
        let turns = env::var(TURNS).unwrap().parse().unwrap();
        return take_turns(&masters, logs.into(), turns).await;
    }
    if server::only_urls() {
        return;
    }
    let masters = server::masters(5);
    let Some(shim) = shim("skew.c", &masters[0]) else {
        return;
    };
    let start = Instant::now();
    let directory = masters[0].socket().with_file_name("");
    let ahead = [900_000_000, -900_000_000, HOUR, 0];
    let clocks: Vec<_> = (0..)
        .zip(ahead)
        .map(|(number, ahead)| clock(&directory, number, ahead))
        .collect();
    let mut processes: Vec<_> = clocks
        .iter()
        .map(|clock| {
            Process::start(
                test,
                [
                    (MASTERS, urls(&masters).join(",").into()),
                    (LOGS, directory.clone().into()),
                    (TURNS, turns.to_string().into()),
                    ("QUORLOCK_AHEAD", clock.into()),
                    ("LD_PRELOAD", shim.clone().into()),
                ],
            )
        })
        .collect();
    let each = PROCESSES * COORDINATORS * TASKS * turns;
    let noted = || KINDS.map(|kind| tokens(&directory, kind).len());
    let half_way = || noted().iter().sum::<usize>() >= each * KINDS.len() / 2;
    while !half_way() {
        assert!(!processes.iter_mut().any(Process::has_failed));
        sleep(Duration::from_millis(50)).await;
    }
    set(&clocks[3], -HOUR); // it jumps back
    while noted() != [each; 3] {
        assert!(!processes.iter_mut().any(Process::has_failed));
        sleep(Duration::from_millis(50)).await;
    }
    for process in processes {
        block_in_place(|| process.finish());
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let bound = u64::try_from(now.as_micros()).unwrap() + 1_000_000;
    for kind in KINDS {
        let tokens = tokens(&directory, kind);
        let late = tokens.windows(2).position(|pair| pair[0] >= pair[1]);
        assert_eq!(late, None, "{kind}");
        for master in &masters {
            let counter = format!("quorlock:fence:{{{kind}}}");
            let counter: u64 = master.command(&["GET", &counter]).parse().unwrap();
            assert!(counter <= bound, "{counter} is ahead of {bound}");
        }
    }
    eprintln!("{} acquisitions in {:.1?}", each * 3, start.elapsed());
}

async fn take_turns(masters: &str, directory: PathBuf, turns: usize) {
    let mut tasks = JoinSet::new();
    for _ in 0..COORDINATORS {
        let locks = patient()
            .masters(masters.split(','))
            .retry_delay(Duration::from_millis(1), Duration::from_millis(20))
            .build()
            .unwrap();
        for kind in KINDS.repeat(TASKS) {
            let lock = named(&kind.to_string(), kind, &locks);
            let path = log(&directory, kind);
            tasks.spawn(async move {
                let mut file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(path)
                    .unwrap();
                for _ in 0..turns {
                    let guard = lock.acquire().await.unwrap();
                    let token = guard.fencing_token().unwrap();
                    file.write_all(format!("{token}\n").as_bytes()).unwrap();
                    guard.release().await.unwrap();
                }
            });
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}

fn log(directory: &Path, kind: Kind) -> PathBuf {
    directory.join(format!("tokens of a {kind}"))
}

/// In the order in which the lock was held.
fn tokens(directory: &Path, kind: Kind) -> Vec<u64> {
    let text = fs::read_to_string(log(directory, kind)).unwrap_or_default();
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole.map(|line| line.trim_end().parse().unwrap()).collect()
}

/// What a process' wall clock is ahead by, in nanoseconds.
fn clock(directory: &Path, number: usize, ahead: i64) -> PathBuf {
    let path = directory.join(format!("clock {number}"));
    fs::write(&path, ahead.to_ne_bytes()).unwrap();
    path
}

fn set(clock: &Path, ahead: i64) {
    let file = OpenOptions::new().write(true).open(clock).unwrap();
    file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
}
