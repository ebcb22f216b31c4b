//! A coordinator that was made before a fork.

use std::{
    env,
    io::{Read, Write},
    os::unix::{net::UnixStream, process::parent_id},
    process::exit,
    thread,
    time::Duration,
};

use quorlock::blocking::{Coordinator, Guard};
use tokio::{runtime::Runtime, task::block_in_place};

use crate::{common::*, process::Process, suspend::shim};

const LIMIT: Duration = Duration::from_secs(1);

/// An environment variable of the process that forks. That process is a second run of this test.
const MASTERS: &str = "QUORLOCK_FORKING_MASTERS";

#[test]
fn calls_after_a_fork_fail_at_once() {
    if let Ok(masters) = env::var(MASTERS) {
        return fork_with_a_guard(&masters);
    }
    with_masters(3, async |masters| {
        let Some(shim) = shim("forking.c", &masters[0]) else {
            return;
        };
        let process = Process::start(
            "fork::calls_after_a_fork_fail_at_once",
            [
                (MASTERS, urls(&masters).join(",").into()),
                ("LD_PRELOAD", shim.into()),
            ],
        );
        block_in_place(|| process.finish());
        assert_no_keys(&masters);
    });
}

fn fork_with_a_guard(masters: &str) {
    let builder = patient().masters(masters.split(','));
    let locks = builder.build_blocking().unwrap();
    let guard = locks.mutex("r").acquire().unwrap();
    let (mut answers, mut to_parent) = UnixStream::pair().unwrap();
    if parent_id() == 0 {
        thread::spawn(|| {
            thread::sleep(TEST_TIMEOUT / 8);
            exit(1)
        });
        call(&locks, guard, |line| {
            to_parent.write_all(line.as_bytes()).unwrap();
        });
        exit(0);
    }
    drop(to_parent);
    let mut said = String::new();
    answers.read_to_string(&mut said).unwrap();
    const CLOSED: &str = "the coordinator is closed, its runtime ended, a task panicked, \
                          or this process was forked: make the coordinator after the fork";
    let expected = [
        &format!("acquire: could not lock: {CLOSED}"),
        &format!("async: could not lock: {CLOSED}"),
        &format!("ready: {CLOSED}"),
        "inspect: only 0 of 3 masters answered",
        "extend: only 0 of 3 masters confirmed",
        "lost: the tasks of its coordinator have ended",
        "close: in time false",
        "release: only 0 of 3 masters",
    ];
    for (line, expected) in said.lines().zip(expected) {
        let (call, text) = expected.split_once(": ").unwrap();
        assert!(line.starts_with(call) && line.contains(text), "{said}");
    }
    assert_eq!(said.lines().count(), expected.len(), "{said}");
    guard.ensure_held().unwrap();
    guard.release().unwrap();
    locks.close().unwrap();
}

/// Makes each call that waits, and tells the results.
fn call(locks: &Coordinator, guard: Guard, mut tell: impl FnMut(String)) {
    let lock = locks.mutex("other");
    let acquired = lock.acquire_within(LIMIT).unwrap_err();
    tell(format!("acquire: {acquired}\n"));
    let runtime = Runtime::new().unwrap();
    let acquired = runtime.block_on((*lock).acquire_within(LIMIT)).unwrap_err();
    tell(format!("async: {acquired}\n"));
    tell(format!("ready: {}\n", locks.ready(LIMIT).unwrap_err()));
    tell(format!("inspect: {}\n", lock.inspect().unwrap_err()));
    tell(format!("extend: {}\n", guard.extend(LONG).unwrap_err()));
    guard.settled().unwrap();
    tell(format!("lost: {}\n", guard.lost().unwrap()));
    let closed = locks.close_within(LIMIT).unwrap();
    tell(format!("close: in time {closed}\n"));
    tell(format!("release: {}\n", guard.release().unwrap_err()));
}
