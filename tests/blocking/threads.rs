//! Locks that plain threads hold and wait for.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
    time::Duration,
};

use quorlock::{
    AcquireError, Fault, Kind, LockState, LostReason, MasterState, MemoryMaster, Renewal, RunError,
    blocking::Coordinator,
};

use crate::common::*;

/// Returns a coordinator whose locks end and are renewed within seconds.
fn brisk(masters: &[MemoryMaster]) -> Coordinator {
    let builder = patient().node_timeout(Duration::from_secs(1));
    let builder = builder.ttl(Duration::from_secs(3));
    builder.masters(masters).build_blocking().unwrap()
}

#[test]
fn a_guard_says_what_the_async_guard_says() {
    let masters = masters();
    let locks = coordinator(&masters);
    assert_eq!((locks.master_count(), locks.quorum()), (3, 2));
    let owner = locks.owner();
    let lock = locks.reentrant("r", &owner).ttl(LONG / 2).fenced();
    let guard = lock.acquire().unwrap();
    let inner = locks.reentrant("r", &owner).fenced().try_acquire().unwrap();
    assert_eq!((guard.name(), inner.depth()), ("r", 2));
    assert_eq!(guard.fencing_token(), inner.fencing_token());
    assert!(guard.fencing_token().is_some());
    assert!(guard.rounds() >= 1);
    assert!(guard.validity() > LONG / 2); // the inner guard extended it
    assert!(guard.remaining() <= guard.validity());
    assert!(guard.is_valid());
    assert_eq!(guard.state(), LockState::Held);
    assert!(guard.votes().granted_count() >= 2);
    guard.ensure_held().unwrap();
    guard.stop_renewing();
    guard.extend(LONG).unwrap();
    drop(inner);
    let holder = lock.inspect().unwrap().holders.remove(0);
    assert_eq!(
        (holder.kind, holder.owner.as_deref()),
        (Some(Kind::Reentrant), Some(owner.id()))
    );
    guard.release().unwrap();
    assert!(!lock.is_held().unwrap());
    assert!(format!("{locks:?} {lock:?}").contains("name: \"r\""));
    let allowance = LONG / 100 + Duration::from_millis(2);
    assert_eq!(locks.quarantine_length(), LONG + allowance);
}

#[test]
fn a_lock_is_renewed_while_its_thread_is_blocked() {
    let locks = brisk(&masters());
    let guard = locks.mutex("renewed").acquire().unwrap();
    let other = locks.mutex("not renewed").renewal(Renewal::Off);
    let other = other.acquire().unwrap();
    let lost = other.lost_within(LIMIT).unwrap();
    assert_eq!(lost.unwrap().reason, LostReason::Expired);
    guard.ensure_held().unwrap(); // its first validity has ended, too
}

#[test]
fn a_loss_is_noticed() {
    let masters = masters();
    let lock = brisk(&masters).mutex("r");
    let guard = lock.acquire().unwrap();
    masters.iter().for_each(|master| master.forget());
    let lost = guard.lost().unwrap();
    assert_eq!(guard.state(), LockState::Lost(lost.reason));
    assert!(guard.ensure_held().is_err());
    drop(guard);

    let mut is_done = false;
    let ran = lock.run(|guard| {
        masters.iter().for_each(|master| master.forget());
        guard.lost().unwrap();
        is_done = true; // the loss does not stop the body
        Ok::<_, ()>(())
    });
    assert!(matches!(ran, Err(RunError::Lost(_))), "{ran:?}");
    assert!(is_done);
}

#[test]
fn run_releases_the_lock() {
    let masters = masters();
    let lock = coordinator(&masters).mutex("r");
    assert!(lock.run(|guard| Ok::<_, ()>(guard.is_valid())).unwrap());
    assert!(!lock.is_held().unwrap());
    let ran = lock.run(|_| Err::<(), _>("no"));
    assert!(matches!(ran, Err(RunError::Body("no"))), "{ran:?}");
    assert!(!lock.is_held().unwrap());

    let panicking = AssertUnwindSafe(|| lock.run(|_| -> Result<(), ()> { panic!("the body") }));
    assert!(catch_unwind(panicking).is_err());
    until("the release", || have_no_keys(&masters));
}

#[test]
fn the_settings_of_a_lock_apply() {
    let masters = masters();
    let locks = coordinator(&masters);
    let lock = locks.mutex("r").min_hold(LONG);
    lock.acquire().unwrap().release().unwrap();
    assert!(matches!(
        lock.try_acquire(),
        Err(AcquireError::Contended { .. })
    ));
}

#[test]
fn closing_ends_waits_in_other_threads() {
    let masters = masters();
    let locks = coordinator(&masters);
    let owner = locks.owner();
    let guard = locks.fair("r", &locks.owner()).acquire().unwrap();
    let waiters = [locks.fair("r", &owner), locks.mutex("s")];
    let held = waiters[1].acquire().unwrap();
    thread::scope(|scope| {
        let waits = waiters
            .each_ref()
            .map(|lock| scope.spawn(|| lock.acquire().map(drop)));
        until("a waiter in the queue", || {
            waiters[0].inspect().unwrap().queue == [owner.id()]
        });
        locks.close().unwrap();
        for wait in waits {
            assert!(matches!(wait.join().unwrap(), Err(AcquireError::Closed)));
        }
    });
    drop((guard, held));
    assert!(locks.close_within(LIMIT).unwrap());
    assert!(have_no_keys(&masters));
}

#[test]
fn close_within_returns_in_time_while_masters_hang() {
    let masters = masters();
    let locks = coordinator(&masters);
    let guard = acquire_on_all(&locks.mutex("r"));
    masters[0].inject(Fault::Hang);
    drop(guard);
    assert!(!locks.close_within(Duration::from_millis(50)).unwrap());
    masters[0].inject(Fault::None);
    locks.close().unwrap();
    assert!(have_no_keys(&masters));
}

#[test]
fn health_events_end_with_the_coordinator() {
    let masters = masters();
    let locks = coordinator(&masters);
    let mut events = locks.health_events();
    for _ in 0..3 {
        assert_eq!(
            events.next().unwrap().unwrap().state,
            MasterState::Connected
        );
    }
    assert_eq!(locks.health().len(), 3);
    let (sender, ended) = mpsc::channel();
    let reader = thread::spawn(move || {
        while events.next().unwrap().is_some() {}
        sender.send(()).unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_millis(10)).is_err());
    drop(locks);
    ended.recv_timeout(LIMIT).unwrap();
    reader.join().unwrap();
}
