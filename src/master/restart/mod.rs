//! Remembers which server each master of a coordinator is, and which it was.

pub(in crate::master) mod quarantine;
pub(crate) mod run_ids;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::dial_error::DialError;
use crate::core::restart::Quarantine;
use run_ids::RunIds;

/// Keeps what dials need to notice that a master has restarted, or that two masters are the same
/// server. All dialers of a coordinator share one tracker.
#[derive(Clone, Debug)]
pub(crate) struct RestartTracker {
    pub(crate) quarantine: Quarantine,
    now: fn() -> Instant,
    masters: Arc<Mutex<BTreeMap<usize, Met>>>,
    /// The known run ids of the master that is dialled.
    run_ids: RunIds,
}

/// The findings of the last dial of one master.
#[derive(Clone, Debug)]
struct Met {
    /// The run id of the server. No other master may be a server with this run id, because no
    /// server may vote as two masters.
    ///
    /// `None` after a dial reached the server of another master and was refused. Two servers may
    /// have swapped addresses. A dial of the other master may then find the run id that was here.
    server: Option<String>,
    /// The run id that the last dial found.
    run_id: String,
    /// The known run ids of the master.
    run_ids: RunIds,
}

/// A question that a dial asks the master: may it have forgotten locks?
#[derive(Debug)]
pub(crate) struct RestartQuery {
    master: usize,
    run_ids: RunIds,
    /// The known run ids of the master, each with the milliseconds since it last answered.
    pub(crate) known: Vec<(String, u64)>,
    asked: Instant,
}

impl RestartTracker {
    pub(crate) fn new(quarantine: Quarantine, now: fn() -> Instant) -> Self {
        Self {
            quarantine,
            now,
            masters: Arc::default(),
            run_ids: RunIds::default(),
        }
    }

    /// Returns a clone of this tracker for the dialer of a master with `run_ids`.
    fn with(&self, run_ids: &RunIds) -> Self {
        Self {
            run_ids: run_ids.clone(),
            ..self.clone()
        }
    }

    /// Returns a clone of this tracker for the dialer of the master at `address`. The address
    /// includes the database, because each database has its own origin key.
    pub(super) fn at(&self, address: &str) -> Self {
        match self.quarantine {
            Quarantine::Off => self.clone(),
            Quarantine::Observed | Quarantine::Strict => self.with(&RunIds::of(address)),
        }
    }

    /// Returns the query for a dial of `master`.
    pub(crate) fn query(&self, master: usize) -> RestartQuery {
        let asked = (self.now)();
        RestartQuery {
            master,
            run_ids: self.run_ids.clone(),
            known: self.run_ids.known(asked),
            asked,
        }
    }

    /// Notes that the master of `query` is the server with `run_id`. Fails if another master is the
    /// same server, or if another server answered at the address after the query.
    pub(crate) fn meet(&self, query: &RestartQuery, run_id: &str) -> Result<(), DialError> {
        let (mut masters, master) = (self.masters.lock(), query.master);
        let is_same = |met: &Met| met.server.as_deref() == Some(run_id);
        let mut same = masters.iter().filter(|(_, met)| is_same(met));
        let other = same.find_map(|(other, _)| (*other != master).then_some(other + 1));
        if let Some(other) = other {
            // The known run ids are kept, because the master's own server may come back without its
            // locks.
            if let Some(met) = masters.get_mut(&master) {
                met.server = None;
            }
            return Err(DialError::SameServer { other });
        }
        let run_ids = query.run_ids.clone();
        run_ids.meet(run_id, query.asked, (self.now)())?;
        let met = Met {
            server: Some(run_id.to_owned()),
            run_id: run_id.to_owned(),
            run_ids,
        };
        masters.insert(master, met);
        Ok(())
    }

    /// Notes that `master` answered at `at`.
    pub(super) fn heard(&self, master: usize, at: Instant) {
        if let Some(met) = self.masters.lock().get(&master) {
            met.run_ids.hear(&met.run_id, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::time::clock;

    #[test]
    fn a_server_under_two_addresses_is_refused_and_the_origin_is_remembered() {
        let tracker = RestartTracker::new(Quarantine::Observed, clock::monotonic);
        let known = [RunIds::default(), RunIds::default()];
        let run_id = |master: usize| {
            let mut run_ids = known[master].known(clock::monotonic()).into_iter();
            (run_ids.next().map(|(run_id, _)| run_id), run_ids.next())
        };
        let meet = |master: usize, run_id| {
            let query = tracker.with(&known[master]).query(master);
            tracker.meet(&query, run_id)
        };
        meet(0, "a").unwrap();
        meet(1, "b").unwrap();
        let refused = meet(1, "a").unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("the same server as master 1"), "{text}");
        assert_eq!(run_id(1), (Some("b".to_owned()), None));
        // The servers have swapped addresses.
        meet(0, "b").unwrap();
        meet(1, "a").unwrap();
        // Server b has restarted.
        meet(0, "c").unwrap();
        assert_eq!(run_id(0), (Some("c".to_owned()), None));
        assert!(meet(1, "c").is_err());
        meet(0, "c").unwrap();
    }

    /// Each coordinator counts its own votes, so both may use the server.
    #[test]
    fn two_coordinators_may_use_the_same_server_and_share_its_run_ids() {
        let known = RunIds::default();
        let [one, other] =
            [0, 1].map(|_| RestartTracker::new(Quarantine::Observed, clock::monotonic));
        let query = one.with(&known).query(0);
        assert_eq!(query.known, []);
        one.meet(&query, "a").unwrap();
        let query = other.with(&known).query(1);
        assert_eq!(query.known[0].0, "a");
        other.meet(&query, "a").unwrap();
    }
}
