//! Round trips that grow, shrink or differ.

use std::{iter, sync::Arc, time::Duration};

use quorlock::{
    Builder, Coordinator, Fault, Guard, LockState, MasterSpec, MemoryMaster, Quarantine,
};
use testkit::captured_log::CapturedLog;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    links::{Latency, linked},
    world::*,
};

/// Returns a coordinator that reaches a master over each of these latencies.
async fn over(latencies: &[Arc<Latency>], set: impl FnOnce(Builder) -> Builder) -> World {
    let masters: Vec<_> = latencies.iter().map(|_| MemoryMaster::new()).collect();
    let links = iter::zip(&masters, latencies).zip((1..).step_by(1_000));
    let specs = links.map(|((master, latency), seed)| linked(master, latency, seed));
    let builder = Coordinator::builder().quarantine(Quarantine::Off);
    let locks = set(builder.masters(specs)).build().unwrap();
    locks.all_ready_within(seconds(5)).await.unwrap();
    World { masters, locks }
}

/// Three masters over links with the same latency.
async fn over_one(latency: &Arc<Latency>) -> World {
    over(&[(); 3].map(|()| latency.clone()), |builder| builder).await
}

/// Returns the number of attempts that failed until `end`.
async fn try_every(gap: Duration, locks: Coordinator, name: String, end: Instant) -> u32 {
    let mut failed = 0;
    while Instant::now() < end {
        failed += u32::from(locks.mutex(&*name).try_acquire().await.is_err());
        sleep(gap).await;
    }
    failed
}

