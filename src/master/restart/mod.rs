//! Remembers which server each master of a coordinator is, and which it was.

pub(crate) mod known_origins;
pub(in crate::master) mod quarantine;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::dial_error::DialError;
use crate::core::restart::Quarantine;
use known_origins::KnownOrigins;

/// Keeps what dials need to notice that a master has restarted, or that two masters are the same
/// server. All dialers of a coordinator share one tracker.
#[derive(Clone, Debug)]
pub(crate) struct RestartTracker {
    pub(crate) quarantine: Quarantine,
    now: fn() -> Instant,
    masters: Arc<Mutex<BTreeMap<usize, Met>>>,
    /// The known origins of the master that is dialled.
    known_origins: KnownOrigins,
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
    /// The known origins of the master.
    known_origins: KnownOrigins,
}

/// A question that a dial asks the master: may it have forgotten locks?
#[derive(Debug)]
pub(crate) struct RestartQuery {
    master: usize,
    known_origins: KnownOrigins,
    /// The known origins of the master, each with the milliseconds since it last answered.
    pub(crate) known: Vec<(String, u64)>,
    asked: Instant,
}

impl RestartTracker {
    pub(crate) fn new(quarantine: Quarantine, now: fn() -> Instant) -> Self {
        Self {
            quarantine,
            now,
            masters: Arc::default(),
            known_origins: KnownOrigins::default(),
        }
    }

    /// Returns a clone of this tracker for the dialer of a master with `known_origins`.
    fn with(&self, known_origins: &KnownOrigins) -> Self {
        Self {
            known_origins: known_origins.clone(),
            ..self.clone()
        }
    }

    /// Returns a clone of this tracker for the dialer of the master at `address`. The address
    /// includes the database, because each database has its own origin key.
    pub(super) fn at(&self, address: &str) -> Self {
        match self.quarantine {
            Quarantine::Off => self.clone(),
            Quarantine::Observed | Quarantine::Strict => self.with(&KnownOrigins::of(address)),
        }
    }

    /// Returns the query for a dial of `master`.
    pub(crate) fn query(&self, master: usize) -> RestartQuery {
        let asked = (self.now)();
        RestartQuery {
            master,
            known_origins: self.known_origins.clone(),
            known: self.known_origins.known(asked),
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
            // The known origins are kept, because the master's own server may come back without its
            // locks.
            if let Some(met) = masters.get_mut(&master) {
                met.server = None;
            }
            return Err(DialError::SameServer { other });
        }
        let known_origins = query.known_origins.clone();
        known_origins.meet(run_id, query.asked, (self.now)())?;
        let met = Met {
            server: Some(run_id.to_owned()),
            run_id: run_id.to_owned(),
            known_origins,
        };
        masters.insert(master, met);
        Ok(())
    }

    /// Notes that `master` answered at `at`.
    pub(super) fn heard(&self, master: usize, at: Instant) {
        if let Some(met) = self.masters.lock().get(&master) {
            met.known_origins.hear(&met.run_id, at);
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
        let known = [KnownOrigins::default(), KnownOrigins::default()];
        let origin = |master: usize| {
            let mut origins = known[master].known(clock::monotonic()).into_iter();
            (origins.next().map(|(origin, _)| origin), origins.next())
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
        assert_eq!(origin(1), (Some("b".to_owned()), None));
        // The servers have swapped addresses.
        meet(0, "b").unwrap();
        meet(1, "a").unwrap();
        // Server b has restarted.
        meet(0, "c").unwrap();
        assert_eq!(origin(0), (Some("c".to_owned()), None));
        assert!(meet(1, "c").is_err());
        meet(0, "c").unwrap();
    }

    /// Each coordinator counts its own votes, so both may use the server.
    #[test]
    fn two_coordinators_may_use_the_same_server_and_share_its_origins() {
        let known = KnownOrigins::default();
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
