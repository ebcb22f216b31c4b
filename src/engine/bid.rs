//! Drawing tickets and candidates for fencing tokens, by the masters' time.

use std::{sync::atomic::Ordering, time::Duration};

use super::Engine;
use crate::{
    clock,
    core::{claim::Patience, round::Round},
    hold::{Again, Held},
};

impl Engine {
    /// A number behind all that this process has drawn or seen: the masters' time in microseconds, as far as it
    /// is known.
    pub(crate) fn draw(&self) -> u64 {
        let offset = self.clock_offset.load(Ordering::Relaxed);
        let now = clock::wall_micros().saturating_add_signed(offset);
        let behind = |last: u64| now.max(last.saturating_add(1));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let last = self
            .last_drawn
            .fetch_update(set, fetch, |last| Some(behind(last)));
        last.map_or(now, behind)
    }

    /// Goes by the masters' clocks from now on.
    pub(super) fn correct_clock(&self, theirs: Duration) {
        let theirs = i64::try_from(theirs.as_micros()).unwrap_or(i64::MAX);
        let ours = i64::try_from(clock::wall_micros()).unwrap_or(i64::MAX);
        let offset_us = theirs.saturating_sub(ours);
        let before = self.clock_offset.swap(offset_us, Ordering::Relaxed);
        // Else it was only the ticket that came late.
        if offset_us.abs_diff(before) > 500_000 {
            tracing::warn!(offset_us, "this clock is not the masters': going by theirs");
        }
        // What was drawn by a clock that was ahead must not hold back what is drawn by the right one.
        self.last_drawn.store(0, Ordering::Relaxed);
    }

    /// Bids again for a fencing token, in place: what was granted stays ours meanwhile. Whether that is of use: a
    /// majority of masters are free, and have seen a later token or another time.
    pub(super) fn bid_again(&self, held: &Held, patience: Option<Patience>) -> bool {
        if held.fencing_token().is_none() {
            return false;
        }
        let round = held.newest_round();
        let candidate = round.read(Round::outbid);
        if let Some(candidate) = candidate {
            // Whoever bids next in this process need not be told again.
            self.last_drawn.fetch_max(candidate, Ordering::Relaxed);
        } else if let Some(clock) = round.read(Round::skewed_to) {
            self.correct_clock(clock);
        } else {
            return false;
        }
        held.ask_again(Again {
            claim: None, // nothing was given back
            patience,
            candidate,
        });
        true
    }
}
