//! The origins that this process has found at each master. All coordinators of the process share
//! them.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use crate::master::dial_error::DialError;
#[cfg(test)]
use crate::sim::Process;

/// The origins of the servers that answered at the address of one master. Clones share the same
/// list.
///
/// An origin is the run id of a process. The instant is the time when it last answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownOrigins(Arc<Mutex<Vec<(String, Instant)>>>);

/// The known origins of each real master, by address and database.
type Masters = std::collections::BTreeMap<String, KnownOrigins>;

impl KnownOrigins {
    /// Returns the known origins of the master with this address and database. They are kept after
    /// the last coordinator that uses the master is gone.
    pub(in crate::master) fn of(address: &str) -> Self {
        #[cfg(test)]
        if let Some(known) = Process::current(|process| process.known_origins(address)) {
            return known;
        }
        static MASTERS: Mutex<Masters> = Mutex::new(Masters::new());
        find(&mut MASTERS.lock(), address)
    }

    /// Returns each known origin with the number of milliseconds since it last answered. The number
    /// is rounded up, because the master counts whole milliseconds. There are several origins if
    /// several servers answer at one address.
    pub(in crate::master) fn known(&self, now: Instant) -> Vec<(String, u64)> {
        let mut origins = self.0.lock();
        if mutant!(ForgetsOrigins) {
            origins.clear();
        }
        let known = origins.iter().map(|(origin, heard)| {
            let away = now.saturating_duration_since(*heard).as_millis();
            let away = u64::try_from(away).unwrap_or(u64::MAX);
            (origin.clone(), away.saturating_add(1))
        });
        known.collect()
    }

    /// Notes that `origin` answered at `now`. The question to it named all origins that were known
    /// at `asked`.
    ///
    /// Removes the other origins that last answered before `asked`, because the question named
    /// them. A server with another run id counts its quarantine from a time after their last
    /// answers. Fails if another origin answered after `asked`, because the question could not take
    /// that answer into account.
    pub(in crate::master) fn meet(
        &self,
        origin: &str,
        asked: Instant,
        now: Instant,
    ) -> Result<(), DialError> {
        let mut origins = self.0.lock();
        origins.retain(|(known, heard)| known != origin && *heard > asked);
        origins.push((origin.to_owned(), now));
        if origins.len() > 1 {
            return Err(DialError::Changed);
        }
        Ok(())
    }

    /// Notes that `origin` answered at `at`.
    pub(in crate::master) fn hear(&self, origin: &str, at: Instant) {
        let mut origins = self.0.lock();
        match origins.iter_mut().find(|(known, _)| known == origin) {
            Some((_, heard)) => *heard = at.max(*heard),
            None => origins.push((origin.to_owned(), at)),
        }
    }

    fn last_heard(&self) -> Option<Instant> {
        self.0.lock().iter().map(|(_, heard)| *heard).max()
    }
}

/// Returns the known origins of the master at `address`. If the master is new and too many are
/// remembered, forgets the unused master that answered longest ago.
fn find(masters: &mut Masters, address: &str) -> KnownOrigins {
    /// The most masters that are remembered. Masters in use are never forgotten, even if there are
    /// more of them.
    const MOST: usize = 4096;
    if let Some(known) = masters.get(address) {
        return known.clone();
    }
    if masters.len() >= MOST {
        let unused = masters
            .iter()
            .filter(|(_, known)| Arc::strong_count(&known.0) == 1);
        let oldest = unused.min_by_key(|(_, known)| known.last_heard());
        if let Some(oldest) = oldest.map(|(address, _)| address.clone()) {
            masters.remove(&oldest);
        }
    }
    masters.entry(address.to_owned()).or_default().clone()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::driver::time::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_origin_that_answered_is_known() {
        let start = clock::monotonic();
        let known_origins = KnownOrigins::default();
        assert_eq!(known_origins.known(start), []);
        known_origins.meet("a", start, start).unwrap();
        known_origins.hear("a", start + SECOND);
        known_origins.hear("a", start); // reported late, by a connection that ended earlier
        let known = known_origins.known(start + 2 * SECOND);
        assert_eq!(known, [("a".to_owned(), 1_001)]);
        // A later process of the server answers. The question named origin `a`.
        known_origins
            .meet("b", start + 2 * SECOND, start + 3 * SECOND)
            .unwrap();
        let known = known_origins.known(start + 3 * SECOND);
        assert_eq!(known, [("b".to_owned(), 1)]);
        // The first process still answers.
        known_origins.hear("a", start + 4 * SECOND);
        let known = known_origins.known(start + 4 * SECOND);
        assert_eq!(known, [("b".to_owned(), 1_001), ("a".to_owned(), 1)]);
        // The next question names both origins.
        let (asked, now) = (start + 4 * SECOND, start + 5 * SECOND);
        known_origins.meet("b", asked, now).unwrap();
        assert_eq!(known_origins.known(now), [("b".to_owned(), 1)]);
    }

    #[test]
    fn a_server_that_was_not_told_of_every_origin_is_refused() {
        let start = clock::monotonic();
        let known_origins = KnownOrigins::default();
        known_origins.meet("a", start, start + SECOND).unwrap();
        let refused = known_origins
            .meet("b", start, start + 2 * SECOND)
            .unwrap_err();
        assert!(matches!(refused, DialError::Changed), "{refused}");
        let asked = start + 3 * SECOND;
        assert_eq!(known_origins.known(asked).len(), 2);
        known_origins.meet("b", asked, asked).unwrap();
        assert_eq!(known_origins.known(asked), [("b".to_owned(), 1)]);
    }

    #[test]
    fn the_number_of_unused_masters_is_bounded() {
        let start = clock::monotonic();
        let mut masters = Masters::new();
        let used = find(&mut masters, "used");
        used.hear("origin", start);
        for address in 0..5_000 {
            let unused = find(&mut masters, &address.to_string());
            unused.hear("origin", start + SECOND + Duration::from_millis(address));
        }
        assert_eq!(masters.len(), 4_096);
        assert_eq!(find(&mut masters, "used").known(start).len(), 1);
        assert_eq!(find(&mut masters, "4999").known(start).len(), 1);
        assert_eq!(find(&mut masters, "0").known(start).len(), 0);
    }
}
