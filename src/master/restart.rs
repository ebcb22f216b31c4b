//! The memory of which server each master of a coordinator is, and of what is known of that server.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::{dial_error::DialError, known_origins::KnownOrigins};
use crate::core::restart::RestartGuard;

/// Notices masters that restarted, and a server that is listed twice. All dialers of a coordinator
/// share one.
#[derive(Clone, Debug)]
pub(crate) struct RestartTracker {
    pub(crate) guard: RestartGuard,
    /// Set if masters are declared to keep all data over restarts, so that each dial asks whether
    /// they do.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only servers are asked")
    )]
    pub(super) expects_durable: bool,
    now: fn() -> Instant,
    masters: Arc<Mutex<BTreeMap<usize, Met>>>,
    /// The origins by which this process knows the master that is dialled.
    known_origins: KnownOrigins,
}

/// A master of this coordinator, as the last dial found it.
#[derive(Clone, Debug)]
struct Met {
    /// The run id of the server. It is kept so that no server votes as two masters. `None` after a
    /// dial reached the server of another master and was refused. When two servers swap addresses,
    /// the other master is the server that this one was, and must not be refused for it.
    server: Option<String>,
    /// The run id of the process that the data of the server goes back to.
    origin: String,
    /// The origins by which this process knows the master.
    known_origins: KnownOrigins,
}

/// The question of a dial whether the master may have forgotten locks.
#[derive(Debug)]
pub(super) struct RestartQuery {
    master: usize,
    known_origins: KnownOrigins,
    /// The origins by which the master is known, each with the milliseconds since it was last heard
    /// from.
    pub(super) known: Vec<(String, u64)>,
    asked: Instant,
}

impl RestartTracker {
    pub(crate) fn new(guard: RestartGuard, expects_durable: bool, now: fn() -> Instant) -> Self {
        Self {
            guard,
            expects_durable,
            now,
            masters: Arc::default(),
            known_origins: KnownOrigins::default(),
        }
    }

    /// Returns the same tracker for the dialer of a master with `known_origins`.
    pub(super) fn with(&self, known_origins: &KnownOrigins) -> Self {
        Self {
            known_origins: known_origins.clone(),
            ..self.clone()
        }
    }

    /// Returns the same tracker for the dialer of the master at `address`. The address includes the
    /// database, as each database has a guard key of its own.
    #[cfg(feature = "redis")]
    pub(super) fn at(&self, address: &str) -> Self {
        match self.guard {
            RestartGuard::Off => self.clone(),
            RestartGuard::Observed | RestartGuard::Strict => self.with(&KnownOrigins::of(address)),
        }
    }

    /// Returns the query for a dial of `master`.
    pub(super) fn query(&self, master: usize) -> RestartQuery {
        let asked = (self.now)();
        RestartQuery {
            master,
            known_origins: self.known_origins.clone(),
            known: self.known_origins.known(asked),
            asked,
        }
    }

    /// Notes that a master is the server with this run id, and the origin of its data. Fails if
    /// another master is the same server.
    pub(super) fn meet(
        &self,
        query: &RestartQuery,
        run_id: &str,
        origin: &str,
    ) -> Result<(), DialError> {
        let (mut masters, master) = (self.masters.lock(), query.master);
        let is_same = |met: &Met| met.server.as_deref() == Some(run_id);
        let mut same = masters.iter().filter(|(_, met)| is_same(met));
        let other = same.find_map(|(other, _)| (*other != master).then_some(other + 1));
        if let Some(other) = other {
            // The origin stays: the master's own server may come back without its locks.
            if let Some(met) = masters.get_mut(&master) {
                met.server = None;
            }
            return Err(DialError::SameServer { other });
        }
        let known_origins = query.known_origins.clone();
        known_origins.meet(origin, query.asked, (self.now)())?;
        let met = Met {
            server: Some(run_id.to_owned()),
            origin: origin.to_owned(),
            known_origins,
        };
        masters.insert(master, met);
        Ok(())
    }

    /// Returns whether the process with this run id need not be asked whether it restarted: a dial
    /// of this coordinator has asked it, or the restart guard is off.
    pub(super) fn has_met(&self, master: usize, run_id: Option<&str>) -> bool {
        let masters = self.masters.lock();
        let met = masters.get(&master).and_then(|met| met.server.as_deref());
        self.guard == RestartGuard::Off || (met.is_some() && met == run_id)
    }

    /// Returns a tracker for a connection that does not replace the one of the supervisor. It knows
    /// the same servers, and its dial does not change which server a master is.
    pub(super) fn detached(&self) -> Self {
        let masters = self.masters.lock().clone();
        Self {
            masters: Arc::new(Mutex::new(masters)),
            ..self.clone()
        }
    }

    /// Notes when a connection to `master` last had an answer.
    pub(super) fn heard(&self, master: usize, at: Instant) {
        if let Some(met) = self.masters.lock().get(&master) {
            met.known_origins.hear(&met.origin, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::clock;

    #[test]
    fn a_server_under_two_addresses_is_refused_and_the_origin_is_remembered() {
        let tracker = RestartTracker::new(RestartGuard::Observed, false, clock::monotonic);
        let known = [KnownOrigins::default(), KnownOrigins::default()];
        let origin = |master: usize| {
            let mut origins = known[master].known(clock::monotonic()).into_iter();
            (origins.next().map(|(origin, _)| origin), origins.next())
        };
        let meet = |master: usize, run_id, origin| {
            let query = tracker.with(&known[master]).query(master);
            tracker.meet(&query, run_id, origin)
        };
        meet(0, "a", "a").unwrap();
        meet(1, "b", "b").unwrap();
        let refused = meet(1, "a", "a").unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("the same server as master 1"), "{text}");
        assert_eq!(origin(1), (Some("b".to_owned()), None));
        // Both are met anew: the servers have swapped addresses.
        meet(0, "b", "b").unwrap();
        meet(1, "a", "a").unwrap();
        // A later process has the data of server b.
        meet(0, "c", "b").unwrap();
        assert_eq!(origin(0), (Some("b".to_owned()), None));
        assert!(meet(1, "c", "b").is_err());
        meet(0, "c", "b").unwrap();
    }

    /// Each coordinator counts votes of its own.
    #[test]
    fn two_coordinators_may_use_the_same_server_and_share_its_origins() {
        let known = KnownOrigins::default();
        let [one, other] =
            [0, 1].map(|_| RestartTracker::new(RestartGuard::Observed, false, clock::monotonic));
        let query = one.with(&known).query(0);
        assert_eq!(query.known, []);
        one.meet(&query, "a", "a").unwrap();
        let query = other.with(&known).query(1);
        assert_eq!(query.known[0].0, "a");
        other.meet(&query, "a", "a").unwrap();
    }
}
