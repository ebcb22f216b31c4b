//! The rules for waiting: who asks when, and who gives way.

pub(crate) mod agreed_master;
pub(crate) mod chances;
pub(crate) mod contender;
pub(crate) mod false_reports;
pub(crate) mod polling_rivals;
pub(crate) mod queued;
pub(crate) mod retry;
pub(crate) mod rivals;
pub(crate) mod wait_order;
