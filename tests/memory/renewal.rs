//! Renewed locks, with the paused clock.

use quorlock::{Fault, Guard, LockState, LostReason, Renewal};
use tokio::time::{Instant, advance, sleep, sleep_until};

use crate::world::*;

const TTL: std::time::Duration = seconds(10); // the default

/// All masters run for 90 ms of each 200 ms, as under a CPU quota. The first renewal and all
/// retries after equal times would come when the masters stand still for longer than a response
/// timeout.
#[tokio::test(start_paused = true)]
async fn retries_do_not_keep_step_with_masters_that_stand_still_at_regular_times() {
    let ttl = seconds(4);
    let world = World::with(3, |builder| builder.ttl(ttl)).await;
    let guard = renewed_guard(&world).await;
    sleep(valid(ttl) / 3 - millis(10)).await;
    for _ in 0..20 {
        world.inject_all(&Fault::Hang);
        sleep(millis(110)).await;
        world.clear_faults();
        sleep(millis(90)).await;
    }
    guard.ensure_valid().unwrap();
}

/// A limit by default would end the lock of a long job in the middle of its work.
#[tokio::test(start_paused = true)]
async fn a_job_of_a_day_keeps_its_lock_by_default() {
    let world = World::new(3).await;
    let guard = renewed_guard(&world).await;
    sleep(seconds(24 * 3_600)).await;
    assert_eq!(guard.state(), LockState::Held);
    guard.ensure_valid().unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_lock_is_renewed_beyond_its_renewal_limit() {
    let world = World::with(3, |builder| builder.renewal(Renewal::UpTo(seconds(60)))).await;
    let lock = world.locks.mutex(NAME);
    for (lock, most) in [
        (lock.clone(), seconds(60)),
        (
            lock.clone().renewal(Renewal::UpTo(seconds(25))),
            seconds(25),
        ),
        (lock.clone().renewal(Renewal::UpTo(seconds(0))), seconds(0)),
        (
            lock.ttl(TTL).renewal(Renewal::UpTo(seconds(25))),
            seconds(25),
        ),
    ] {
        let guard = lock.try_acquire().await.unwrap();
        let (took, lost) = timed(guard.lost()).await;
        assert_eq!(lost.reason, LostReason::RenewalLimit);
        assert!(most <= took && took <= most + TTL, "{took:?}");
        assert_eq!(guard.state(), LockState::Lost(LostReason::RenewalLimit));
    }
}

/// The first renewal is due before the limit. The process stalls until after the limit, or no
/// master answers until then.
#[tokio::test(start_paused = true)]
async fn no_late_renewal_outlasts_the_renewal_limit() {
    let limit = seconds(4);
    for is_stalled in [true, false] {
        let world = World::with(3, |builder| builder.renewal(Renewal::UpTo(limit))).await;
        let guard = renewed_guard(&world).await;
        if is_stalled {
            advance(seconds(5)).await;
        } else {
            world.inject_all(&Fault::Hang);
            sleep(seconds(5)).await;
            world.clear_faults();
        }
        let (took, lost) = timed(guard.lost()).await;
        assert!(took <= valid(TTL) - seconds(5) + millis(2), "{took:?}");
        assert_eq!((lost.reason, lost.stalled), (LostReason::Expired, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_with_renewal_off_is_not_renewed() {
    let world = World::new(3).await;
    for lock in [
        world
            .locks
            .mutex(NAME)
            .ttl(seconds(5))
            .renewal(Renewal::Off),
        world.locks.mutex(NAME).renewal(Renewal::Off),
    ] {
        let guard = lock.try_acquire().await.unwrap();
        let commands = world.commands();
        let (took, lost) = timed(guard.lost()).await;
        assert_eq!(lost.reason, LostReason::Expired);
        assert!(took <= TTL, "{took:?}");
        assert_eq!(world.commands(), commands);
        drop(guard);
        sleep(millis(10)).await;
    }
}

/// The process stalls, and then all renewals are due at the same time. The renewer sends as many as
/// the masters can answer in time, waits for the answers, and sends more.
#[tokio::test(start_paused = true)]
async fn renewals_wait_for_the_answers_to_earlier_ones() {
    let ttl = millis(1_500);
    let world = World::with(5, |builder| builder.ttl(ttl)).await;
    let guards = take(&world, 2_000).await;
    let before = world.commands();
    world.inject(vec![delay(30); 5]);
    advance(valid(ttl) / 3).await;
    let due = Instant::now();
    for (round, posted) in [(1, 1_024), (2, 2_000)] {
        // Waits until half a delay after the answers to the last renewals.
        sleep_until(due + millis(round * 31 + 14)).await;
        assert_eq!(world.commands()[0] - before[0], posted);
    }
    sleep(millis(31)).await;
    for guard in &guards {
        assert_eq!(guard.state(), LockState::Held);
        assert!(guard.remaining() > valid(ttl) - millis(250), "{guard:?}");
    }
    world.clear_faults();
    drop(guards);
    world.locks.close().await;
}

/// The answers come so late that more renewals must be under way than masters can usually answer in
/// time.
#[tokio::test(start_paused = true)]
async fn many_locks_are_renewed_in_time_on_masters_that_are_far_away() {
    let world = World::with(3, |builder| builder.response_timeout(seconds(1))).await;
    let guards = take(&world, 5_000).await;
    world.inject_all(&delay(800));
    for _ in 0..30 {
        sleep(seconds(1)).await;
        let least = guards.iter().map(Guard::remaining).min().unwrap();
        assert!(least > seconds(2), "{least:?}");
    }
    world.clear_faults();
    drop(guards);
    world.locks.close().await;
}

/// Two of five masters do not answer. The other three decide, and no renewal waits for the two.
#[tokio::test(start_paused = true)]
async fn renewals_do_not_wait_for_masters_that_hang() {
    for (fault, count, late) in [
        (Fault::Hang, 1_500, millis(10)),
        (Fault::Down, 1_500, millis(10)),
        (Fault::Mute, 1_500, millis(10)),
        (Fault::Hang, 6_000, millis(10)),
    ] {
        let world = World::new(5).await;
        let guards = take(&world, count).await;
        world.inject(vec![fault.clone(); 2]);
        advance(valid(TTL) / 3).await;
        sleep(late).await;
        for guard in &guards {
            assert!(
                guard.remaining() > valid(TTL) - millis(5) - late,
                "{fault:?}: {guard:?}"
            );
        }
        world.clear_faults();
        drop(guards);
        world.locks.close().await;
    }
}

async fn take(world: &World, count: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for n in 0..count {
        let lock = world.locks.mutex(format!("lock {n}"));
        guards.push(lock.try_acquire().await.unwrap());
    }
    guards
}
