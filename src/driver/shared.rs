//! The parts of a coordinator that its acquisitions share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;

use super::{
    acquire::denied::NotAcquired, context::Context, masters::Masters,
    observe::quorum_log::QuorumLog, time::clock,
};
use crate::core::wait::chances::{Chance, Chances};

/// The parts of a coordinator that its acquisitions share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) context: Arc<Context>,
    /// The chances of waiters to win. All waiters of the coordinator share them.
    chances: Mutex<Chances>,
    pub(super) quorum_log: QuorumLog,
    is_closed: AtomicBool,
}

impl Shared {
    pub(crate) fn new(context: Context) -> Self {
        Self {
            context: Arc::new(context),
            chances: Mutex::default(),
            quorum_log: QuorumLog::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn masters(&self) -> &Masters {
        &self.context.masters
    }

    /// Returns an error if the coordinator is closed, or if its runtime has shut down.
    pub(crate) fn check_open(&self) -> Result<(), NotAcquired> {
        if self.is_closed.load(Ordering::Acquire) || self.masters().are_gone() {
            return Err(NotAcquired::Closed);
        }
        Ok(())
    }

    /// Refuses new acquisitions. Wakes all waiters, to make them notice the close.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.context.local_waiters.wake_all();
        self.masters().wake_all();
    }

    /// Returns when to try again after `failures` failures, according to the retry delay alone.
    pub(crate) fn retry_at(&self, failures: u32) -> Instant {
        let retry = self.masters().config().retry;
        clock::now() + retry.delay(failures, clock::random_u64())
    }

    /// Returns the chances of a waiter that begins to wait now.
    pub(crate) fn chances(&self) -> Chances {
        let chances = *self.chances.lock();
        chances.at(clock::now(), self.masters().waiter_timeout())
    }

    /// Notes the chance of an attempt that began at `start` and is over now. Returns the new
    /// chances.
    pub(crate) fn note_chance(&self, chance: Chance, start: Instant) -> Chances {
        let now = clock::now();
        let mut chances = self.chances.lock();
        chances.note(chance, start, now);
        *chances
    }
}
