//! Helpers that the tests share.

use std::{
    thread,
    time::{Duration, Instant},
};

use quorlock::{
    Builder, MemoryMaster, Quarantine,
    blocking::{Coordinator, Guard, Lock},
};

/// A TTL that is longer than any test. With this TTL, a key that is gone was released.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The time limit of a wait, even on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn masters() -> [MemoryMaster; 3] {
    [(); 3].map(|()| MemoryMaster::new())
}

/// Returns a builder for masters that are new, with a node timeout for a busy machine.
pub(crate) fn patient() -> Builder {
    Coordinator::builder()
        .quarantine(Quarantine::Off)
        .node_timeout(Duration::from_secs(5))
        .max_ttl(LONG)
        .ttl(LONG)
}

pub(crate) fn coordinator(masters: &[MemoryMaster]) -> Coordinator {
    let locks = patient().masters(masters).build_blocking().unwrap();
    locks.all_ready(LIMIT).unwrap();
    locks
}

/// Acquires the lock on all masters.
pub(crate) fn acquire_on_all(lock: &Lock) -> Guard {
    let guard = lock.acquire_within(LIMIT).unwrap();
    assert_eq!(guard.settled().unwrap().granted_count(), 3);
    guard
}

/// Waits until `is_so` returns `true`.
#[track_caller]
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{what}: not in time");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn have_no_keys(masters: &[MemoryMaster]) -> bool {
    masters.iter().all(|master| {
        let mut keys = master.keys().into_iter();
        keys.all(|key| key.starts_with("quorlock:"))
    })
}
