//! Questions to all masters. These questions take no lock.

pub(crate) mod health_events;
pub(crate) mod inspect;
pub(crate) mod ready;
