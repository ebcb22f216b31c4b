//! A read-write lock, from which the locks of its readers and of its writers are made.

use super::Lock;
use crate::core::protocol::access::Access;

/// A named lock that readers share, and that a writer holds alone, from
/// [`Coordinator::read_write`](crate::Coordinator::read_write).
///
/// It is cheap to make and to clone, and holds nothing.
#[derive(Clone, Debug)]
#[must_use = "a lock is not held until it is acquired"]
pub struct ReadWriteLock {
    pub(in crate::face) writer: Lock,
}

impl ReadWriteLock {
    /// Returns the lock of a reader. Other owners can read at the same time, and no one can write.
    ///
    /// A reader has no fencing token: with [`fenced`](Lock::fenced), acquiring the lock fails with
    /// [`ReaderToken`](crate::AcquireError::ReaderToken).
    pub fn read(&self) -> Lock {
        let mut lock = self.writer.clone();
        lock.access = Access::Shared;
        lock
    }

    /// Returns the lock of the writer. No other owner can read or write at the same time.
    ///
    /// The writer may also [read](Self::read), and its guards may
    /// [become those of a reader](crate::Guard::downgrade). A reader cannot become the writer: if
    /// the owner holds the lock only as a reader, acquiring this lock fails with
    /// [`Upgrade`](crate::AcquireError::Upgrade), and sends nothing.
    pub fn write(&self) -> Lock {
        self.writer.clone()
    }
}
