//! Programs without async: a runtime with one worker thread, and calls in plain threads.
//!
//! No test here may pause tokio's clock: after that, tokio's clock panics in the destructors of
//! thread-local values.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start threads and sleep, and end when something is wrong"
)]

use std::{
    cell::RefCell,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use quorlock::{
    AskError, ConfigError, Coordinator, Fault, Guard, LostReason, MemoryMaster, Quarantine, Reason,
};
use testkit::times::{millis, seconds};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::{block_in_place, coop::has_budget_remaining, spawn_blocking},
};

/// The time limit of a wait, even on a slow machine.
const LIMIT: Duration = seconds(20);

/// A TTL that is longer than any test. With this TTL, a key that is gone was released.
const LONG: Duration = seconds(600);

const NAME: &str = "orders/42";

fn masters() -> [MemoryMaster; 3] {
    [(); 3].map(|()| MemoryMaster::new())
}

fn one_worker() -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().unwrap()
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns a coordinator with a response timeout for a busy machine.
fn patient(masters: &[MemoryMaster]) -> Result<Coordinator, ConfigError> {
    let builder = Coordinator::builder().quarantine(Quarantine::Off);
    let builder = builder.response_timeout(seconds(5)).max_ttl(LONG).ttl(LONG);
    builder.masters(masters).build()
}

/// Builds a coordinator as a plain program does, and waits until all masters can vote.
fn connected(runtime: &Runtime, masters: &[MemoryMaster]) -> Coordinator {
    let _inside = runtime.enter();
    let locks = patient(masters).unwrap();
    runtime.block_on(locks.all_ready_within(LIMIT)).unwrap();
    locks
}

/// Acquires the mutex on all masters.
fn on_all(runtime: &Runtime, locks: &Coordinator, name: &str) -> Guard {
    runtime.block_on(async {
        let guard = locks.mutex(name).acquire_within(LIMIT).await.unwrap();
        assert_eq!(guard.all_votes().await.granted_count(), 3);
        guard
    })
}

fn have_no_keys(masters: &[MemoryMaster]) -> bool {
    masters.iter().all(|master| {
        let mut keys = master.keys().into_iter();
        keys.all(|key| key.starts_with("quorlock:"))
    })
}

/// Waits until `is_so` returns `true`.
#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}: not in time");
        thread::sleep(millis(1));
    }
}

/// Runs `act` in a plain thread. Fails if it hangs.
#[track_caller]
fn in_time(what: &str, act: impl FnOnce() + Send + 'static) {
    let (sender, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        act();
        let _ = sender.send(());
    });
    let hangs = ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout);
    assert!(!hangs, "{what}: hangs");
    thread.join().unwrap();
}

/// Makes calls that wait for a timer, for answers of masters, and for a wake-up.
fn works(locks: &Coordinator) {
    let runtime = Handle::current();
    let lock = locks.mutex("works");
    let guard = runtime.block_on(lock.acquire()).unwrap();
    let late = runtime.block_on(lock.acquire_within(millis(5)));
    assert!(
        late.is_err_and(|error| error.to_string().starts_with("gave up")),
        "the lock is held"
    );
    runtime.block_on(guard.release()).unwrap();
}

#[test]
fn a_thread_that_works_for_three_ttls_between_two_calls_still_holds() {
    let ttl = seconds(2);
    let runtime = one_worker();
    let _inside = runtime.enter();
    let masters = masters();
    let builder = Coordinator::builder().masters(&masters).ttl(ttl);
    let locks = builder.response_timeout(millis(500)).build().unwrap();
    runtime.block_on(locks.all_ready_within(LIMIT)).unwrap();
    let guard = runtime.block_on(locks.mutex(NAME).acquire()).unwrap();
    thread::sleep(3 * ttl);
    guard.ensure_valid().unwrap();
    runtime.block_on(guard.extend(ttl)).unwrap();
    runtime.block_on(guard.release()).unwrap();
    assert!(runtime.block_on(locks.close_within(LIMIT)));
    assert!(have_no_keys(&masters));
}

#[test]
fn calls_work_in_plain_threads() {
    let runtime = one_worker();
    let locks = connected(&runtime, &masters());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _inside = runtime.enter();
                works(&locks);
            });
        }
    });
}

#[test]
fn calls_work_in_spawn_blocking() {
    for runtime in [one_worker(), current_thread()] {
        runtime.block_on(async {
            let locks = patient(&masters()).unwrap();
            spawn_blocking(move || works(&locks)).await.unwrap();
            let build = || works(&patient(&masters()).unwrap());
            spawn_blocking(build).await.unwrap();
        });
    }
}

