//! Releases that a master must still get after their votes have been cast.

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use super::request::Request;
use crate::{
    clock,
    core::{time::tick::Tick, wait::pauses::Backoff},
};

/// The releases that are owed to one master, in the order in which they are sent. A release that
/// fails, or that has no reply when the connection breaks, moves to the end.
///
/// Releases are sent as fast as the master answers them. After an error reply, they are sent one at
/// a time, each after a pause, until one succeeds. A release is no longer owed once the key that it
/// would delete has expired.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    releases: VecDeque<Arc<Request>>,
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
    pub(crate) fn push(&mut self, release: Arc<Request>) -> bool {
        self.releases.push_back(release);
        self.releases.len() > Self::MOST && {
            self.releases.pop_front();
            !mem::replace(&mut self.is_logged, true)
        }
    }

    /// Returns when to call [`expire`](Self::expire), or `None` if there is no release.
    pub(crate) fn next_wake(&self, master: usize) -> Option<Tick> {
        let until = self.releases.front()?.votes_to.owed_until(master);
        Some(until.unwrap_or_else(clock::monotonic))
    }

    /// Drops the oldest releases, up to the first one that is still owed to `master` at `now`.
    pub(crate) fn expire(&mut self, master: usize, now: Tick) {
        while let Some(oldest) = self.releases.front()
            && !is_owed(oldest, master, now)
        {
            self.releases.pop_front();
        }
        self.is_logged &= !self.is_empty();
    }

    /// Returns the next release to send to `master`, if one may be sent now. At most `window`
    /// commands may be unanswered. Half of that number is left to new requests.
    pub(crate) fn next(&mut self, master: usize, now: Tick, window: usize) -> Option<Arc<Request>> {
        let limit = self.limit.unwrap_or(usize::MAX).min(window / 2).max(1);
        if self.in_flight >= limit || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        while let Some(next) = self.releases.pop_front() {
            if is_owed(&next, master, now) {
                self.in_flight += 1;
                return Some(next);
            }
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

/// Returns whether `release` is still owed to `master` at `now`.
pub(crate) fn is_owed(release: &Request, master: usize, now: Tick) -> bool {
    let until = release.votes_to.owed_until(master);
    until.is_some_and(|until| until > now)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{
        clock,
        core::{
            kind::Kind,
            protocol::command::fixture::command,
            vote::{SlotVote, Verb, Vote},
        },
        master::session::request::VoteCounter,
    };

    /// A release that is owed until the vote on its acquisition is cast.
    #[derive(Default)]
    struct OwedAtFirst(AtomicBool);

    impl VoteCounter for OwedAtFirst {
        fn count(&self, _: usize, _: SlotVote, _: Tick) {
            self.0.store(true, Ordering::Relaxed);
        }

        fn owed_until(&self, _: usize) -> Option<Tick> {
            let is_voted = self.0.load(Ordering::Relaxed);
            (!is_voted).then(|| clock::monotonic() + Duration::from_secs(60))
        }
    }

    /// The release was posted while another thread was about to cast the vote. A supervisor without
    /// a timer would keep the release until the master is back, and `close` would wait as long.
    #[test]
    fn a_release_that_is_no_longer_owed_is_given_up_at_once() {
        let now = clock::monotonic();
        let command = command(Kind::Mutex, Verb::Release, 1);
        let release = Arc::new(Request::new(command, now, OwedAtFirst::default()));
        let mut owed = Owed::default();
        let _ = owed.push(release.clone());
        assert!(owed.next_wake(0) > Some(now));
        release.votes_to.count(0, Vote::Grant.into(), now);
        let at = owed.next_wake(0).expect("a timer");
        assert!(at <= clock::monotonic());
        owed.expire(0, at);
        assert!(owed.is_empty());
    }
}
