//! Work that runs under a lock (`Guard::run`), with the paused clock.

use std::{
    future::pending,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use quorlock::{Fault, LostReason, Renewal};
use tokio::time::{advance, sleep};

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
async fn the_result_is_passed_on_and_the_lock_stays_held() {
    let world = World::new(3).await;
    let guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
    let work = async {
        sleep(seconds(40)).await; // four TTLs
        assert_eq!(world.holders(), ["mine"; 3]);
        42
    };
    assert_eq!(guard.run(work).await.unwrap(), 42);
    assert_eq!(world.holders(), ["mine"; 3]);
}

#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_when_the_lock_is_lost() {
    for (reason, fault) in [
        (LostReason::TakenAway, None),
        (LostReason::Expired, Some(Fault::Hang)),
        (LostReason::RenewalLimit, Some(Fault::None)),
    ] {
        let world = World::new(3).await;
        let (flag, dropped) = flag();
        let lock = world.locks.mutex(NAME).renewal(Renewal::UpTo(seconds(20)));
        let guard = lock.try_acquire().await.unwrap();
        let (took, outcome) = timed(guard.run(async {
            let _flag = flag;
            match fault {
                Some(fault) => world.inject_all(&fault),
                None => world.masters.iter().for_each(|master| master.delete(NAME)),
            }
            pending::<()>().await;
        }))
        .await;
        assert_eq!(outcome.unwrap_err().reason, reason);
        assert!(dropped.load(Ordering::SeqCst));
        assert!(took <= seconds(31), "{took:?}");
        world.clear_faults();
        drop(guard);
        world.locks.close().await;
        assert_eq!(world.holders(), [""; 3], "{reason:?}");
    }
}

/// The process stalls for longer than the validity. Then the loss and the next step are due at the
/// same time.
#[tokio::test(start_paused = true)]
async fn the_work_does_not_go_on_after_a_stall() {
    let world = World::new(3).await;
    let guard = world.lock().try_acquire().await.unwrap();
    let went_on = AtomicBool::new(false);
    let outcome = guard
        .run(async {
            tokio::spawn(advance(seconds(12))); // runs when this task waits
            sleep(seconds(1)).await;
            went_on.store(true, Ordering::SeqCst);
        })
        .await;
    assert!(outcome.is_err());
    assert!(!went_on.load(Ordering::SeqCst));
}

/// The stall is in the last step of the work, so nothing could stop it.
#[tokio::test(start_paused = true)]
async fn work_that_ends_well_but_too_late_is_no_success() {
    let world = World::new(3).await;
    let guard = world.lock().try_acquire().await.unwrap();
    let outcome = guard.run(start(pin!(advance(seconds(12))))).await;
    assert_eq!(outcome.unwrap_err().reason, LostReason::Expired);
}
