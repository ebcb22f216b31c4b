//! Lost locks, and the notification of the tasks that wait for the loss.

use std::time::Duration;

use quorlock::{ExtendError, Fault, LockState, LostReason};
use tokio::time::sleep;

use crate::world::*;

const TTL: Duration = seconds(10); // the default

/// The longest time until the next renewal has been answered.
fn period() -> Duration {
    valid(TTL) / 3 + millis(10)
}

/// All methods that tell the lock's state report the loss, even after the masters work again.
#[tokio::test(start_paused = true)]
async fn a_lost_lock_stays_lost() {
    for (reason, fault) in [
        (LostReason::TakenAway, None),
        (LostReason::Expired, Some(Fault::Hang)),
        (LostReason::Expired, Some(Fault::Mute)),
        (LostReason::Expired, Some(Fault::Down)),
        (LostReason::Expired, Some(error())),
    ] {
        let world = World::new(3).await;
        let guard = renewed_guard(&world).await;
        let tokens: Vec<_> = world.masters.iter().map(|m| m.get(NAME)).collect();
        match &fault {
            Some(fault) => world.inject_all(fault),
            None => world.masters.iter().for_each(|m| m.delete(NAME)),
        }
        let lost = guard.lost().await;
        assert_eq!((lost.reason, lost.stalled), (reason, None), "{fault:?}");
        for _ in 0..20 {
            assert_eq!(guard.state(), LockState::Lost(reason), "{fault:?}");
            assert!(!guard.is_valid());
            assert_eq!(guard.remaining(), Duration::ZERO);
            assert_eq!(guard.ensure_valid().unwrap_err().reason, reason);
            let refused = guard.extend(TTL).await.unwrap_err();
            assert!(matches!(refused, ExtendError::Lost(lost) if lost.reason == reason));
            let (took, lost) = timed(guard.lost()).await;
            assert_eq!((took, lost.reason), (Duration::ZERO, reason));
            world.clear_faults();
            for (master, token) in world.masters.iter().zip(&tokens) {
                master.set(NAME, token.clone().unwrap(), Some(seconds(60)));
            }
            sleep(millis(700)).await;
        }
    }
}

/// The clock moves on while no task runs, as when the process is stopped.
#[tokio::test(start_paused = true)]
async fn a_loss_because_the_process_did_not_run_says_so() {
    let (log, _listening) = testkit::captured_log::CapturedLog::listen();
    for (before, stall) in [(seconds(1), seconds(20)), (seconds(40), seconds(12))] {
        let world = World::new(3).await;
        let guard = renewed_guard(&world).await;
        sleep(before).await;
        tokio::time::advance(stall).await;
        let lost = guard.lost().await;
        assert_eq!(lost.reason, LostReason::Expired);
        let stalled = lost.stalled.unwrap();
        // The time from the renewal that was due.
        assert!(
            stalled <= stall && stalled + period() >= stall,
            "{stalled:?}"
        );
        let because = format!(
            "without an extension, because this process did not run for at least {stalled:.1?}"
        );
        assert!(lost.to_string().contains(&because), "{lost}");
        let is_logged =
            |(_, line): &(_, String)| line.contains("lock lost") && line.contains(&because);
        assert!(log.take().iter().any(is_logged));
    }
}

/// A stall that is over in time is not the reason for a later loss.
#[tokio::test(start_paused = true)]
async fn a_stall_before_the_last_renewal_is_no_reason() {
    let world = World::new(3).await;
    let guard = renewed_guard(&world).await;
    sleep(seconds(1)).await;
    tokio::time::advance(seconds(6)).await;
    sleep(seconds(1)).await;
    world.inject_all(&Fault::Hang);
    let lost = guard.lost().await;
    assert_eq!((lost.reason, lost.stalled), (LostReason::Expired, None));
}
