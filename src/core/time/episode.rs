//! Outages that come and go, and when the log tells of them.

use std::{
    mem,
    time::{Duration, Instant},
};

/// The outages of one thing. The log tells of the first failure of an outage, and of the success
/// that ends it. Outages that begin in quick succession count as one, so that they do not fill the
/// log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Episode {
    /// `true` if there is an outage that the log told of.
    is_told: bool,
    /// The time of the last failure that the log told of.
    last_told: Option<Instant>,
}

impl Episode {
    const PAUSE: Duration = Duration::from_secs(10);

    /// Notes a failure at `now`. Returns whether the log tells of it.
    pub(crate) fn fails(&mut self, now: Instant) -> bool {
        let is_recent = |told: Instant| now.saturating_duration_since(told) < Self::PAUSE;
        if self.is_told || self.last_told.is_some_and(is_recent) {
            return false;
        }
        *self = Self {
            is_told: true,
            last_told: Some(now),
        };
        true
    }

    /// Notes a success. Returns whether the log tells of it.
    pub(crate) fn works(&mut self) -> bool {
        mem::take(&mut self.is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once_and_quick_changes_are_bounded() {
        #[expect(clippy::disallowed_methods, reason = "an origin for the table")]
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut episode = Episode::default();
        assert!(!episode.works());
        assert!(episode.fails(at(0)) && !episode.fails(at(100)));
        assert!(episode.works() && !episode.works());
        assert!(episode.fails(at(101)));
        assert!(episode.works());
        assert!(!episode.fails(at(102)) && !episode.works());
        // The last outage goes on.
        assert!(!episode.fails(at(110)) && episode.fails(at(111)));
        assert!(episode.works());
    }
}
