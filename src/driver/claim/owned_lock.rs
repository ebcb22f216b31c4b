//! Owners and their locks. For each lock, an owner makes one attempt at a time, and all tasks of
//! the owner share one claim.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::ClaimHandle;
use crate::{
    core::{
        config_error::ConfigError,
        protocol::{Identity, LockId, Ticket, identity::OwnerAttempt},
        time::LeaseTick,
    },
    driver::{context::Context, time::Timers},
    home::HomeProcess,
    machine::ClaimId,
    panics::shielded,
};

/// An owner of locks. A mutex has no owner. Instead, each attempt at a mutex has a token.
pub(crate) struct LockOwner {
    id: Arc<str>,
    /// The number of attempts that this owner has made so far, at all locks together.
    attempts: AtomicU64,
    /// The locks that the owner holds or tries to acquire.
    locks: Mutex<HashMap<LockId, Weak<OwnedLock>>>,
    /// The locks that were detached.
    detached: Mutex<HashSet<LockId>>,
    home: HomeProcess,
}

impl LockOwner {
    pub(crate) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            attempts: AtomicU64::new(0),
            locks: Mutex::default(),
            detached: Mutex::default(),
            home: HomeProcess::this(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the identity of a new attempt. The number of the attempt is larger than the numbers
    /// of all earlier attempts. Only an attempt at a lock with queues has a ticket.
    pub(crate) fn identity(&self, ticket: Option<Ticket>) -> Identity {
        Identity::Owner(OwnerAttempt {
            owner: self.id.clone(),
            attempt: self.attempts.fetch_add(1, Ordering::Relaxed) + 1,
            ticket,
        })
    }

    pub(crate) fn lock(self: &Arc<Self>, lock_id: &LockId) -> Arc<OwnedLock> {
        let mut locks = self.locks.lock();
        if let Some(lock) = locks.get(lock_id).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(OwnedLock {
            owner: self.clone(),
            lock_id: lock_id.clone(),
            permit: Semaphore::new(1),
            claim: Mutex::default(),
            is_won: Notify::new(),
        });
        locks.insert(lock_id.clone(), Arc::downgrade(&lock));
        lock
    }
}

impl fmt::Debug for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.id).finish()
    }
}

/// The state that one owner has for one lock: the permit to make an attempt, and the claim of the
/// last attempt that won the lock.
///
/// All handles of the owner share this state, whatever their settings are, because masters know an
/// attempt only by its owner and its number. Before a caller reenters the claim, the caller must
/// check whether the claim has what the caller's handle asks for.
pub(crate) struct OwnedLock {
    pub(crate) owner: Arc<LockOwner>,
    lock_id: LockId,
    /// The permit to make an attempt. Without it, two attempts of one owner could run at the same
    /// time and take over each other's grants.
    permit: Semaphore,
    claim: Mutex<Option<ClaimId>>,
    /// Notified when `claim` is won.
    is_won: Notify,
}

impl OwnedLock {
    /// Waits for the permit to make an attempt, or until `end`. The caller must keep the permit
    /// until the attempt is won, or until the command that takes the attempt back is posted.
    /// Without an `end`, this method may wait forever, because the future that has the permit may
    /// no longer be polled.
    pub(crate) async fn permit(
        &self,
        end: Option<LeaseTick>,
        timers: &Timers,
    ) -> Option<SemaphorePermit<'_>> {
        let permit = self.permit.acquire();
        let Some(end) = end else {
            return permit.await.ok();
        };
        timers.until(end, permit).await?.ok()
    }

    /// Returns the claim that the owner can reenter: the one that was won last, if a guard keeps it
    /// alive and the lock is not lost.
    pub(crate) fn claim(&self, context: &Arc<Context>) -> Option<ClaimHandle> {
        let id = (*self.claim.lock())?;
        let is_held = (context.machine).with(|machine, now| machine.share_held(id, now));
        is_held.then(|| ClaimHandle::new(context, &self.lock_id, id))
    }

    /// Notes whether the owner has detached the lock.
    pub(crate) fn set_detached(&self, is_detached: bool) {
        let (mut detached, lock_id) = (self.owner.detached.lock(), &self.lock_id);
        match is_detached {
            true => detached.insert(lock_id.clone()),
            false => detached.remove(lock_id),
        };
    }

    /// Fails if the owner has detached the lock. Must be called before an attempt of the owner,
    /// after the caller has found out that the owner does not hold the lock.
    pub(crate) fn check_attempt(&self) -> Result<(), ConfigError> {
        match self.owner.detached.lock().contains(&self.lock_id) {
            true => Err(ConfigError::OwnerDetached {
                name: self.lock_id.name().to_string(),
            }),
            false => Ok(()),
        }
    }

    pub(crate) fn is_held(&self, context: &Arc<Context>) -> bool {
        self.claim(context).is_some()
    }

    /// Lets the other tasks of the owner reenter `claim`.
    pub(crate) fn won(&self, claim: &ClaimHandle) {
        *self.claim.lock() = Some(claim.id);
        shielded(|| self.is_won.notify_waiters());
    }

    pub(crate) async fn until_held(&self, context: &Arc<Context>) {
        loop {
            let mut won = pin!(self.is_won.notified());
            won.as_mut().enable(); // registers before the check, to miss no win
            if self.is_held(context) {
                return;
            }
            won.await;
        }
    }
}

impl Drop for OwnedLock {
    fn drop(&mut self) {
        if self.owner.home.is_parent() {
            return;
        }
        let mut locks = self.owner.locks.lock();
        let is_gone = |lock: &Weak<Self>| lock.strong_count() == 0;
        if locks.get(&self.lock_id).is_some_and(is_gone) {
            locks.remove(&self.lock_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{kind::LockKind, protocol::command::fixture::lock_id};

    #[test]
    fn an_owner_has_one_state_for_each_name_and_kind() {
        let owner = Arc::new(LockOwner::new("p:1".into()));
        let lock = |kind, name| owner.lock(&lock_id(kind, name));
        let fair = lock(LockKind::Fair, "a");
        assert!(Arc::ptr_eq(&fair, &lock(LockKind::Fair, "a")));
        assert!(!Arc::ptr_eq(&fair, &lock(LockKind::Reentrant, "a")));
        assert!(!Arc::ptr_eq(&fair, &lock(LockKind::Fair, "b")));
        assert_eq!(owner.locks.lock().len(), 1, "entries end with their users");
        drop(fair);
        assert!(owner.locks.lock().is_empty());
    }
}
