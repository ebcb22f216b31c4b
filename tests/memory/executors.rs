//! Calls that are polled by no runtime, by another runtime, or after the coordinator's runtime has
//! shut down. Builds on a runtime with one thread. These tests run in real time.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Instant,
};

use futures::StreamExt;
use quorlock::{
    AskError, ConfigError, Coordinator, Guard, Lock, LostReason, MemoryMaster, Reason, Renewal,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::{
        LocalSet,
        coop::{has_budget_remaining, poll_proceed},
        spawn_local,
    },
};

use crate::world::*;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` on this thread, as an executor that is not tokio.
fn outside<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    let end = Instant::now() + seconds(60);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(Instant::now() < end, "it waits on");
        thread::park_timeout(seconds(60));
    }
}

fn runtime() -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().unwrap()
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns masters, a coordinator on `runtime`, and a guard of the mutex `NAME`.
fn world(runtime: &Runtime) -> (Vec<MemoryMaster>, Coordinator, Guard) {
    let masters = masters(3);
    runtime.block_on(async {
        let locks = Coordinator::new(&masters).unwrap();
        locks.all_ready_within(seconds(20)).await.unwrap();
        let guard = locks.mutex(NAME).acquire().await.unwrap();
        (masters, locks, guard)
    })
}

/// Returns a lock of each kind. The owners are new.
fn wanted(locks: &Coordinator) -> [Lock; KINDS.len()] {
    KINDS.map(|kind| locks.of_kind(kind, format!("wanted {kind}"), &locks.new_owner()))
}

#[test]
fn waits_end_in_time_outside_of_a_runtime() {
    let runtime = runtime();
    let (_masters, locks, guard) = world(&runtime);
    let held = wanted(&locks).map(|lock| outside(lock.acquire()).unwrap());
    for lock in wanted(&locks) {
        let error = outside(lock.try_acquire()).unwrap_err();
        assert!(error.is_busy(), "{error}");
        let error = outside(lock.acquire_within(millis(50))).unwrap_err();
        assert!(error.to_string().starts_with("gave up"), "{error}");
        assert!(outside(lock.is_held()).unwrap());
    }
    outside(guard.extend(seconds(30))).unwrap();
    thread::scope(|scope| {
        let waits = wanted(&locks).map(|lock| scope.spawn(move || outside(lock.acquire())));
        thread::sleep(millis(100));
        outside(guard.release()).unwrap();
        for guard in held {
            outside(guard.release()).unwrap();
        }
        for wait in waits {
            assert!(wait.join().unwrap().unwrap().is_valid());
        }
    });
    let lock = locks.mutex("short").ttl(millis(300)).renewal(Renewal::Off);
    let short = outside(lock.acquire()).unwrap();
    assert_eq!(outside(short.lost()).reason, LostReason::Expired);
    let guard = outside(locks.mutex("run").acquire()).unwrap();
    assert_eq!(outside(guard.run(async { 42 })).unwrap(), 42);
    assert!(outside(locks.health_events().next()).is_some());
    outside(locks.close());
}

#[test]
fn calls_after_the_end_of_the_runtime_find_the_coordinator_closed() {
    let runtime = runtime();
    let (_masters, locks, guard) = world(&runtime);
    let handle = runtime.handle().clone();
    let lock = locks.mutex("short").ttl(seconds(1));
    let short = outside(lock.acquire()).unwrap();
    let _held = wanted(&locks).map(|lock| outside(lock.acquire()).unwrap());
    thread::scope(|scope| {
        let waits = wanted(&locks).map(|lock| {
            let (handle, other) = (handle.clone(), lock.clone());
            let inside = scope.spawn(move || handle.block_on(lock.acquire()));
            [inside, scope.spawn(move || outside(other.acquire()))]
        });
        let lost = scope.spawn(|| handle.block_on(short.lost()));
        thread::sleep(millis(100));
        runtime.shutdown_background();
        for wait in waits.into_iter().flatten() {
            let error = wait.join().unwrap().unwrap_err();
            assert!(*error.reason() == Reason::Closed, "{error}");
        }
        assert_eq!(lost.join().unwrap().reason, LostReason::Closed);
    });
    assert!(!short.is_valid());
    for lock in wanted(&locks) {
        let results = [
            outside(lock.try_acquire()),
            outside(lock.acquire_within(seconds(20))),
            outside(lock.acquire()),
        ];
        for result in results {
            assert!(
                matches!(&result, Err(error) if *error.reason() == Reason::Closed),
                "{result:?}"
            );
        }
        outside(lock.inspect()).unwrap_err();
    }
    let ready = outside(locks.ready_within(seconds(20)));
    assert!(matches!(ready, Err(AskError::Closed)), "{ready:?}");
    assert_eq!(outside(guard.lost()).reason, LostReason::Closed);
    outside(guard.extend(seconds(30))).unwrap_err();
    outside(guard.release()).unwrap_err();
    outside(locks.close());
}

#[test]
fn a_runtime_without_timers_builds_no_coordinator_and_can_use_one() {
    let runtime = runtime();
    let (_masters, locks, _guard) = world(&runtime);
    let without = Builder::new_current_thread().build().unwrap();
    without.block_on(async {
        let built = Coordinator::new([MemoryMaster::new()]).map(drop);
        assert_eq!(built, Err(ConfigError::NoRuntime));
        let waited = locks.mutex(NAME).acquire_within(millis(50)).await;
        assert!(
            matches!(&waited, Err(error) if error.to_string().starts_with("gave up")),
            "{waited:?}"
        );
    });
}

#[test]
fn a_runtime_that_nothing_drives_builds_no_coordinator() {
    let runtime = current_thread();
    let refused = || {
        let built = Coordinator::new(masters(3)).err();
        assert_eq!(built, Some(ConfigError::IdleRuntime));
    };
    let inside = runtime.enter();
    refused();
    let polled = pin!(async { refused() }).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready(), "another executor");
    drop(inside);
    runtime.block_on(async {}); // is over
    let _inside = runtime.enter();
    refused();
    let set = LocalSet::new();
    let _set = set.enter();
    refused();
}

#[test]
fn a_task_of_a_runtime_with_one_thread_builds_a_coordinator() {
    let build = || drop(Coordinator::new(masters(3)).unwrap());
    let runtime = current_thread();
    runtime.block_on(async { build() });
    runtime.block_on(async { tokio::spawn(async move { build() }).await.unwrap() });
    runtime.block_on(LocalSet::new().run_until(async { build() }));
    runtime.block_on(
        LocalSet::new().run_until(async { spawn_local(async move { build() }).await.unwrap() }),
    );
    LocalSet::new().block_on(&runtime, async { build() });
    paused_runtime().block_on(async { build() });
    runtime.block_on(async {
        let polled = pin!(async { build() }).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "another executor inside tokio");
        let handle = Handle::current();
        let other_thread = thread::spawn(move || handle.block_on(async { build() }));
        other_thread.join().unwrap();
    });
}

#[test]
fn a_build_uses_no_budget_of_its_task() {
    let units = || {
        let mut units = 0;
        while has_budget_remaining() {
            if let Poll::Ready(unit) = poll_proceed(&mut Context::from_waker(Waker::noop())) {
                unit.made_progress();
            }
            units += 1;
        }
        units
    };
    let all = current_thread().block_on(async { units() });
    let left = current_thread().block_on(async {
        drop(Coordinator::new(masters(3)).unwrap());
        units()
    });
    assert_eq!(left, all);
    assert!(all > 1);
    current_thread().block_on(async {
        units();
        drop(Coordinator::new(masters(3)).unwrap());
    });
}
