//! Code that runs under a lock (`Lock::run`), with the paused clock.

use std::{
    future::pending,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use quorlock::{AcquireError, Fault, LostReason, Reason, Renewal, RunError};
use tokio::time::{advance, sleep, timeout};

use crate::world::*;

/// Records that it was dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn flag() -> (Flag, Arc<AtomicBool>) {
    let dropped = Arc::<AtomicBool>::default();
    (Flag(dropped.clone()), dropped)
}

#[tokio::test(start_paused = true)]
async fn the_result_is_passed_on_and_the_lock_is_released() {
    let world = World::new(3).await;
    let lock = world.locks.mutex(NAME);
    let done = lock
        .run(async |guard| {
            sleep(seconds(40)).await; // four TTLs
            guard.ensure_valid().map_err(|_| "lost")?;
            assert_eq!(world.holders(), ["mine"; 3]);
            Ok::<_, &str>(42)
        })
        .await;
    assert_eq!(done.unwrap(), 42);
    lock.try_acquire().await.unwrap().release().await.unwrap();
    world.locks.close().await;
    assert_eq!(world.holders(), [""; 3]);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_body_is_passed_on_and_the_lock_is_released() {
    let world = World::new(3).await;
    let lock = world.locks.mutex(NAME);
    let failed = lock.run(async |_| Err::<(), _>("mine")).await;
    assert!(matches!(failed, Err(RunError::Body("mine"))));
    world.locks.close().await;
    assert_eq!(world.holders(), [""; 3]);
}

#[tokio::test(start_paused = true)]
async fn the_body_is_dropped_when_the_lock_is_lost() {
    for (reason, fault) in [
        (LostReason::TakenAway, None),
        (LostReason::Expired, Some(Fault::Hang)),
        (LostReason::RenewalLimit, Some(Fault::None)),
    ] {
        let world = World::new(3).await;
        let (flag, dropped) = flag();
        let lock = world.locks.mutex(NAME).renewal(Renewal::UpTo(seconds(20)));
        let (took, outcome) = timed(lock.run(async |_| {
            let _flag = flag;
            match fault {
                Some(fault) => world.inject_all(&fault),
                None => world.masters.iter().for_each(|master| master.delete(NAME)),
            }
            pending::<Result<(), ()>>().await
        }))
        .await;
        let Err(RunError::Lost(lost)) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(lost.reason, reason);
        assert!(dropped.load(Ordering::SeqCst));
        assert!(took <= seconds(31), "{took:?}");
        world.clear_faults();
        world.locks.close().await;
        assert_eq!(world.holders(), [""; 3], "{reason:?}");
    }
}

/// The process stalls for longer than the validity. Then the loss and the next step are due at the
/// same time.
#[tokio::test(start_paused = true)]
async fn a_body_does_not_go_on_after_a_stall() {
    let world = World::new(3).await;
    let went_on = AtomicBool::new(false);
    let lock = world.locks.mutex(NAME);
    let outcome = lock
        .run(async |_| {
            tokio::spawn(advance(seconds(12))); // runs when this task waits
            sleep(seconds(1)).await;
            went_on.store(true, Ordering::SeqCst);
            Ok::<_, ()>(())
        })
        .await;
    assert!(matches!(outcome, Err(RunError::Lost(_))), "{outcome:?}");
    assert!(!went_on.load(Ordering::SeqCst));
}

/// The stall is in the last step of the body, so nothing could stop it.
#[tokio::test(start_paused = true)]
async fn the_error_of_the_last_step_counts_even_if_the_lock_was_lost_in_it() {
    let world = World::new(3).await;
    let outcome = world
        .lock()
        .run(async |guard| {
            start(pin!(advance(seconds(12)))).await;
            Err::<(), _>(guard.ensure_valid().is_err())
        })
        .await;
    assert!(matches!(outcome, Err(RunError::Body(true))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_well_but_too_late_is_no_success() {
    let world = World::new(3).await;
    let outcome = world
        .lock()
        .run(async |_| {
            start(pin!(advance(seconds(12)))).await;
            Ok::<_, ()>(())
        })
        .await;
    let Err(RunError::Lost(lost)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(lost.reason, LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_guard_runs_work_until_the_lock_is_lost() {
    let world = World::new(3).await;
    let guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
    let (flag, dropped) = flag();
    let work = async {
        let _flag = flag;
        world.masters.iter().for_each(|master| master.delete(NAME));
        pending::<()>().await;
    };
    let lost = guard.run(work).await.unwrap_err();
    assert_eq!(lost.reason, LostReason::TakenAway);
    assert!(dropped.load(Ordering::SeqCst));

    let guard = world.lock().try_acquire().await.unwrap();
    let lost = guard.run(start(pin!(advance(seconds(12))))).await;
    assert_eq!(lost.unwrap_err().reason, LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn the_body_does_not_run_without_the_lock() {
    let world = World::new(3).await;
    world.locks.close().await;
    let (flag, dropped) = flag();
    let body = async move |_: &quorlock::Guard| {
        let _flag = flag;
        panic!("the body ran");
        #[expect(unreachable_code, reason = "it gives the closure its type")]
        Ok::<(), ()>(())
    };
    let outcome = world.lock().run(body).await;
    let is_closed = |error: &AcquireError| *error.reason() == Reason::Closed;
    assert!(matches!(outcome, Err(RunError::Acquire(error)) if is_closed(&error)));
    assert!(dropped.load(Ordering::SeqCst));
}

/// The run is dropped while it waits for the lock, while the body runs, or while it releases.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_at_any_millisecond_leaves_nothing() {
    let mut ran = [0; 3];
    for end in 0..90 {
        let world = World::new(3).await;
        world.occupy(0..3, millis(30));
        world.inject_all(&delay(3));
        let (flag, dropped) = flag();
        let lock = world.locks.mutex(NAME);
        let started = AtomicBool::new(false);
        let body = async |_: &quorlock::Guard| {
            let _flag = flag;
            started.store(true, Ordering::SeqCst);
            sleep(millis(20)).await;
            Ok::<_, ()>(())
        };
        let ended = timeout(millis(end), lock.run(body)).await;
        assert!(dropped.load(Ordering::SeqCst));
        ran[usize::from(started.load(Ordering::SeqCst)) + usize::from(ended.is_ok())] += 1;
        world.locks.close().await;
        assert!(!world.holders().contains(&"mine"), "after {end} ms");
    }
    assert!(ran.iter().all(|count| *count > 5), "{ran:?}");
}
