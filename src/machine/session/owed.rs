//! Releases that a master must still get after their votes have been cast.

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use super::Cx;
use crate::{
    core::time::{Backoff, Tick},
    machine::out::Request,
};

/// The releases that are owed to one master, in the order in which they are sent. A release that
/// fails, or that has no reply when the connection breaks, moves to the end.
///
/// Releases are sent as fast as the master answers them. After an error reply, they are sent one at
/// a time, each after a pause, until one succeeds. A release is no longer owed once the key that it
/// would delete has expired.
#[derive(Default)]
pub(crate) struct Owed {
    pub(super) releases: VecDeque<Arc<Request>>,
    /// The number of owed releases that were sent over this connection and are not answered.
    in_flight: usize,
    /// The limit of `in_flight`, or `None` before the first error reply. An error reply sets it to
    /// 1, and each success adds 1.
    limit: Option<usize>,
    /// The number of pauses since the last success.
    failures: u32,
    /// The end of the pause after an error reply.
    retry_at: Option<Tick>,
    /// Set once the log has said that releases were given up. Cleared when no release is owed.
    is_logged: bool,
}

impl Owed {
    /// The largest number of releases that are kept for one master. If there are more, the oldest
    /// are given up. Their locks end on that master when their TTL is over.
    const MOST: usize = 32_768;
    /// The pause after an error reply.
    const PAUSE: Backoff =
        Backoff::between(Duration::from_millis(250), Duration::from_millis(1_000));

    pub(crate) fn is_empty(&self) -> bool {
        self.releases.is_empty()
    }

    /// Adds `release`. If there are then too many releases, gives up the oldest one. Returns
    /// whether to log that.
    #[must_use = "the log must say that releases were given up"]
    pub(crate) fn push(&mut self, release: Arc<Request>, ended: &mut Vec<Arc<Request>>) -> bool {
        self.releases.push_back(release);
        self.releases.len() > Self::MOST && {
            ended.extend(self.releases.pop_front());
            !mem::replace(&mut self.is_logged, true)
        }
    }

    /// Returns when to call [`expire`](Self::expire), or `None` if there is no release.
    pub(crate) fn next_wake(&self, cx: &Cx<'_>) -> Option<Tick> {
        let until = cx.owed_until(self.releases.front()?);
        Some(until.unwrap_or(cx.now.monotonic))
    }

    /// Takes out the oldest releases, up to the first one that is still owed.
    pub(crate) fn expire(&mut self, cx: &Cx<'_>, ended: &mut Vec<Arc<Request>>) {
        while let Some(oldest) = self.releases.front()
            && !cx.is_owed(oldest)
        {
            ended.extend(self.releases.pop_front());
        }
        self.is_logged &= !self.is_empty();
    }

    /// Returns the next release to send, if one may be sent now. At most `window`
    /// commands may be unanswered. Half of that number is left to new requests.
    pub(crate) fn next(
        &mut self,
        cx: &Cx<'_>,
        window: usize,
        ended: &mut Vec<Arc<Request>>,
    ) -> Option<Arc<Request>> {
        let limit = self.limit.unwrap_or(usize::MAX).min(window / 2).max(1);
        if self.in_flight >= limit || self.retry_at.is_some_and(|at| cx.now.monotonic < at) {
            return None;
        }
        while let Some(next) = self.releases.pop_front() {
            if cx.is_owed(&next) {
                self.in_flight += 1;
                return Some(next);
            }
            ended.push(next);
        }
        None
    }

    /// Returns the time at which the pause after an error reply is over. Returns `None` if there
    /// was no pause, if no release is kept, or if a release is unanswered.
    pub(crate) fn next_send(&self) -> Option<Tick> {
        self.retry_at
            .filter(|_| self.in_flight == 0 && !self.is_empty())
    }

    /// Notes the success of a release that [`next`](Self::next) returned.
    pub(crate) fn succeeded(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.limit = self.limit.map(|limit| limit.saturating_add(1));
        self.failures = 0;
        self.retry_at = None;
    }

    /// Notes that a release was answered with an error. Begins a pause if none is under way.
    /// `was_owed` is set if [`next`](Self::next) returned the release.
    pub(crate) fn failed(&mut self, was_owed: bool, now: Tick, random: u64) {
        if was_owed {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        self.limit = Some(1);
        if self.retry_at.is_none_or(|at| at <= now) {
            self.retry_at = Some(now + Self::PAUSE.delay(self.failures, random));
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// Forgets what the replies on the last connection have shown.
    pub(crate) fn disconnect(&mut self) {
        *self = Self {
            releases: mem::take(&mut self.releases),
            is_logged: self.is_logged,
            ..Self::default()
        };
    }
}