/// The round trip is near the longest response timeout.
#[tokio::test(start_paused = true)]
async fn no_lock_is_lost_and_no_patient_call_fails_when_masters_get_very_slow() {
    let latency = Latency::of_round_trip(millis(1));
    let latencies = [(); 3].map(|()| latency.clone());
    let world = over(&latencies, |builder| builder.connect_timeout(seconds(5))).await;
    let guard = renewed_guard(&world).await;
    sleep(seconds(3)).await;
    latency.set_round_trip(millis(900));
    let end = Instant::now() + seconds(60);
    while Instant::now() < end {
        let acquired = world.locks.mutex("other").acquire_within(seconds(10)).await;
        drop(acquired.unwrap());
        guard.ensure_valid().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_node_timeout_follows_answers_that_get_faster() {
    let latency = Latency::of_round_trip(millis(300));
    let world = over_one(&latency).await;
    let minute = Instant::now() + seconds(60);
    latency.set_round_trip(millis(1));
    try_every(millis(200), world.locks.clone(), NAME.into(), minute).await;
    world.inject_all(&Fault::Hang);
    let (took, error) = timed(world.lock().try_acquire()).await;
    let error = error.unwrap_err().to_string();
    // The answers to the release are waited for, too.
    assert!(took <= millis(102), "{took:?}");
    let why = "no answer in 50ms; its answers take 2ms"; // the links count in milliseconds
    assert!(error.contains(why), "{error}");
}

/// The network forgets the connections to a majority of masters, and resets none of them. A renewal
/// finds that out half a second after it began.
#[tokio::test(start_paused = true)]
async fn a_lock_outlives_connections_that_the_network_forgot() {
    for ttl in [900, 1_200, 1_500] {
        for at in (0..ttl / 3).step_by(30) {
            let latencies = [(); 3].map(|()| Latency::of_round_trip(millis(1)));
            let world = over(&latencies, |builder| builder).await;
            let lock = world.locks.mutex(NAME).ttl(millis(ttl));
            let guard = lock.try_acquire().await.unwrap();
            sleep(seconds(3) + millis(at)).await;
            latencies[..2].iter().for_each(|latency| latency.forget());
            let lost = timeout(seconds(5), guard.lost()).await;
            assert!(lost.is_err(), "{ttl} {at}: {lost:?}");
        }
    }
}

/// A master misses the renewal while another one hangs, whose response timeout is still 1 s.
#[tokio::test(start_paused = true)]
async fn a_renewal_is_tried_again_before_a_long_node_timeout_ends() {
    for ttl in [millis(500), seconds(1)] {
        let latency = Latency::of_round_trip(millis(300));
        let world = over_one(&latency).await;
        latency.set_round_trip(millis(1));
        let guard = world
            .locks
            .mutex(NAME)
            .ttl(ttl)
            .try_acquire()
            .await
            .unwrap();
        sleep_until(due(&guard, ttl) - millis(2)).await;
        world.inject([Fault::None, Fault::Down, Fault::Hang]);
        sleep(millis(30)).await;
        world.masters[1].inject(Fault::None);
        sleep(ttl * 2).await;
        guard.ensure_valid().unwrap();
    }
}

/// Each renewal fails only after later ones have begun.
#[tokio::test(start_paused = true)]
async fn a_lock_is_in_doubt_before_it_is_lost_while_the_node_timeout_is_long() {
    let latency = Latency::of_round_trip(millis(300));
    let world = over_one(&latency).await;
    let lock = world.locks.mutex(NAME).ttl(seconds(3));
    let guard = lock.try_acquire().await.unwrap();
    let (said, _listening) = CapturedLog::listen();
    world.inject_all(&Fault::Hang);
    let until = Instant::from_std(guard.valid_until());
    sleep_until(until - millis(200)).await;
    assert_eq!(guard.state(), LockState::InDoubt);
    guard.lost().await;
    let lines = said.take();
    let doubts = (lines.iter()).filter(|(_, line)| line.contains("lock in doubt"));
    let doubts: Vec<_> = doubts.collect();
    assert_eq!(doubts.len(), 1, "{lines:?}");
    assert!(doubts[0].1.contains("no answer in"), "{doubts:?}");
}

/// Returns when the first renewal is due.
fn due(guard: &Guard, ttl: Duration) -> Instant {
    Instant::from_std(guard.valid_until()) - valid(ttl) / 3 * 2
}

/// A master misses the renewal while the first dial to another one hangs.
#[tokio::test(start_paused = true)]
async fn a_renewal_is_tried_again_while_a_first_dial_hangs() {
    for connect in [1_000, 5_000, 20_000] {
        for (ttl, at, silence) in [(1_000, 300, 100), (2_000, 600, 100), (10_000, 3_200, 200)] {
            let masters = [MemoryMaster::new(), MemoryMaster::new()];
            let dead = MasterSpec::with_connector("redis://dead:1", || {
                std::future::pending::<std::io::Result<tokio::io::DuplexStream>>()
            });
            let specs = masters.iter().map(MasterSpec::from).chain([dead]);
            let builder = Coordinator::builder().masters(specs);
            let locks = builder.connect_timeout(millis(connect)).build().unwrap();
            let guard = locks.mutex(NAME).ttl(millis(ttl)).acquire().await.unwrap();
            sleep(millis(at)).await;
            masters[1].inject(Fault::Hang);
            sleep(millis(silence)).await;
            masters[1].inject(Fault::None);
            let lost = timeout(seconds(22), guard.lost()).await;
            assert!(lost.is_err(), "{ttl} {connect}: {lost:?}");
        }
    }
}

/// One of five masters is far slower than the others.
#[tokio::test(start_paused = true)]
async fn a_slow_master_does_not_make_calls_slow() {
    let slow = Latency::of_round_trip(millis(400));
    let mut latencies = vec![Latency::of_round_trip(millis(2)); 4];
    latencies.push(slow);
    let world = over(&latencies, |builder| builder).await;
    world.occupy([0, 1, 2, 3], seconds(60));
    for within in [0, 300] {
        let (took, denied) = timed(world.lock().acquire_within(millis(within))).await;
        let late = took - millis(within);
        assert!(denied.is_err() && late <= millis(60), "{within}: {took:?}");
    }
}
