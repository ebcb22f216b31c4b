//! Releases that a master must get although their votes have been cast.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::Request;
use crate::core::retry::Backoff;

/// The releases that are owed to one master, in the order in which they were posted.
///
/// They are sent as fast as the master answers them. After an error reply one of them is sent
/// alone, after a pause, until it succeeds. A release is owed until the key that it would delete
/// has expired.
#[derive(Debug)]
pub(super) struct Owed {
    releases: VecDeque<Arc<Request>>,
    /// How many of them were sent over this connection and not answered.
    in_flight: usize,
    /// How many may be: one after an error reply, and one more with each success.
    allowed: usize,
    /// How many pauses there have been since the last success.
    failures: u32,
    /// The end of the pause after an error reply.
    retry_at: Option<Instant>,
    /// Releases that were given up because there were too many.
    given_up: Vec<Arc<Request>>,
    /// The log has said so since there were none.
    is_said: bool,
}

impl Owed {
    /// The most releases that are kept for one master. When there are more, the oldest are given
    /// up: their locks end on that master with the TTL.
    const MOST: usize = 32_768;
    /// The pause after an error reply.
    const PAUSE: Backoff =
        Backoff::between(Duration::from_millis(250), Duration::from_millis(1_000));

    pub(super) fn new() -> Self {
        Self {
            releases: VecDeque::new(),
            in_flight: 0,
            allowed: usize::MAX,
            failures: 0,
            retry_at: None,
            given_up: Vec::new(),
            is_said: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.releases.is_empty()
    }

    /// Keeps `release`. If there are too many, the oldest is given up.
    pub(super) fn push(&mut self, release: Arc<Request>) {
        self.releases.push_back(release);
        if self.releases.len() > Self::MOST {
            self.given_up.extend(self.releases.pop_front());
        }
    }

    /// Returns when the oldest release is no longer owed to `master`: `now` if it is not owed at
    /// all, and `None` if there is no release.
    pub(super) fn next_expiry(&self, master: usize, now: fn() -> Instant) -> Option<Instant> {
        if !self.given_up.is_empty() {
            return Some(now());
        }
        let oldest = self.releases.front()?;
        Some(oldest.counter.owed_until(master).unwrap_or_else(now))
    }

    /// Removes the releases that were given up, and the oldest that are no longer owed to `master`.
    /// They must be dropped outside of locks: whoever waits for them is woken then. Returns also
    /// whether the log must say that some were given up.
    pub(super) fn expire(&mut self, master: usize, now: Instant) -> (Vec<Arc<Request>>, bool) {
        let is_owed = |release: &Arc<Request>| {
            let until = release.counter.owed_until(master);
            until.is_some_and(|until| until > now)
        };
        let first = self.releases.iter().position(is_owed);
        let expired = first.unwrap_or(self.releases.len());
        let mut gone = mem::take(&mut self.given_up);
        let is_news = !gone.is_empty() && !mem::replace(&mut self.is_said, true);
        gone.extend(self.releases.drain(..expired));
        self.is_said &= !self.is_empty();
        (gone, is_news)
    }

    /// Returns the next release to send to `master`, if one may be sent now. `window` commands may
    /// be in flight on the connection; half of them are left to what is posted.
    pub(super) fn next(
        &mut self,
        master: usize,
        now: Instant,
        window: usize,
    ) -> Option<Arc<Request>> {
        let most = self.allowed.min(window / 2).max(1);
        if self.in_flight >= most || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        while let Some(next) = self.releases.pop_front() {
            let until = next.counter.owed_until(master);
            if until.is_some_and(|until| until > now) {
                self.in_flight += 1;
                return Some(next);
            }
        }
        None
    }

    /// Returns when the pause after an error reply is over, if something is to be sent then.
    pub(super) fn next_send(&self) -> Option<Instant> {
        self.retry_at
            .filter(|_| self.in_flight == 0 && !self.is_empty())
    }

    /// Notes that a release was done, of those that [`next`](Self::next) returned if it `was_owed`.
    pub(super) fn succeeded(&mut self, was_owed: bool) {
        if was_owed {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.allowed = self.allowed.saturating_add(1);
            self.failures = 0;
            self.retry_at = None;
        }
    }

    /// Keeps a release that was answered with an error, and begins a pause unless there is one.
    pub(super) fn failed(
        &mut self,
        release: Arc<Request>,
        was_owed: bool,
        now: Instant,
        random: u64,
    ) {
        if was_owed {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        self.push(release);
        self.allowed = 1;
        if self.retry_at.is_none_or(|at| at <= now) {
            self.retry_at = Some(now + Self::PAUSE.delay(self.failures, random));
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// Takes all releases out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<Request>> + use<> {
        mem::take(&mut self.releases).into_iter()
    }
}
