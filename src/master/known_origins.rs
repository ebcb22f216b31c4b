//! What this process remembers of a master, whichever of its coordinators saw it.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::dial_error::DialError;

/// What is remembered of one master. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownOrigins(Arc<Mutex<Vec<Sighting>>>);

/// A server that was found at a master's place.
#[derive(Debug)]
struct Sighting {
    /// What it remembers goes back to the process with this run id.
    origin: String,
    /// When that process, or one that inherited its data, last answered.
    heard: Instant,
}

/// Where the guard keys of real masters are, and what is remembered of each.
#[cfg(feature = "redis")]
type Places = std::collections::BTreeMap<String, KnownOrigins>;

impl KnownOrigins {
    /// Returns what is remembered of the master at `place`, for as long as the process lives.
    #[cfg(feature = "redis")]
    pub(super) fn of(place: &str) -> Self {
        static PLACES: Mutex<Places> = Mutex::new(Places::new());
        find(&mut PLACES.lock(), place)
    }

    /// Returns the origins that the master is known by, and for how many milliseconds each has not
    /// been heard from, rounded up: the master counts in whole ones. There are two where two
    /// servers answer in one place.
    pub(super) fn known(&self, now: Instant) -> Vec<(String, u64)> {
        let known_origins = self.0.lock();
        let known = known_origins.iter().map(|sighting| {
            let away = now.saturating_duration_since(sighting.heard).as_millis();
            let away = u64::try_from(away).unwrap_or(u64::MAX);
            (sighting.origin.clone(), away.saturating_add(1))
        });
        known.collect()
    }

    /// Notes that a server with this origin answered at `now`, to one who was `asked` what it knew.
    ///
    /// What was known then is of no use any more: the server that answered counts its quarantine
    /// from later. Fails when another one was heard from since, of which the server that answered
    /// was told nothing.
    pub(super) fn meet(&self, origin: &str, asked: Instant, now: Instant) -> Result<(), DialError> {
        let mut known_origins = self.0.lock();
        known_origins.retain(|known| known.origin != origin && known.heard > asked);
        known_origins.push(Sighting {
            origin: origin.to_owned(),
            heard: now,
        });
        if known_origins.len() > 1 {
            return Err(DialError::Changed);
        }
        Ok(())
    }

    /// Notes when a connection to the server with this origin last had an answer.
    pub(super) fn hear(&self, origin: &str, at: Instant) {
        let mut known_origins = self.0.lock();
        match known_origins
            .iter_mut()
            .find(|known| known.origin == origin)
        {
            Some(known) => known.heard = known.heard.max(at),
            None => known_origins.push(Sighting {
                origin: origin.to_owned(),
                heard: at,
            }),
        }
    }

    #[cfg(feature = "redis")]
    fn last_heard(&self) -> Option<Instant> {
        let known_origins = self.0.lock();
        known_origins.iter().map(|known| known.heard).max()
    }
}

/// As [`KnownOrigins::of`]. Remembers a bounded number of masters that no coordinator uses.
#[cfg(feature = "redis")]
fn find(places: &mut Places, place: &str) -> KnownOrigins {
    /// The most places, but for those that are in use.
    const MOST: usize = 4096;
    if let Some(known) = places.get(place) {
        return known.clone();
    }
    if places.len() >= MOST {
        let unused = places
            .iter()
            .filter(|(_, known)| Arc::strong_count(&known.0) == 1);
        let oldest = unused.min_by_key(|(_, known)| known.last_heard());
        if let Some(oldest) = oldest.map(|(place, _)| place.clone()) {
            places.remove(&oldest);
        }
    }
    places.entry(place.to_owned()).or_default().clone()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::driver::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn whoever_was_heard_from_is_known() {
        let start = clock::monotonic();
        let known_origins = KnownOrigins::default();
        assert_eq!(known_origins.known(start), []);
        known_origins.meet("a", start, start).unwrap();
        known_origins.hear("a", start + SECOND);
        known_origins.hear("a", start); // by a connection that ended earlier and was slower to say so
        let known = known_origins.known(start + 2 * SECOND);
        assert_eq!(known, [("a".to_owned(), 1_001)]);
        // A later process, which was asked by one who knew that.
        known_origins
            .meet("b", start + 2 * SECOND, start + 3 * SECOND)
            .unwrap();
        let known = known_origins.known(start + 3 * SECOND);
        assert_eq!(known, [("b".to_owned(), 1)]);
        // The one before is still there.
        known_origins.hear("a", start + 4 * SECOND);
        let known = known_origins.known(start + 4 * SECOND);
        assert_eq!(known, [("b".to_owned(), 1_001), ("a".to_owned(), 1)]);
        // Both have been told of to whoever answers next.
        let (asked, now) = (start + 4 * SECOND, start + 5 * SECOND);
        known_origins.meet("b", asked, now).unwrap();
        assert_eq!(known_origins.known(now), [("b".to_owned(), 1)]);
    }

    #[test]
    fn an_answer_to_one_who_did_not_know_enough_is_of_no_use() {
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
    fn places_that_nobody_uses_are_forgotten_in_the_end() {
        let start = clock::monotonic();
        let mut places = Places::new();
        let used = find(&mut places, "used");
        used.hear("origin", start);
        for place in 0..5_000 {
            let seen = find(&mut places, &place.to_string());
            seen.hear("origin", start + SECOND + Duration::from_millis(place));
        }
        assert_eq!(places.len(), 4_096);
        assert_eq!(find(&mut places, "used").known(start).len(), 1);
        assert_eq!(find(&mut places, "4999").known(start).len(), 1);
        assert_eq!(find(&mut places, "0").known(start).len(), 0);
    }
}
