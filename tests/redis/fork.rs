//! A coordinator that was made before a fork.

use std::{
    env,
    io::{Read, Write},
    os::unix::{net::UnixStream, process::parent_id},
    process::exit,
    thread,
    time::Duration,
};

use futures::{Stream, StreamExt};
use quorlock::{
    Coordinator, Guard,
    health::{MasterHealth, MasterState},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::block_in_place,
    time::timeout,
};

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
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let inside = runtime.enter();
    let builder = patient().masters(masters.split(','));
    let locks: &Coordinator = Box::leak(Box::new(builder.build().unwrap()));
    drop(inside);
    let lock = locks.reentrant("r", &locks.new_owner());
    let shared: &Guard = Box::leak(Box::new(runtime.block_on(lock.acquire()).unwrap()));
    let mut guard = runtime.block_on(lock.acquire()).unwrap(); // another level of the same claim
    let busy: [fn(&Runtime, &Coordinator, &Guard); 5] = [
        |_, _, shared| assert!(shared.is_valid()),
        |_, _, shared| drop(shared.votes()),
        |own, _, shared| drop(own.block_on(shared.extend(LONG))),
        |own, locks, _| drop(own.block_on(locks.mutex("other").inspect())),
        |_, locks, _| drop(locks.health()),
    ];
    for act in busy {
        thread::spawn(move || {
            // Every `block_on` locks a mutex of its runtime. So the threads do not share the
            // runtime with the child, where this mutex would stay locked.
            let own = own_runtime();
            loop {
                act(&own, locks, shared);
            }
        });
    }
    let mut events = locks.health_events();
    let news = async { while let Ok(Some(_)) = timeout(LIMIT, events.next()).await {} };
    runtime.block_on(news); // the last `next` was dropped while it waited
    for _ in 0..FORKS {
        guard = fork_and_call(&runtime, locks, &mut events, guard);
    }
    guard.ensure_valid().unwrap();
    runtime.block_on(guard.release()).unwrap();
}

fn own_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Makes each call in a child, and checks the results. Returns the guard, which the parent keeps.
fn fork_and_call(
    runtime: &Runtime,
    locks: &Coordinator,
    events: &mut (impl Stream<Item = MasterHealth> + Unpin),
    guard: Guard,
) -> Guard {
    let (mut answers, mut to_parent) = UnixStream::pair().unwrap();
    if parent_id() == 0 {
        thread::spawn(|| {
            thread::sleep(TEST_TIMEOUT / 8);
            exit(1)
        });
        call(runtime, locks, events, guard, |line| {
            to_parent.write_all(line.as_bytes()).unwrap();
        });
        exit(0);
    }
    drop(to_parent);
    let mut said = String::new();
    answers.read_to_string(&mut said).unwrap();
    const CLOSED: &str = "the coordinator is closed, its runtime ended, a task panicked, \
                          or this process was forked, and needs a coordinator of its own";
    let expected = [
        &format!("acquire: could not lock \"other\": {CLOSED}"),
        &format!("own runtime: could not lock \"other\": {CLOSED}"),
        &format!("owner: could not lock \"other\": {CLOSED}"),
        &format!("ready: {CLOSED}"),
        "health: all closed true",
        "events: ended true",
        &format!("inspect: {CLOSED}"),
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
fn call(
    runtime: &Runtime,
    locks: &Coordinator,
    events: &mut (impl Stream<Item = MasterHealth> + Unpin),
    guard: Guard,
    mut tell: impl FnMut(String),
) {
    let lock = locks.mutex("other");
    let acquired = runtime.block_on(lock.acquire_within(LIMIT)).unwrap_err();
    tell(format!("acquire: {acquired}\n"));
    let own = own_runtime();
    let acquired = own.block_on(lock.acquire_within(LIMIT)).unwrap_err();
    tell(format!("own runtime: {acquired}\n"));
    let fair = locks.fair("other");
    let acquired = runtime.block_on(fair.acquire()).unwrap_err();
    tell(format!("owner: {acquired}\n"));
    let ready = runtime.block_on(locks.ready_within(LIMIT)).unwrap_err();
    tell(format!("ready: {ready}\n"));
    let is_closed = |master: &MasterHealth| master.state == MasterState::Closed;
    let health = locks.health();
    let are_closed = health.len() == 3 && health.iter().all(is_closed);
    tell(format!("health: all closed {are_closed}\n"));
    let old = runtime.block_on(events.next());
    let new = runtime.block_on(locks.health_events().next());
    tell(format!("events: ended {}\n", old.or(new).is_none()));
    let inspected = runtime.block_on(lock.inspect()).unwrap_err();
    tell(format!("inspect: {inspected}\n"));
    let extended = runtime.block_on(guard.extend(LONG)).unwrap_err();
    tell(format!("extend: {extended}\n"));
    runtime.block_on(guard.all_votes());
    guard.stop_renewing();
    tell(format!("held: {}\n", guard.ensure_valid().unwrap_err()));
    tell(format!("lost: {}\n", runtime.block_on(guard.lost())));
    tell(format!("valid: for {:?}\n", guard.remaining()));
    let closed = runtime.block_on(locks.close_within(LIMIT));
    tell(format!("close: in time {closed}\n"));
    let released = runtime.block_on(guard.release()).unwrap_err();
    tell(format!("release: {released}\n"));
}
