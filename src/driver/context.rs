//! The parts of a coordinator that its acquisitions and claims share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;

use super::{
    acquire::denied::{Denied, NotAcquired},
    masters::Masters,
    renew::renewer::Renewer,
    time::clock,
    waiting::local_waiters::LocalWaiters,
};
use crate::core::{
    view::health::MasterHealth,
    vote::obstacle::Obstacle,
    wait::chances::{Chance, Chances},
};

/// The parts of a coordinator that its acquisitions and claims share. Dropping this value ends the
/// background tasks of the coordinator.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) masters: Masters,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) local_waiters: LocalWaiters,
    /// The chances of waiters to win. All waiters of the coordinator share them.
    chances: Mutex<Chances>,
    is_closed: AtomicBool,
}

impl Context {
    pub(crate) fn new(masters: Masters, renewer: Arc<Renewer>) -> Self {
        Self {
            masters,
            renewer,
            local_waiters: LocalWaiters::default(),
            chances: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns an error if the coordinator is closed, or if its runtime has shut down.
    pub(crate) fn check_open(&self) -> Result<(), NotAcquired> {
        if self.is_closed.load(Ordering::Acquire) || self.masters.are_gone() {
            return Err(NotAcquired::Closed);
        }
        Ok(())
    }

    /// Refuses new acquisitions. Wakes all waiters, to make them notice the close.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.local_waiters.wake_all();
        self.masters.wake_all();
    }

    /// Returns when to try again after `failures` failures, according to the retry delay alone.
    pub(crate) fn retry_at(&self, failures: u32) -> Instant {
        let retry = self.masters.config().retry;
        clock::now() + retry.delay(failures, clock::random_u64())
    }

    /// Notes that an attempt at the lock `name` failed.
    pub(crate) fn note_denied(&self, name: &str, denied: &Denied) {
        let (observer, Some(round)) = (&self.masters.observer, &denied.round) else {
            return;
        };
        match &denied.obstacle {
            reason @ (Obstacle::NoQuorum | Obstacle::Quarantined(_) | Obstacle::TooSlow(_)) => {
                let votes = || self.masters.votes(round).to_string();
                observer.lacks_quorum(name, reason, votes);
            }
            _ if round.is_pending() => {} // asked one master only
            _ => observer.found_quorum(),
        }
    }

    /// Notes that too few masters answered for an attempt at the lock `name`, so that there was
    /// none. Waiters make no attempts in a long outage, which may have begun too soon after the
    /// last one to be logged.
    pub(crate) fn note_no_masters(&self, name: &str) {
        let states = || {
            let health = self.masters.health.read();
            let states: Vec<_> = health.iter().map(MasterHealth::to_string).collect();
            states.join(", ")
        };
        let observer = &self.masters.observer;
        observer.lacks_quorum(name, &Obstacle::NoQuorum, states);
    }

    /// Returns the chances of a waiter that begins to wait now.
    pub(crate) fn chances(&self) -> Chances {
        let chances = *self.chances.lock();
        chances.at(clock::now(), self.masters.waiter_timeout())
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

impl Drop for Context {
    fn drop(&mut self) {
        self.renewer.close();
    }
}
