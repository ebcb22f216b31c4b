//! The commands that wait to be sent, and when they have waited for too long.

use std::time::Instant;

use super::InFlight;
use crate::{
    core::vote::{Failure, Vote},
    master::{
        observer::MasterEvent,
        session::{owed::is_owed, request::Request},
    },
};

impl InFlight<'_> {
    /// Drops the oldest releases, up to the first one that is still owed at `now`. The releases
    /// after it stay, and get their votes in time. No reply could change this, so there is no need
    /// to judge the master first.
    pub(super) fn drop_releases(&mut self, now: Instant) {
        while let Some(release) = self.late.front()
            && !is_owed(release, self.master(), now)
            && let Some(release) = self.late.pop_front()
        {
            self.failed = self.failed.saturating_sub(1);
            self.fail_unsent(&release, now);
        }
        let (expired, must_log) = self.owed.expire(self.master(), now);
        drop(expired);
        if must_log {
            self.mailbox.observer().on(MasterEvent::ReleasesGivenUp);
        }
    }

    /// Gives up the requests that have waited for too long at `now`, except for owed releases.
    pub(super) fn sort_waiting(&mut self, now: Instant) {
        while let Some(release) = self.late.get(self.failed)
            && self.confirmed_by(release) <= now
        {
            self.fail_unsent(release, now);
            self.failed += 1;
        }
        while let Some(request) = self.waiting.front()
            && self.send_by(request) <= now
            && let Some(request) = self.waiting.pop_front()
        {
            if is_owed(&request, self.master(), now) {
                self.late.push_back(request);
            } else {
                self.fail_unsent(&request, now);
            }
        }
    }

    /// Returns when a waiting `request` is given up: one node timeout after its post. If the
    /// request was posted before the connection came into use, the time counts from that moment.
    pub(super) fn send_by(&self, request: &Request) -> Instant {
        request.posted.max(self.began) + self.liveness.timeout()
    }

    /// Returns when a late `release` gets a failed vote, because its caller waits. The release
    /// itself goes on waiting.
    pub(super) fn confirmed_by(&self, release: &Request) -> Instant {
        self.send_by(release) + self.config.connect_timeout
    }

    pub(super) fn fail(&self, request: &Request, failure: Failure, now: Instant) {
        self.mailbox.cast(request, Vote::Fail(failure), now);
    }

    /// Casts a failed vote on a request that was never sent and is not owed.
    pub(super) fn fail_unsent(&self, request: &Request, now: Instant) {
        let why = "not sent: too many commands are unanswered";
        self.fail(request, Failure::Unreachable(why.into()), now);
    }
}
