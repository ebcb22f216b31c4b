//! A request for a lock.

use std::{sync::Arc, time::Duration};

use super::owned_lock::LockOwner;
use crate::core::{
    protocol::{access::Access, name::LockId},
    time::{lease::Ttl, renewal::Renewal},
};

/// A request for a lock, with all that is needed to hold the lock after it was won.
#[derive(Clone, Debug)]
pub(crate) struct LockRequest {
    pub(crate) lock_id: LockId,
    pub(crate) access: Access,
    pub(crate) ttl: Ttl,
    /// `None` for a mutex.
    pub(crate) owner: Option<Arc<LockOwner>>,
    /// The counter of a fenced lock.
    pub(crate) counter: Option<Arc<str>>,
    pub(crate) renewal: Renewal,
    /// The time for which others are kept from the lock, even if its guard is gone before.
    pub(crate) min_hold: Duration,
}
