//! A read-write lock, for code without async.

use super::{background::BackgroundThread, lock::Lock};
use crate::face::lock::read_write;

/// A named lock that readers share, and that a writer holds alone, as an async
/// [`ReadWriteLock`](crate::ReadWriteLock).
#[derive(Clone, Debug)]
#[must_use = "a lock is not held until it is acquired"]
pub struct ReadWriteLock {
    lock: read_write::ReadWriteLock,
    thread: BackgroundThread,
}

impl ReadWriteLock {
    pub(super) fn new(lock: read_write::ReadWriteLock, thread: &BackgroundThread) -> Self {
        Self {
            lock,
            thread: thread.clone(),
        }
    }

    /// Returns the lock of a reader: see [`read`](crate::ReadWriteLock::read).
    pub fn read(&self) -> Lock {
        Lock::new(self.lock.read(), &self.thread)
    }

    /// Returns the lock of the writer: see [`write`](crate::ReadWriteLock::write).
    pub fn write(&self) -> Lock {
        Lock::new(self.lock.write(), &self.thread)
    }
}
