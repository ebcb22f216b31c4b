//! Every fault with every verb. If two of three masters are faulty, calls fail, but no round takes
//! longer than the response timeout.

use quorlock::{ExtendError, Fault, QuorumError, Reason};
use tokio::{task::yield_now, time::sleep};

use crate::world::{World, delay, error, held_for_a_second, millis, said, seconds, timed};

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
async fn an_acquisition_fails_in_time_with_two_faulty_masters() {
    for (fault, after, vote) in faults() {
        let world = with_fault(World::new(3).await, &fault).await;
        let (took, error) = timed(world.lock().try_acquire()).await;
        // The attempt also waits for the votes on its release, which takes as long again.
        assert_eq!(took, millis(2 * after), "{:?}", fault);
        let error = error.unwrap_err();
        assert_eq!(*error.reason(), Reason::NoQuorum, "{fault:?}: {error}");
        let votes = error.votes().unwrap();
        // The error shows the votes on the acquisition, not the answers to the release.
        assert_eq!(said(votes), [vote, vote, "granted"]);
        assert_eq!(world.holders()[2], "");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_fails_in_time_with_two_faulty_masters() {
    for (fault, after, vote) in faults() {
        let (world, guard) = held_for_a_second().await;
        let world = with_fault(world, &fault).await;
        let before = (guard.valid_until(), guard.validity(), world.holders());
        let left = guard.remaining();
        let (took, error) = timed(guard.extend(seconds(20))).await;
        assert_eq!(took, millis(after), "{:?}", fault);
        let Err(ExtendError::NoQuorum(QuorumError { votes, .. })) = error else {
            panic!("{fault:?}: {error:?}");
        };
        assert_eq!(guard.remaining(), left - took);
        assert_eq!(said(&votes), [vote, vote, "granted"]);
        assert_eq!(
            before,
            (guard.valid_until(), guard.validity(), world.holders())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_returns_in_time_with_two_faulty_masters() {
    for (fault, after, vote) in faults() {
        let (world, guard) = held_for_a_second().await;
        let world = with_fault(world, &fault).await;
        let (took, error) = timed(guard.release()).await;
        assert_eq!(took, millis(after), "{:?}", fault);
        let votes = error.unwrap_err().votes;
        assert_eq!(said(&votes)[..2], [vote, vote]);
        sleep(millis(1)).await; // the round may end before the third master has answered
        assert_eq!(world.holders()[2], "");
    }
}

/// Injects `fault` into two masters, and lets other tasks notice it. Their connections have worked
/// for a while, and were not silent.
async fn with_fault(world: World, fault: &Fault) -> World {
    sleep(seconds(1)).await;
    let guard = world.locks.mutex("another").try_acquire().await.unwrap();
    guard.release().await.unwrap();
    sleep(millis(1)).await;
    world.inject([fault.clone(), fault.clone()]);
    yield_now().await;
    world
}