#[test]
fn calls_work_in_block_in_place() {
    let runtime = one_worker();
    let locks = connected(&runtime, &masters());
    runtime.block_on(async { block_in_place(|| works(&locks)) });
    let task = runtime.spawn(async move { block_in_place(|| works(&locks)) });
    runtime.block_on(task).unwrap();
}

#[test]
fn closing_ends_waits_in_other_threads() {
    let masters = masters();
    let runtime = one_worker();
    let locks = connected(&runtime, &masters);
    let held = [locks.fair("r"), locks.mutex("s")];
    let held = held.map(|lock| runtime.block_on(lock.acquire()).unwrap());
    let wanted = [locks.fair("r"), locks.mutex("s")];
    thread::scope(|scope| {
        let waits = wanted
            .each_ref()
            .map(|lock| scope.spawn(|| runtime.block_on(lock.acquire()).map(drop)));
        let is_queued = || {
            !runtime
                .block_on(wanted[0].inspect())
                .unwrap()
                .waiters
                .is_empty()
        };
        until("a waiter in the queue", is_queued);
        runtime.block_on(locks.close());
        for wait in waits {
            assert_eq!(*wait.join().unwrap().unwrap_err().reason(), Reason::Closed);
        }
    });
    drop(held);
    assert!(runtime.block_on(locks.close_within(LIMIT)));
    assert!(have_no_keys(&masters));
}

#[test]
fn a_guard_is_dropped_anywhere() {
    let masters = masters();
    let runtime = one_worker();
    let locks = connected(&runtime, &masters);
    let guard = || on_all(&runtime, &locks, NAME);
    let released = || until("the release", || have_no_keys(&masters));

    let plain = guard();
    thread::spawn(|| drop(plain)).join().unwrap();
    released();
    let in_async_code = guard();
    runtime.block_on(async { drop(in_async_code) });
    released();
    let on_another_runtime = guard();
    current_thread().block_on(async { drop(on_another_runtime) });
    released();

    // Also as the last handle of the coordinator, and while a master hangs.
    let last = guard();
    drop(locks);
    masters[0].inject(Fault::Hang);
    thread::spawn(|| drop(last)).join().unwrap();
    until("two releases", || have_no_keys(&masters[1..]));
    assert!(!have_no_keys(&masters));
    masters[0].inject(Fault::None);
    released();
}

/// The destructors of thread-local values run in no particular order, so one of these may run after
/// the destructors of tokio's values. There, tokio's `block_on` panics.
#[test]
fn a_guard_is_dropped_in_the_destructor_of_a_thread_local_value() {
    struct Last(Option<Guard>, mpsc::Sender<Option<ConfigError>>);
    impl Drop for Last {
        fn drop(&mut self) {
            drop(self.0.take());
            let _ = self.1.send(patient(&masters()).err());
        }
    }
    thread_local! {
        static EARLY: RefCell<Option<Last>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    let masters = masters();
    let runtime = one_worker();
    let locks = connected(&runtime, &masters);
    let (sender, errors) = mpsc::channel();
    let last = |name| Last(Some(on_all(&runtime, &locks, name)), sender.clone());
    let (early, late) = (last("early"), last("late"));
    let ended = thread::spawn(|| {
        EARLY.set(Some(early));
        let _ = Handle::try_current(); // tokio's values come second
        has_budget_remaining();
        LATE.set(Some(late));
    });
    ended.join().unwrap();
    let errors = [errors.recv().unwrap(), errors.recv().unwrap()];
    assert_eq!(errors, [(); 2].map(|()| Some(ConfigError::NoRuntime)));
    until("the releases", || have_no_keys(&masters));
}

#[test]
fn nothing_hangs_when_it_is_dropped_after_its_runtime() {
    let runtime = one_worker();
    let locks = connected(&runtime, &masters());
    let owner = locks.new_owner();
    let guards = [locks.mutex("r"), locks.fair("s").owner(&owner)];
    let [mutex, fair] = guards.map(|lock| runtime.block_on(lock.acquire()).unwrap());
    let events = locks.health_events();
    in_time("the end of the runtime", move || drop(runtime));
    let other = current_thread();
    assert_eq!(other.block_on(mutex.lost()).reason, LostReason::Closed);
    mutex.ensure_valid().unwrap_err();
    in_time("a guard", move || drop(mutex));
    let closed = other.block_on(locks.mutex("t").acquire());
    assert_eq!(*closed.unwrap_err().reason(), Reason::Closed);
    let inspected = other.block_on(locks.mutex("t").inspect());
    assert!(matches!(inspected, Err(AskError::Closed)), "{inspected:?}");
    other.block_on(fair.release()).unwrap_err();
    assert!(!other.block_on(locks.close_within(LIMIT)));
    in_time("the rest", move || drop((events, owner, locks)));
}
