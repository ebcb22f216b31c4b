//! Locks that several guards may hold at once: read-write locks and semaphores.

use std::sync::Arc;

use super::{Draft, Lock, Owner};
use crate::{
    core::{
        config_error::ConfigError,
        error::AskError,
        kind::{Access, LockKind},
        view::inspection::Holder,
    },
    driver::context::Context,
    face::guard::{PermitGuard, ReadGuard, WriteGuard},
};

/// A named lock that readers share, and that a writer holds alone, from
/// [`Coordinator::read_write`](crate::Coordinator::read_write).
///
/// It is cheap to make and to clone, and holds nothing.
#[derive(Clone, Debug)]
#[must_use = "a lock is not held until it is acquired"]
pub struct ReadWriteLock {
    pub(crate) writer: Lock,
}

impl ReadWriteLock {
    /// Makes the lock reentrant: `owner` may acquire it again, and write and read at the same time.
    /// See [`Lock::owner`].
    pub fn owner(self, owner: &Owner) -> Self {
        Self {
            writer: self.writer.owner(owner),
        }
    }

    /// Returns the lock of a reader. Other owners can read at the same time, and no one can write.
    ///
    /// Without an [owner](Self::owner), a task that reads must not read again: if a writer came in
    /// between, the task would wait for itself.
    pub fn read(&self) -> Lock<ReadGuard> {
        let draft = self.writer.draft.clone();
        Lock::of(Draft {
            access: Access::Shared,
            ..draft
        })
    }

    /// Returns the lock of the writer. No other owner can read or write at the same time.
    ///
    /// Its guards may [become guards of a reader](WriteGuard::downgrade). If the lock has an
    /// [owner](Self::owner), the writer may also [read](Self::read). A reader cannot become the
    /// writer: if the owner holds the lock only as a reader, acquiring this lock fails with
    /// [`Upgrade`](crate::Reason::Upgrade), and sends nothing.
    pub fn write(&self) -> Lock<WriteGuard> {
        Lock::of(self.writer.draft.clone())
    }
}

impl Lock<PermitGuard> {
    pub(crate) fn semaphore(context: Arc<Context>, name: &str, permits: usize) -> Self {
        let draft = Lock::new(context, LockKind::Semaphore, name).draft;
        let count = u16::try_from(permits).unwrap_or(0);
        let lock = Self::of(Draft {
            lock_id: draft.lock_id.map(|lock_id| lock_id.with_permits(count)),
            access: Access::Shared,
            ..draft
        });
        if (1..=MOST_PERMITS).contains(&count) {
            return lock;
        }
        let (given, range) = (
            format!("{permits} permits"),
            format!("from 1 to {MOST_PERMITS}"),
        );
        lock.refused(ConfigError::out_of_range("semaphore", given, range))
    }
}

impl Lock<PermitGuard> {
    /// Returns how many permits are free. Returns 0 if the name is held as another kind of lock,
    /// and while too many masters may have forgotten locks, and so cannot vote.
    ///
    /// This number is a hint, for a person or a graph: it may be wrong when it arrives. It is the
    /// number of permits minus the number of [holders](crate::Inspection::holders) of an
    /// inspection.
    ///
    /// # Errors
    ///
    /// See [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    pub async fn available_permits(&self) -> Result<usize, AskError> {
        let holders = self.inspect().await?.holders;
        let is_semaphore = |holder: &Holder| holder.kind == Some(LockKind::Semaphore);
        let can_vote = self.draft.context.machine.has_voters();
        let permits = match &self.draft.lock_id {
            Ok(lock_id) if can_vote && holders.iter().all(is_semaphore) => lock_id.permits(),
            _ => 0,
        };
        Ok(usize::from(permits).saturating_sub(holders.len()))
    }
}

/// The greatest number of permits. A master that searches for a free slot looks through all slots.
const MOST_PERMITS: u16 = 1_000;
