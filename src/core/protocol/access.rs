//! What the holder of a lock leaves to others.

/// What the holder of a lock leaves to others. Readers of a [read-write
/// lock](crate::Kind::ReadWrite) and holders of a [semaphore](crate::Kind::Semaphore) share it. All
/// other holders hold a lock alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the two are all; a match on them should be complete"
)]
pub enum Access {
    /// No one else holds the lock.
    #[default]
    Exclusive,
    /// Others may hold the lock at the same time, and share it, too.
    Shared,
}
