//! Calls on all kinds of threads, and in async tasks.

use std::{
    cell::RefCell,
    pin::pin,
    sync::mpsc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use quorlock::{
    AcquireError, ExtendError, InspectError, Inspection, ReadyError, ReleaseError, RunError,
    blocking::{Coordinator, Guard},
};
use tokio::{
    runtime::{Builder, Runtime},
    task::{
        LocalSet, block_in_place,
        coop::{has_budget_remaining, poll_proceed, unconstrained},
        spawn_blocking, spawn_local,
    },
};

use crate::common::*;

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Makes calls that wait for a timer, for answers of masters, and for a wake-up.
fn works(locks: &Coordinator) {
    let lock = locks.mutex("works");
    let guard = lock.acquire().unwrap();
    let late = lock.acquire_within(Duration::from_millis(5));
    assert!(
        matches!(late, Err(AcquireError::Deadline { .. })),
        "{late:?}"
    );
    assert!(
        guard
            .lost_within(Duration::from_millis(1))
            .unwrap()
            .is_none()
    );
    guard.release().unwrap();
}

/// Makes every call that blocks, and checks its error.
fn is_refused(locks: &Coordinator, guard: Guard, held: &Inspection) {
    let lock = locks.mutex("refused");
    let acquired = [
        lock.acquire(),
        lock.acquire_within(LONG),
        lock.try_acquire(),
    ];
    for acquired in acquired {
        assert!(matches!(acquired, Err(AcquireError::Blocking(_))));
    }
    let ran = lock.run(|_| -> Result<(), ()> { panic!("the body ran") });
    let Err(RunError::Acquire(AcquireError::Blocking(_))) = ran else {
        panic!("{ran:?}");
    };
    assert!(matches!(lock.inspect(), Err(InspectError::Blocking(_))));
    assert!(matches!(lock.is_held(), Err(InspectError::Blocking(_))));
    assert!(matches!(lock.available(), Err(InspectError::Blocking(_))));
    assert!(locks.break_held(held).is_err());
    assert!(matches!(locks.ready(LONG), Err(ReadyError::Blocking(_))));
    assert!(matches!(
        locks.all_ready(LONG),
        Err(ReadyError::Blocking(_))
    ));
    assert!(locks.close().is_err());
    assert!(locks.close_within(LONG).is_err());
    assert!(locks.health_events().next().is_err());
    assert!(guard.lost().is_err());
    assert!(guard.lost_within(LONG).is_err());
    assert!(guard.settled().is_err());
    assert!(matches!(guard.extend(LONG), Err(ExtendError::Blocking(_))));
    assert!(guard.is_valid());
    assert!(matches!(guard.release(), Err(ReleaseError::Blocking(_))));
}

/// Calls `is_refused` in a task that `run` runs. The guard is released in spite of the error, and
/// nothing was sent for the other calls.
fn is_refused_in(run: impl FnOnce(Box<dyn FnOnce() + Send>)) {
    let masters = masters();
    let locks = coordinator(&masters);
    let guard = acquire_on_all(&locks.mutex("held"));
    let held = locks.mutex("held").inspect().unwrap();
    let commands = || masters.iter().map(|master| master.commands()).sum::<u64>();
    let before = commands();
    let theirs = locks.clone();
    run(Box::new(move || is_refused(&theirs, guard, &held)));
    until("the release", || have_no_keys(&masters));
    assert_eq!(commands() - before, 3);
    works(&locks); // the coordinator was not closed
}

#[test]
fn a_call_in_a_task_of_a_worker_is_refused() {
    is_refused_in(|calls| {
        let runtime = multi_thread();
        let task = runtime.spawn(async { calls() });
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn a_call_in_the_main_future_is_refused() {
    is_refused_in(|calls| multi_thread().block_on(async { calls() }));
    is_refused_in(|calls| current_thread().block_on(async { calls() }));
    is_refused_in(|calls| multi_thread().handle().block_on(async { calls() }));
}

#[test]
fn a_call_in_a_task_of_one_thread_is_refused() {
    is_refused_in(|calls| {
        let runtime = current_thread();
        let task = runtime.spawn(async { calls() });
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn a_call_in_a_local_set_is_refused() {
    is_refused_in(|calls| {
        let set = LocalSet::new();
        current_thread().block_on(set.run_until(async { calls() }));
    });
    is_refused_in(|calls| {
        let main = async { spawn_local(async { calls() }).await.unwrap() };
        current_thread().block_on(LocalSet::new().run_until(main));
    });
    is_refused_in(|calls| LocalSet::new().block_on(&current_thread(), async { calls() }));
}

#[test]
fn a_call_in_a_task_that_used_up_its_budget_is_refused() {
    is_refused_in(|calls| {
        current_thread().block_on(async {
            while has_budget_remaining() {
                use_unit();
            }
            calls();
        });
    });
}

/// Uses one unit of the work that a task may do in one poll.
fn use_unit() {
    if let Poll::Ready(unit) = poll_proceed(&mut Context::from_waker(Waker::noop())) {
        unit.made_progress();
    }
}

#[test]
fn a_refused_call_uses_no_budget_of_the_task() {
    let locks = coordinator(&masters());
    let units = || {
        let mut units = 0;
        while has_budget_remaining() {
            use_unit();
            units += 1;
        }
        units
    };
    let all = current_thread().block_on(async { units() });
    let left = current_thread().block_on(async {
        assert!(locks.close().is_err());
        units()
    });
    assert_eq!(left, all);
    assert!(all > 1);
}

#[test]
fn a_call_in_a_plain_thread_works() {
    let locks = coordinator(&masters());
    works(&locks);
    thread::scope(|scope| scope.spawn(|| works(&locks)).join().unwrap());
}

#[test]
fn a_call_in_a_thread_that_entered_a_runtime_works() {
    let locks = coordinator(&masters());
    for runtime in [multi_thread(), current_thread()] {
        let _entered = runtime.enter();
        works(&locks);
    }
}

#[test]
fn a_call_in_spawn_blocking_works() {
    let locks = coordinator(&masters());
    for runtime in [multi_thread(), current_thread()] {
        let locks = locks.clone();
        let job = runtime.spawn_blocking(move || works(&locks));
        runtime.block_on(job).unwrap();
    }
}

#[test]
fn a_call_in_block_in_place_works() {
    let locks = coordinator(&masters());
    let runtime = multi_thread();
    runtime.block_on(async { block_in_place(|| works(&locks)) });
    let task = runtime.spawn(async move {
        block_in_place(|| works(&locks));
        // The worker counts as a task again.
        assert!(locks.close().is_err());
    });
    runtime.block_on(task).unwrap();
}

/// Nothing tells that these are tasks. The calls block, and they do not panic.
#[test]
fn a_call_in_a_task_that_is_not_noticed_works() {
    let locks = coordinator(&masters());
    multi_thread().block_on(unconstrained(async { works(&locks) }));
    current_thread().block_on(unconstrained(async { works(&locks) }));
    let other_executor = pin!(async { works(&locks) });
    let polled = other_executor.poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready());
}

#[test]
fn a_coordinator_can_be_built_and_dropped_in_a_task() {
    for runtime in [multi_thread(), current_thread()] {
        let masters = masters();
        runtime.block_on(async {
            let locks = patient().masters(&masters).build_blocking().unwrap();
            let theirs = locks.clone();
            let acquire = move || acquire_on_all(&theirs.mutex("held"));
            let guard = spawn_blocking(acquire).await.unwrap();
            assert!(!have_no_keys(&masters));
            drop(locks);
            drop(guard);
        });
        until("the release", || have_no_keys(&masters));
    }
}

/// The destructors of thread-local values run in no particular order, so one of these may run after
/// the destructors of tokio's values.
#[test]
fn a_call_in_the_destructor_of_a_thread_local_value_does_not_panic() {
    struct Last {
        locks: Coordinator,
        guard: Option<Guard>,
        result: mpsc::Sender<Result<(), AcquireError>>,
    }
    impl Drop for Last {
        fn drop(&mut self) {
            let acquired = self.locks.mutex("last").try_acquire();
            let _ = self.result.send(acquired.map(drop));
            drop(self.guard.take());
            let _ = patient().masters(masters()).build_blocking();
        }
    }
    thread_local! {
        static EARLY: RefCell<Option<Last>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    let masters = masters();
    let locks = coordinator(&masters);
    let (result, results) = mpsc::channel();
    let last = |name: &str| Last {
        guard: Some(acquire_on_all(&locks.mutex(name))),
        locks: locks.clone(),
        result: result.clone(),
    };
    let values = [last("early"), last("late")];
    let ended = thread::spawn(|| {
        let [early, late] = values;
        EARLY.set(Some(early));
        let _ = tokio::runtime::Handle::try_current(); // tokio's values come second
        has_budget_remaining();
        LATE.set(Some(late));
    });
    ended.join().unwrap();
    drop(result);
    let results: Vec<_> = results.iter().collect();
    assert_eq!(results.len(), 2);
    for result in results {
        match result {
            Ok(()) | Err(AcquireError::Blocking(_)) => {}
            Err(AcquireError::Contended { .. }) => {} // the other one has not been released yet
            other => panic!("{other:?}"),
        }
    }
    until("the releases", || have_no_keys(&masters));
}
