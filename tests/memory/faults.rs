//! Every fault with every verb. If one of three masters is faulty, every call succeeds. If two are
//! faulty, calls fail, but no round takes longer than the node timeout.

use quorlock::{AcquireError, ExtendError, Fault, ReleaseError};
use tokio::{task::yield_now, time::sleep};

use crate::world::{
    REDIAL, World, delay, error, held_for_a_second, millis, said, seconds, timed, valid,
};

/// Each fault, the milliseconds until the faulty master's vote is cast, and the text of that vote.
fn faults() -> [(Fault, u64, &'static str); 5] {
    [
        (
            Fault::Down,
            0,
            "unreachable: connecting to it: connection refused",
        ),
        (Fault::Hang, 50, "no answer in 50ms"),
        (Fault::Mute, 50, "no answer in 50ms"),
        (delay(80), 50, "no answer in 50ms"),
        (error(), 0, "answered OOM no room"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_acquired_with_one_faulty_master() {
    for (fault, after, vote) in faults() {
        let world = with_fault(World::new(3).await, 1, &fault).await;
        let (took, guard) = timed(world.lock().try_acquire()).await;
        let guard = guard.unwrap();
        let (settled, votes) = timed(guard.settled()).await;
        assert_eq!((took, settled), (millis(0), millis(after)), "{:?}", fault);
        assert_eq!(said(&votes), [vote, "granted", "granted"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_fails_in_time_with_two_faulty_masters() {
    for (fault, after, vote) in faults() {
        let world = with_fault(World::new(3).await, 2, &fault).await;
        let (took, error) = timed(world.lock().try_acquire()).await;
        // The attempt also waits for the votes on its release, which takes as long again.
        assert_eq!(took, millis(2 * after), "{:?}", fault);
        let Err(AcquireError::NoQuorum { votes, .. }) = error else {
            panic!("{:?}: {error:?}", fault);
        };
        // The error shows the votes on the acquisition, not the answers to the release.
        assert_eq!(said(&votes), [vote, vote, "granted"]);
        assert_eq!(world.holders()[2], "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_extended_with_one_faulty_master() {
    for (fault, after, vote) in faults() {
        let (world, guard) = held_for_a_second().await;
        let world = with_fault(world, 1, &fault).await;
        let (took, result) = timed(guard.extend(seconds(20))).await;
        result.unwrap();
        assert_eq!(guard.remaining(), valid(seconds(20)));
        let (settled, votes) = timed(guard.settled()).await;
        assert_eq!((took, settled), (millis(0), millis(after)), "{:?}", fault);
        assert_eq!(said(&votes), [vote, "granted", "granted"]);
        drop(world);
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_fails_in_time_with_two_faulty_masters() {
    for (fault, after, vote) in faults() {
        let (world, guard) = held_for_a_second().await;
        let world = with_fault(world, 2, &fault).await;
        let before = (guard.valid_until(), guard.validity(), world.holders());
        let left = guard.remaining();
        let (took, error) = timed(guard.extend(seconds(20))).await;
        assert_eq!(took, millis(after), "{:?}", fault);
        let Err(ExtendError::NoQuorum {
            votes, remaining, ..
        }) = error
        else {
            panic!("{:?}: {error:?}", fault);
        };
        assert_eq!(remaining, left - took);
        assert_eq!(said(&votes), [vote, vote, "granted"]);
        assert_eq!(
            before,
            (guard.valid_until(), guard.validity(), world.holders())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_released_with_one_faulty_master() {
    for (fault, ..) in faults() {
        let (world, guard) = held_for_a_second().await;
        let world = with_fault(world, 1, &fault).await;
        let (took, result) = timed(guard.release()).await;
        result.unwrap();
        assert_eq!(took, millis(0), "{:?}", fault);
        assert_eq!(world.holders()[1..], ["", ""]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_returns_in_time_with_two_faulty_masters() {
    for (fault, after, vote) in faults() {
        let (world, guard) = held_for_a_second().await;
        let world = with_fault(world, 2, &fault).await;
        let (took, error) = timed(guard.release()).await;
        assert_eq!(took, millis(after), "{:?}", fault);
        let Err(ReleaseError::NoQuorum { votes, .. }) = error else {
            panic!("{:?}: {error:?}", fault);
        };
        assert_eq!(said(&votes)[..2], [vote, vote]);
        sleep(millis(1)).await; // the round may end before the third master has answered
        assert_eq!(world.holders()[2], "");
    }
}

#[tokio::test(start_paused = true)]
async fn masters_work_after_a_fault_has_gone() {
    for (fault, ..) in faults() {
        let (world, guard) = held_for_a_second().await;
        let world = with_fault(world, 3, &fault).await;
        drop(guard);
        let _ = world.lock().try_acquire().await.unwrap_err();
        sleep(seconds(3)).await;
        world.clear_faults();
        sleep(REDIAL).await;
        let guard = world.guard().await;
        assert_eq!(said(&guard.settled().await), ["granted"; 3], "{:?}", fault);
    }
}

/// Injects `fault` into the first `masters`, and lets other tasks notice it. Their connections have
/// worked for a while, and were not silent.
async fn with_fault(world: World, masters: usize, fault: &Fault) -> World {
    sleep(seconds(1)).await;
    let guard = world.locks.mutex("another").try_acquire().await.unwrap();
    guard.release().await.unwrap();
    sleep(millis(1)).await;
    world.inject((0..masters).map(|_| fault.clone()));
    yield_now().await;
    world
}
