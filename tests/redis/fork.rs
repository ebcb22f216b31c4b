//! A coordinator that was made before a fork.

use std::{
    env,
    io::{Read, Write},
    os::unix::{net::UnixStream, process::parent_id},
    process::exit,
    thread,
    time::Duration,
};

use quorlock::{
    MasterHealth, MasterState,
    blocking::{Coordinator, Guard},
};
use tokio::{runtime::Runtime, task::block_in_place};

use crate::{common::*, process::Process, suspend::shim};

const LIMIT: Duration = Duration::from_secs(1);

/// An environment variable of the process that forks. That process is a second run of this test.
const MASTERS: &str = "QUORLOCK_FORKING_MASTERS";

/// Other threads lock the mutexes all the time, so some are locked in the child, and stay locked.
#[test]
fn no_call_after_a_fork_waits_for_a_thread_of_the_parent() {
    if let Ok(masters) = env::var(MASTERS) {
        return fork_among_threads(&masters);
    }
    with_masters(3, async |masters| {
        let test = "fork::no_call_after_a_fork_waits_for_a_thread_of_the_parent";
        if let Some(shim) = shim("forking.c", &masters[0]) {
            let masters = urls(&masters).join(",").into();
            let process = Process::start(test, [(MASTERS, masters), ("LD_PRELOAD", shim.into())]);
            block_in_place(|| process.finish());
        }
    });
}

fn fork_among_threads(masters: &str) {
    const FORKS: usize = 200;
    let builder = patient().masters(masters.split(','));
    let locks: &Coordinator = Box::leak(Box::new(builder.build_blocking().unwrap()));
    let lock = locks.reentrant("r", &locks.owner());
    let shared: &Guard = Box::leak(Box::new(lock.acquire().unwrap()));
    let mut guard = lock.acquire().unwrap(); // another level of the same claim
    let busy: [fn(&Coordinator, &Guard); 5] = [
        |_, shared| assert!(shared.is_valid()),
        |_, shared| drop(shared.votes()),
        |_, shared| drop(shared.extend(LONG)),
        |locks, _| drop(locks.mutex("other").inspect()),
        |locks, _| drop(locks.health()),
    ];
    for act in busy {
        thread::spawn(move || {
            loop {
                act(locks, shared);
            }
        });
    }
    for _ in 0..FORKS {
        guard = fork_and_call(locks, guard);
    }
    guard.ensure_held().unwrap();
    guard.release().unwrap();
}

/// Makes each call in a child, and checks the results. Returns the guard, which the parent keeps.
fn fork_and_call(locks: &Coordinator, guard: Guard) -> Guard {
    let (mut answers, mut to_parent) = UnixStream::pair().unwrap();
    if parent_id() == 0 {
        thread::spawn(|| {
            thread::sleep(TEST_TIMEOUT / 8);
            exit(1)
        });
        call(locks, guard, |line| {
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
        &format!("owner: could not lock: {CLOSED}"),
        &format!("ready: {CLOSED}"),
        "health: all closed true",
        "events: ended true",
        "inspect: only 0 of 3 masters answered",
        "extend: only 0 of 3 masters confirmed",
        "held: the tasks of its coordinator have ended",
        "lost: the tasks of its coordinator have ended",
        "valid: for 0ns",
        "close: in time false",
        "release: only 0 of 3 masters",
    ];
    for (line, expected) in said.lines().zip(expected) {
        let (call, text) = expected.split_once(": ").unwrap();
        assert!(line.starts_with(call) && line.contains(text), "{said}");
    }
    assert_eq!(said.lines().count(), expected.len(), "{said}");
    guard
}

/// Makes each call that waits or locks a mutex, and tells the results.
fn call(locks: &Coordinator, guard: Guard, mut tell: impl FnMut(String)) {
    let lock = locks.mutex("other");
    let acquired = lock.acquire_within(LIMIT).unwrap_err();
    tell(format!("acquire: {acquired}\n"));
    let runtime = Runtime::new().unwrap();
    let acquired = runtime.block_on((*lock).acquire_within(LIMIT)).unwrap_err();
    tell(format!("async: {acquired}\n"));
    let fair = locks.fair("other", &locks.owner());
    tell(format!("owner: {}\n", fair.acquire().unwrap_err()));
    tell(format!("ready: {}\n", locks.ready(LIMIT).unwrap_err()));
    let is_closed = |master: &MasterHealth| master.state == MasterState::Closed;
    let health = locks.health();
    let are_closed = health.len() == 3 && health.iter().all(is_closed);
    tell(format!("health: all closed {are_closed}\n"));
    let event = locks.health_events().next().unwrap();
    tell(format!("events: ended {}\n", event.is_none()));
    tell(format!("inspect: {}\n", lock.inspect().unwrap_err()));
    tell(format!("extend: {}\n", guard.extend(LONG).unwrap_err()));
    guard.settled().unwrap();
    guard.stop_renewing();
    tell(format!("held: {}\n", guard.ensure_held().unwrap_err()));
    tell(format!("lost: {}\n", guard.lost().unwrap()));
    tell(format!("valid: for {:?}\n", guard.remaining()));
    let closed = locks.close_within(LIMIT).unwrap();
    tell(format!("close: in time {closed}\n"));
    tell(format!("release: {}\n", guard.release().unwrap_err()));
}
