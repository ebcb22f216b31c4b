//! Owners and their locks: one attempt at a time, and one claim for all tasks of an owner.

use std::{
    collections::HashMap,
    fmt,
    ops::ControlFlow,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{clock, select::first_of, signal::Signal};
use crate::core::{
    identity::{FairAttempt, Identity, OwnerAttempt, Ticket},
    name::Resource,
};

/// An owner of reentrant and fair locks. Generic over the claim `C`, so that claims can import this
/// file.
pub(crate) struct LockOwner<C> {
    id: Arc<str>,
    /// The number of attempts so far, for all locks together.
    attempts: AtomicU64,
    /// The locks that the owner holds or tries to acquire.
    locks: Mutex<HashMap<Resource, Weak<OwnedLock<C>>>>,
}

impl<C> LockOwner<C> {
    /// Creates owner `number` of `process`.
    pub(crate) fn new(process: &str, number: u64) -> Self {
        Self {
            id: format!("{process}:{number}").into(),
            attempts: AtomicU64::new(0),
            locks: Mutex::default(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the identity of a new attempt, whose number is larger than the numbers of all
    /// earlier attempts. An attempt at a fair lock has a ticket.
    pub(crate) fn identity(&self, ticket: Option<Ticket>) -> Identity {
        let owner = OwnerAttempt {
            owner: self.id.clone(),
            attempt: self.attempts.fetch_add(1, Ordering::Relaxed) + 1,
        };
        match ticket {
            None => Identity::Owner(owner),
            Some(ticket) => Identity::Ticket(FairAttempt { owner, ticket }),
        }
    }

    /// Returns the state that this owner has for the lock `resource`.
    pub(crate) fn lock(self: &Arc<Self>, resource: &Resource) -> Arc<OwnedLock<C>> {
        let mut locks = self.locks.lock();
        if let Some(lock) = locks.get(resource).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(OwnedLock {
            owner: self.clone(),
            resource: resource.clone(),
            permit: Semaphore::new(1),
            claim: Mutex::default(),
            is_won: Signal::default(),
        });
        locks.insert(resource.clone(), Arc::downgrade(&lock));
        lock
    }
}

impl<C> fmt::Debug for LockOwner<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.id).finish()
    }
}

/// The state that one owner has for one lock: its attempts, one at a time, and the claim that the
/// last successful one won.
pub(crate) struct OwnedLock<C> {
    owner: Arc<LockOwner<C>>,
    resource: Resource,
    /// The permit to make an attempt. Two attempts of one owner at the same time would take each
    /// other's grants.
    permit: Semaphore,
    claim: Mutex<Weak<C>>,
    is_won: Signal,
}

impl<C> OwnedLock<C> {
    /// Waits for the permit to make an attempt, until `end` at most. Keep the permit until the
    /// attempt is won, or the command that takes it back is posted. Without an `end`, this wait has
    /// no bound: the future that has the permit may not be polled any more.
    pub(crate) async fn permit(&self, end: Option<Instant>) -> Option<SemaphorePermit<'_>> {
        let permit = async { self.permit.acquire().await.ok() };
        let Some(end) = end else {
            return permit.await;
        };
        let mut permitted = None;
        // The permit first: a task that runs again long after `end` gets one that is free.
        first_of(async { permitted = permit.await }, clock::sleep_until(end)).await;
        permitted
    }

    /// Returns the claim that was won last, while a guard keeps it.
    pub(crate) fn claim(&self) -> Option<Arc<C>> {
        self.claim.lock().upgrade()
    }

    /// Lets the other tasks of the owner reenter `claim`.
    pub(crate) fn won(&self, claim: &Arc<C>) {
        *self.claim.lock() = Arc::downgrade(claim);
        self.is_won.notify();
    }

    /// Waits until the owner has a claim that `is_held`.
    pub(crate) async fn until_held(&self, is_held: impl Fn(&C) -> bool) {
        let check = || match self.claim() {
            Some(claim) if is_held(&claim) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(None),
        };
        self.is_won.wait(check).await;
    }
}

impl<C> Drop for OwnedLock<C> {
    fn drop(&mut self) {
        let mut locks = self.owner.locks.lock();
        let is_gone = |lock: &Weak<Self>| lock.strong_count() == 0;
        if locks.get(&self.resource).is_some_and(is_gone) {
            locks.remove(&self.resource);
        }
    }
}

impl<C> fmt::Debug for OwnedLock<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLock")
            .field("owner", &self.owner)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}
