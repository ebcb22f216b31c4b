//! The public types: coordinator, lock, guard, owner and fence.

// Rustdoc shows the methods of a type in the order of these modules. The methods that most users
// need come first.
pub(crate) mod builder;
pub(crate) mod coordinator;
pub(crate) mod detach;
pub(crate) mod fence;
pub(crate) mod groups;
pub(crate) mod guard;
pub(crate) mod lock;
