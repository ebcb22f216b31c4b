//! Remembers which server each master of a coordinator is, and which it was.

pub(crate) mod run_ids;

use std::sync::Arc;

use parking_lot::Mutex;

use super::dial_error::DialError;
use crate::core::restart::Quarantine;

/// Keeps what dials need to notice that two masters are the same server. All dialers of a
/// coordinator share one tracker.
#[derive(Clone, Debug)]
pub(crate) struct RestartTracker {
    pub(crate) quarantine: Quarantine,
    /// For each master, the run id that the last dial found. No other master may be a server with
    /// this run id, because no server may vote as two masters.
    ///
    /// `None` after a dial reached the server of another master and was refused. Two servers may
    /// have swapped addresses. A dial of the other master may then find the run id that was here.
    servers: Arc<Mutex<Vec<Option<String>>>>,
}

impl RestartTracker {
    pub(crate) fn new(quarantine: Quarantine, masters: usize) -> Self {
        Self {
            quarantine,
            servers: Arc::new(Mutex::new(vec![None; masters])),
        }
    }

    /// Notes that `master` is the server with `run_id`. Fails if another master is the same server.
    pub(super) fn meet(&self, master: usize, run_id: &str) -> Result<(), DialError> {
        let mut servers = self.servers.lock();
        servers[master] = None;
        let is_same = |server: &Option<String>| server.as_deref() == Some(run_id);
        if let Some(other) = servers.iter().position(is_same) {
            return Err(DialError::SameServer { other: other + 1 });
        }
        servers[master] = Some(run_id.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_under_two_addresses_is_refused() {
        let tracker = RestartTracker::new(Quarantine::Observed, 2);
        let meet = |master, run_id| tracker.meet(master, run_id);
        meet(0, "a").unwrap();
        meet(1, "b").unwrap();
        let refused = meet(1, "a").unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("the same server as master 1"), "{text}");
        // The servers have swapped addresses.
        meet(0, "b").unwrap();
        meet(1, "a").unwrap();
        // Server b has restarted.
        meet(0, "c").unwrap();
        assert!(meet(1, "c").is_err());
        meet(0, "c").unwrap();
    }
}
