//! The guards of locks that several may hold, and of several locks.

use std::ops::Deref;

use super::{
    Guard,
    any::{
        AnyGuard, Fenceable, OneName, guard_type,
        sealed::{FromGuard, Key},
    },
};
use crate::core::error::QuorumError;

guard_type! {
    /// A [`Guard`] of [several mutexes](crate::Coordinator::multi_mutex).
    ///
    /// It holds all [names](Guard::names): it is valid until the first of them expires, and it is
    /// lost as soon as one name is lost.
    MultiGuard: AnyGuard Fenceable
}

guard_type! {
    /// A [`Guard`] of a [reader](crate::ReadWriteLock::read). Guards of other readers can be valid
    /// at the same time.
    ReadGuard: AnyGuard
}

guard_type! {
    /// A [`Guard`] of a [writer](crate::ReadWriteLock::write).
    WriteGuard: AnyGuard Fenceable OneName
}

impl WriteGuard {
    /// Turns this guard into the guard of a reader. No one else can write in between, and readers
    /// need not wait any longer.
    ///
    /// This method does not wait for the masters. If the owner has no other guard that writes, this
    /// method posts an extension by the TTL, even if the lock is not renewed. The extension tells
    /// the masters of the change. A master that misses it learns of the change from the next
    /// extension. Until then, the master keeps readers away.
    pub fn downgrade(self) -> ReadGuard {
        self.0.downgrade();
        ReadGuard(self.0)
    }
}

/// A [`Guard`] of a [semaphore](crate::Coordinator::semaphore): a permit. Guards of other slots can
/// be valid at the same time.
#[must_use = "dropping a guard releases its lock: bind it, as in `let _guard = ..`, and not to `_`"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct PermitGuard {
    guard: Guard,
    slot: usize,
}

impl PermitGuard {
    /// Returns the slot of this guard: a number from 0 to one less than the number of permits. No
    /// other valid guard of the semaphore has the same slot, so a program can use the slot to
    /// choose one of several resources.
    pub fn slot(&self) -> usize {
        self.slot
    }
}

impl FromGuard for PermitGuard {
    fn from_guard(guard: Guard, _: Key) -> Result<Self, Guard> {
        match guard.slot() {
            Some(slot) => Ok(Self { guard, slot }),
            None => Err(guard),
        }
    }
}

guard_type! { PermitGuard: guard: AnyGuard Fenceable OneName }
