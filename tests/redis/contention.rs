//! Many contenders in two processes. A counter shows whether two contenders ever held the lock at
//! once.

use std::{env, fs, path::PathBuf, time::Duration};

use quorlock::Coordinator;
use tokio::time::sleep;

use crate::{common::*, process::Process};

const PROCESSES: u64 = 2;
const TASKS: u64 = 32;
const TURNS: u64 = 3;

/// An environment variable of the contending processes. Each of them is a second run of this test.
const MASTERS: &str = "QUORLOCK_CONTENTION_MASTERS";
const COUNTER: &str = "QUORLOCK_CONTENTION_COUNTER";

#[test]
fn no_update_is_lost() {
    if let (Ok(masters), Some(counter)) = (env::var(MASTERS), env::var_os(COUNTER)) {
        return run(contend(&masters, counter.into()));
    }
    with_masters(5, async |masters| {
        let counter = masters[0].socket().with_file_name("counter");
        fs::write(&counter, "0").unwrap();
        let contenders: Vec<_> = (0..PROCESSES)
            .map(|_| {
                let variables = [
                    (MASTERS, urls(&masters).join(",").into()),
                    (COUNTER, counter.clone().into()),
                ];
                Process::start("contention::no_update_is_lost", variables)
            })
            .collect();
        for contender in contenders {
            contender.finish();
        }
        let total = (PROCESSES * TASKS * TURNS).to_string();
        assert_eq!(fs::read_to_string(&counter).unwrap(), total);
        assert_no_keys(&masters);
    });
}

async fn contend(masters: &str, counter: PathBuf) {
    let locks = Coordinator::builder()
        .quarantine(quorlock::Quarantine::Off)
        .masters(masters.split(','))
        .node_timeout(Duration::from_secs(1))
        .ttl(LONG)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| tokio::spawn(take_turns(locks.clone(), counter.clone())))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    locks.close().await;
}

async fn take_turns(locks: Coordinator, counter: PathBuf) {
    for _ in 0..TURNS {
        let guard = locks
            .mutex("counter")
            .acquire_within(TEST_TIMEOUT)
            .await
            .unwrap();
        let count: u64 = fs::read_to_string(&counter).unwrap().parse().unwrap();
        // Without the lock, another task could read the same number now.
        sleep(Duration::from_micros(rand::random_range(0..3_000))).await;
        fs::write(&counter, (count + 1).to_string()).unwrap();
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
}
