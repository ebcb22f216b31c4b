//! The public types: coordinator, lock, guard, owner, fence and errors.

#[cfg(feature = "blocking")]
pub mod blocking;
pub(crate) mod break_held;
pub(crate) mod builder;
pub(crate) mod coordinator;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod guard;
pub(crate) mod lock;
pub(crate) mod owner;
pub(crate) mod ready;
