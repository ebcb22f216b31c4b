//! The state of locks and masters as programs see it.

pub(crate) mod health;
pub(crate) mod inspection;
pub(crate) mod lock_state;
