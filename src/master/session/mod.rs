//! The session with one master: the requests to it, and the connections that carry them.

pub(in crate::master) mod connection;
pub(in crate::master) mod in_flight;
pub(in crate::master) mod listeners;
pub(in crate::master) mod liveness;
pub(in crate::master) mod mailbox;
pub(in crate::master) mod outage;
pub(in crate::master) mod owed;
pub(in crate::master) mod queue;
pub(in crate::master) mod request;
pub(in crate::master) mod supervisor;
pub(in crate::master) mod task;
pub(in crate::master) mod unanswered;
