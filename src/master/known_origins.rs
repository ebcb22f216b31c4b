//! The origins by which this process knows a master. All coordinators of the process share them.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::dial_error::DialError;

/// The known origins of the servers that answered at the address of one master. Clones share them.
///
/// An origin is the run id of the process that a server's data goes back to. The instant is when
/// that process, or one that inherited its data, last answered.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownOrigins(Arc<Mutex<Vec<(String, Instant)>>>);

/// The known origins of each real master, by address and database.
#[cfg(feature = "redis")]
type Masters = std::collections::BTreeMap<String, KnownOrigins>;

impl KnownOrigins {
    /// Returns the known origins of the master with this address and database. They outlive the
    /// coordinators that use the master.
    #[cfg(feature = "redis")]
    pub(super) fn of(address: &str) -> Self {
        static MASTERS: Mutex<Masters> = Mutex::new(Masters::new());
        find(&mut MASTERS.lock(), address)
    }

    /// Returns each known origin with the milliseconds since it was last heard from. They are
    /// rounded up, as the master counts whole milliseconds. There are several origins if several
    /// servers answer at one address.
    pub(super) fn known(&self, now: Instant) -> Vec<(String, u64)> {
        let origins = self.0.lock();
        let known = origins.iter().map(|(origin, heard)| {
            let away = now.saturating_duration_since(*heard).as_millis();
            let away = u64::try_from(away).unwrap_or(u64::MAX);
            (origin.clone(), away.saturating_add(1))
        });
        known.collect()
    }

    /// Notes that a server with this origin answered at `now`. The question named the origins that
    /// were known at `asked`.
    ///
    /// Drops the origins that the question named: if the server has another origin, it counts its
    /// quarantine from a later time than that at which those were heard from. Fails if another
    /// origin was heard from after `asked`, as the question did not say so.
    pub(super) fn meet(&self, origin: &str, asked: Instant, now: Instant) -> Result<(), DialError> {
        let mut origins = self.0.lock();
        origins.retain(|(known, heard)| known != origin && *heard > asked);
        origins.push((origin.to_owned(), now));
        if origins.len() > 1 {
            return Err(DialError::Changed);
        }
        Ok(())
    }

    /// Notes when a connection to the server with this origin last had an answer.
    pub(super) fn hear(&self, origin: &str, at: Instant) {
        let mut origins = self.0.lock();
        match origins.iter_mut().find(|(known, _)| known == origin) {
            Some((_, heard)) => *heard = at.max(*heard),
            None => origins.push((origin.to_owned(), at)),
        }
    }

    #[cfg(feature = "redis")]
    fn last_heard(&self) -> Option<Instant> {
        self.0.lock().iter().map(|(_, heard)| *heard).max()
    }
}

/// Returns the known origins of the master at `address`, and bounds the number of masters that no
/// coordinator uses.
#[cfg(feature = "redis")]
fn find(masters: &mut Masters, address: &str) -> KnownOrigins {
    /// The most masters that are remembered, unless more are in use: those are never forgotten.
    const MAX: usize = 4096;
    if let Some(known) = masters.get(address) {
        return known.clone();
    }
    if masters.len() >= MAX {
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
    use crate::driver::clock;

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
        // A later process of the server, which was told of the first one.
        known_origins
            .meet("b", start + 2 * SECOND, start + 3 * SECOND)
            .unwrap();
        let known = known_origins.known(start + 3 * SECOND);
        assert_eq!(known, [("b".to_owned(), 1)]);
        // The first process still answers.
        known_origins.hear("a", start + 4 * SECOND);
        let known = known_origins.known(start + 4 * SECOND);
        assert_eq!(known, [("b".to_owned(), 1_001), ("a".to_owned(), 1)]);
        // The next server that answers was told of both.
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

    #[cfg(feature = "redis")]
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
