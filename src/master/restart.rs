//! Remembers the run ids of all servers that have answered at the address of a master.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::connect_error::ConnectError;
use crate::core::time::Tick;
#[cfg(test)]
use crate::sim::Process;

/// The run ids of the servers that answered at the address of one master, and when each of them was
/// last heard. A server has another run id after a restart. Clones share the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunIds(Arc<Mutex<BTreeMap<String, LastHeard>>>);

/// The time when bytes last came from a server, as the number in a [`Tick`].
pub(crate) type LastHeard = Arc<AtomicU64>;

/// The known run ids of each master, by address and database.
type Masters = BTreeMap<String, RunIds>;

impl RunIds {
    /// Returns the known run ids of the master with this address and database. They are kept after
    /// the last coordinator that uses the master is gone.
    pub(crate) fn of(address: &str) -> Self {
        #[cfg(test)]
        if let Some(known) = Process::current(|process| process.run_ids(address)) {
            return known;
        }
        static MASTERS: Mutex<Masters> = Mutex::new(Masters::new());
        find(&mut MASTERS.lock(), address)
    }

    /// Returns each known run id with the number of milliseconds since its server was last heard.
    /// The number is rounded up, because the master counts whole milliseconds. There are several
    /// run ids if several servers answer at one address.
    pub(crate) fn known(&self, now: Tick) -> Vec<(String, u64)> {
        let run_ids = self.0.lock();
        let known = run_ids.iter().map(|(run_id, heard)| {
            let away = now.since(at(heard)).as_millis();
            let away = u64::try_from(away).unwrap_or(u64::MAX);
            (run_id.clone(), away.saturating_add(1))
        });
        known.collect()
    }

    /// Notes that the server with `run_id` answered the question about restarts at `now`. The
    /// question named all run ids that were known at `asked`. Returns the [`LastHeard`] of the
    /// server. The connection to the server updates it, and holds a clone of it until the
    /// connection ends.
    ///
    /// Removes the other run ids that have no connection and were last heard before `asked`. The
    /// question named these run ids, so the server counts its quarantine from a time after each of
    /// them was last heard. Fails if another run id was heard after `asked`, because the question
    /// did not yet report this.
    pub(crate) fn meet(
        &self,
        run_id: &str,
        asked: Tick,
        now: Tick,
    ) -> Result<LastHeard, ConnectError> {
        let mut run_ids = self.0.lock();
        let met = run_ids.entry(run_id.to_owned()).or_default().clone();
        hear(&met, now);
        let is_later = |heard: &LastHeard| at(heard) > asked;
        run_ids.retain(|_, heard| Arc::strong_count(heard) > 1 || is_later(heard));
        let mut others = run_ids.iter().filter(|(known, _)| *known != run_id);
        if others.any(|(_, heard)| is_later(heard)) {
            let why = "another server answered at this address during the dial";
            return Err(ConnectError::Origin(why.to_owned(), None));
        }
        Ok(met)
    }
}

/// Notes that bytes came from a server at `now`. Connections may report this out of order.
pub(super) fn hear(heard: &LastHeard, now: Tick) {
    heard.fetch_max(now.nanos(), Ordering::Relaxed);
}

fn at(heard: &LastHeard) -> Tick {
    Tick::from_nanos(heard.load(Ordering::Relaxed))
}

/// Returns the known run ids of the master at `address`. If the master is new and too many masters
/// are remembered, forgets the unused one that answered longest ago.
fn find(masters: &mut Masters, address: &str) -> RunIds {
    /// The largest number of masters that are remembered. Masters in use are never forgotten, even
    /// if their number is larger.
    const MOST: usize = 4096;
    if let Some(known) = masters.get(address) {
        return known.clone();
    }
    if masters.len() >= MOST {
        let unused = masters
            .iter()
            .filter(|(_, known)| Arc::strong_count(&known.0) == 1);
        let oldest = unused.min_by_key(|(_, known)| known.0.lock().values().map(at).max());
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
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_run_id_that_answered_is_known() {
        let start = clock::monotonic();
        let run_ids = RunIds::default();
        assert_eq!(run_ids.known(start), []);
        let a = run_ids.meet("a", start, start).unwrap();
        hear(&a, start + SECOND);
        hear(&a, start); // reported late, by another connection
        let known = run_ids.known(start + 2 * SECOND);
        assert_eq!(known, [("a".to_owned(), 1_001)]);
        // A later process of the server answers. The question named run id `a`, which still has a
        // connection.
        run_ids
            .meet("b", start + 2 * SECOND, start + 3 * SECOND)
            .unwrap();
        let known = run_ids.known(start + 3 * SECOND);
        assert_eq!(known, [("a".to_owned(), 2_001), ("b".to_owned(), 1)]);
        hear(&a, start + 4 * SECOND);
        let known = run_ids.known(start + 4 * SECOND);
        assert_eq!(known, [("a".to_owned(), 1), ("b".to_owned(), 1_001)]);
        // The next questions name both run ids, until the connection of `a` has ended.
        let (asked, now) = (start + 4 * SECOND, start + 5 * SECOND);
        run_ids.meet("b", asked, now).unwrap();
        let known = run_ids.known(now);
        assert_eq!(known, [("a".to_owned(), 1_001), ("b".to_owned(), 1)]);
        drop(a);
        run_ids.meet("b", asked, now).unwrap();
        assert_eq!(run_ids.known(now), [("b".to_owned(), 1)]);
    }

    #[test]
    fn a_server_that_was_not_told_of_every_run_id_is_refused() {
        let start = clock::monotonic();
        let run_ids = RunIds::default();
        run_ids.meet("a", start, start + SECOND).unwrap();
        let refused = run_ids.meet("b", start, start + 2 * SECOND).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.starts_with("another server"), "{refused}");
        let asked = start + 3 * SECOND;
        assert_eq!(run_ids.known(asked).len(), 2);
        run_ids.meet("b", asked, asked).unwrap();
        assert_eq!(run_ids.known(asked), [("b".to_owned(), 1)]);
    }

    #[test]
    fn the_number_of_unused_masters_is_bounded() {
        let start = clock::monotonic();
        let mut masters = Masters::new();
        let used = find(&mut masters, "used");
        used.meet("origin", start, start).unwrap();
        for address in 0..5_000 {
            let unused = find(&mut masters, &address.to_string());
            let heard = start + SECOND + Duration::from_millis(address);
            unused.meet("origin", start, heard).unwrap();
        }
        assert_eq!(masters.len(), 4_096);
        assert_eq!(find(&mut masters, "used").known(start).len(), 1);
        assert_eq!(find(&mut masters, "4999").known(start).len(), 1);
        assert_eq!(find(&mut masters, "0").known(start).len(), 0);
    }
}
