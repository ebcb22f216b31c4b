//! Locks that stay in place for a minimum hold although their guards are gone.

use quorlock::{Coordinator, Fault, LockKind, Reason};
use testkit::captured_log::CapturedLog;
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use crate::world::*;

/// Returns when another process gets the lock, counted from `start`.
async fn taken_after(others: &Coordinator, kind: LockKind, start: Instant) -> std::time::Duration {
    let owner = others.new_owner();
    let lock = others.of_kind(kind, NAME, &owner);
    lock.acquire().await.unwrap().release().await.unwrap();
    start.elapsed()
}

#[tokio::test]
async fn a_time_that_is_a_mistake_in_units_is_refused() {
    let world = World::new(3).await;
    let before = world.commands();
    let lock = world.lock().min_hold(std::time::Duration::MAX);
    let error = lock.try_acquire().await.unwrap_err();
    assert!(matches!(error.reason(), Reason::Config(_)), "{error}");
    let expected = "is out of range: it must be at most 31622400s";
    assert!(error.to_string().ends_with(expected), "{error}");
    assert_eq!(world.commands_since(&before), [0; 3]);
}

/// The minimum hold is longer than the longest TTL, and the process of the holder has ended. The
/// clocks of masters may be 1 % fast.
#[tokio::test(start_paused = true)]
async fn a_short_job_keeps_others_out_for_the_whole_minimum_time() {
    for kind in KINDS {
        for is_dropped in [true, false] {
            let world = World::new(3).await;
            let others = Coordinator::new(&world.masters).unwrap();
            let start = Instant::now();
            let owner = world.locks.new_owner();
            let lock = world
                .locks
                .of_kind(kind, NAME, &owner)
                .min_hold(seconds(600));
            let guard = lock.try_acquire().await.unwrap();
            sleep(seconds(1)).await;
            if is_dropped {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            drop((lock, owner));
            timeout(seconds(1), world.locks.close()).await.unwrap();
            drop(world.locks);
            let took = taken_after(&others, kind, start).await;
            assert!(
                (seconds(606)..seconds(608)).contains(&took),
                "{kind:?}: {took:?}"
            );
        }
    }
}

/// The owner of a lock that was left in place may acquire it again.
#[tokio::test(start_paused = true)]
async fn an_owner_keeps_what_it_left_in_place() {
    let world = World::new(3).await;
    let owner = world.locks.new_owner();
    let lock = world.locks.reentrant(NAME, &owner).min_hold(seconds(60));
    lock.try_acquire().await.unwrap().release().await.unwrap();
    let other = world.locks.reentrant(NAME, &world.locks.new_owner());
    let refused = other.try_acquire().await.unwrap_err();
    assert!(refused.is_busy());
    let again = lock.try_acquire().await.unwrap();
    assert_eq!(again.depth(), 1);
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_cannot_be_left_in_place_is_reported() {
    let (log, _listening) = CapturedLog::listen();
    for is_dropped in [true, false] {
        let world = World::new(3).await;
        let guard = world
            .lock()
            .min_hold(seconds(600))
            .try_acquire()
            .await
            .unwrap();
        guard.all_votes().await;
        world.inject([Fault::Down, Fault::Down]);
        sleep(millis(1)).await;
        log.take();
        if is_dropped {
            drop(guard);
        } else {
            let error = guard.release().await.unwrap_err();
            assert!(error.to_string().starts_with("kept "), "{error}");
            let text = error.to_string();
            assert!(
                text.contains("minimum hold on only 1 of 3 masters (need 2)"),
                "{text}"
            );
        }
        sleep(seconds(1)).await;
        let warned = log.count(Level::WARN, "not kept for its minimum hold");
        assert_eq!(warned, 1, "{log:?}");
    }
}
