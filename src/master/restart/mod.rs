//! Remembers which server each master of a coordinator is, and which it was.

pub(crate) mod run_ids;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::{dial_error::DialError, health::LastHeard};
use crate::core::restart::Quarantine;
use run_ids::RunIds;

/// Keeps what dials need to notice that a master has restarted, or that two masters are the same
/// server. All dialers of a coordinator share one tracker.
#[derive(Clone, Debug)]
pub(crate) struct RestartTracker {
    pub(crate) quarantine: Quarantine,
    now: fn() -> Instant,
    masters: Arc<Mutex<BTreeMap<usize, Met>>>,
}

/// One master.
#[derive(Debug)]
struct Met {
    run_ids: RunIds,
    /// The run id that the last dial found. No other master may be a server with this run id,
    /// because no server may vote as two masters.
    ///
    /// `None` after a dial reached the server of another master and was refused. Two servers may
    /// have swapped addresses. A dial of the other master may then find the run id that was here.
    server: Option<String>,
}

impl RestartTracker {
    pub(crate) fn new(quarantine: Quarantine, now: fn() -> Instant) -> Self {
        Self {
            quarantine,
            now,
            masters: Arc::default(),
        }
    }

    /// Adds a `master`, unless quarantine is off. `address` includes the database, because each
    /// database has its own origin key.
    pub(super) fn add(&self, master: usize, address: &str) {
        if self.quarantine != Quarantine::Off {
            let met = Met {
                run_ids: RunIds::of(address),
                server: None,
            };
            self.masters.lock().insert(master, met);
        }
    }

    /// Returns the [known](RunIds::known) run ids of `master`, and the time.
    pub(super) fn known(&self, master: usize) -> (Vec<(String, u64)>, Instant) {
        let now = (self.now)();
        let masters = self.masters.lock();
        let known = masters.get(&master).map(|met| met.run_ids.known(now));
        (known.unwrap_or_default(), now)
    }

    /// Notes that `master` is the server with `run_id`. The question to it named all run ids that
    /// were known at `asked`. Returns the [time](RunIds::meet) for the connection. Fails if another
    /// master is the same server, or if another server answered at the address after the question.
    pub(super) fn meet(
        &self,
        master: usize,
        run_id: &str,
        asked: Instant,
    ) -> Result<Option<LastHeard>, DialError> {
        let mut masters = self.masters.lock();
        let is_same = |met: &Met| met.server.as_deref() == Some(run_id);
        let mut others = masters.iter().filter(|(other, _)| **other != master);
        let same = others.find_map(|(other, met)| is_same(met).then_some(other + 1));
        let Some(met) = masters.get_mut(&master) else {
            return Ok(None);
        };
        if let Some(other) = same {
            // The run ids are kept, because the master's own server may come back without its
            // locks.
            met.server = None;
            return Err(DialError::SameServer { other });
        }
        let last_heard = met.run_ids.meet(run_id, asked, (self.now)())?;
        met.server = Some(run_id.to_owned());
        Ok(Some(last_heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::time::clock;

    #[test]
    fn a_server_under_two_addresses_is_refused_and_its_run_id_is_remembered() {
        let tracker = RestartTracker::new(Quarantine::Observed, clock::monotonic);
        for (master, address) in ["swapped 0", "swapped 1"].into_iter().enumerate() {
            tracker.add(master, address);
        }
        let known = |master| {
            let (known, _) = tracker.known(master);
            let run_ids = known.into_iter().map(|(run_id, _)| run_id);
            run_ids.collect::<Vec<_>>()
        };
        let meet = |master, run_id| {
            let (_, asked) = tracker.known(master);
            tracker.meet(master, run_id, asked)
        };
        meet(0, "a").unwrap();
        meet(1, "b").unwrap();
        let refused = meet(1, "a").unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("the same server as master 1"), "{text}");
        assert_eq!(known(1), ["b"]);
        // The servers have swapped addresses.
        meet(0, "b").unwrap();
        meet(1, "a").unwrap();
        // Server b has restarted.
        meet(0, "c").unwrap();
        assert_eq!(known(0), ["c"]);
        assert!(meet(1, "c").is_err());
        meet(0, "c").unwrap();
    }

    /// Each coordinator counts its own votes, so both may use the server.
    #[test]
    fn two_coordinators_may_use_the_same_server_and_share_its_run_ids() {
        let mut known_before = 0;
        for master in 0..2 {
            let tracker = RestartTracker::new(Quarantine::Observed, clock::monotonic);
            tracker.add(master, "shared");
            let (known, asked) = tracker.known(master);
            assert_eq!(known.len(), known_before);
            tracker.meet(master, "a", asked).unwrap();
            known_before = 1;
        }
    }
}
