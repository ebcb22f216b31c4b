//! What the holder of a lock leaves to others.

/// What the holder of a lock leaves to others. All holders of a lock that is no
/// [read-write lock](crate::Kind::ReadWrite) hold it alone.
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
