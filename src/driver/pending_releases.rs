//! Releases that masters are still owed.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    signal::Signal,
    time::{clock, timers::Timers},
};

/// The releases of a coordinator that some masters must still get.
#[derive(Debug)]
pub(crate) struct PendingReleases {
    count: AtomicUsize,
    /// The latest expiry of the keys that the releases delete, in microseconds after the epoch.
    until: AtomicU64,
    epoch: Instant,
    done: Signal,
}

impl PendingReleases {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            until: AtomicU64::new(0),
            epoch: clock::monotonic(),
            done: Signal::default(),
        }
    }

    /// Counts a release until the returned value is dropped. The keys that the release deletes
    /// expire at `keys_until` on the monotonic clock.
    pub(crate) fn add(self: &Arc<Self>, keys_until: Instant) -> PendingRelease {
        let until = self.micros(keys_until);
        self.until.fetch_max(until, Ordering::AcqRel);
        self.count.fetch_add(1, Ordering::AcqRel);
        PendingRelease(self.clone())
    }

    /// Waits until no release is pending, or until all keys that the releases delete have expired.
    pub(crate) async fn delivered(&self, timers: &Timers) {
        let check = || {
            let until = self.until.load(Ordering::Acquire);
            let left = until.saturating_sub(self.micros(clock::monotonic()));
            if self.count.load(Ordering::Acquire) == 0 || left == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(Some(clock::now() + Duration::from_micros(left)))
            }
        };
        self.done.wait(timers, check).await;
    }

    /// Returns `at` in microseconds after the epoch, rounded up.
    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch).as_micros();
        u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// A pending release. The posted release contains this value. Both are dropped when every master
/// has answered or is no longer owed the release.
#[derive(Debug)]
pub(crate) struct PendingRelease(Arc<PendingReleases>);

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify();
        }
    }
}
