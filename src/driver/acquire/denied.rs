//! Attempts that did not end in a lock, and the deadline of a call that makes attempts.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use crate::{
    clock,
    core::{
        error::AcquireError,
        kind::Rights,
        reason::Reason,
        time::LeaseTick,
        vote::{MasterSet, Outcome, Round},
        wait::{pauses::Met, queued::Reach},
    },
    driver::{claim::ask::LockRequest, round_handle::RoundHandle},
};

/// An attempt that did not end in a lock.
pub(crate) struct Denied {
    pub(super) reason: Reason,
    /// The round that was not won. `None` if nothing was sent.
    pub(super) round: Option<RoundHandle>,
    /// The round after which masters tell the waiter about the next change of the lock.
    pub(super) watching: Option<RoundHandle>,
}

impl Denied {
    /// Returns why `round`, an acquisition, did not end in a lock. The masters say that the lock
    /// will be free in `free_in`.
    pub(super) fn by(round: RoundHandle, outcome: Outcome, free_in: Option<Duration>) -> Self {
        let elapsed = round.elapsed(clock::now());
        let reason = round.read(|round| Reason::of(round, outcome, free_in, elapsed));
        Self::new(reason, Some(round))
    }

    pub(super) fn new(reason: Reason, round: Option<RoundHandle>) -> Self {
        Self {
            reason,
            round,
            watching: None,
        }
    }

    /// Notes what this attempt at the lock of `request` has shown, and reports it to the observer.
    pub(super) fn note(&self, request: &LockRequest) {
        let (Some(round), reason) = (&self.round, &self.reason) else {
            return;
        };
        round.note_rights(Rights::of(request.lock_id.kind(), request.is_fenced));
        let observer = request.context.observer();
        if reason.is_unavailable() || matches!(reason, Reason::Denied { .. }) {
            let votes = || round.votes().to_string();
            observer.lacks_quorum(request.lock_id.name(), reason, votes);
        } else {
            observer.found_quorum();
        }
    }

    /// Returns whether this attempt reached a majority of masters, or `None` if that is not
    /// certain.
    pub(super) fn is_reached(&self) -> Option<bool> {
        let is_too_slow = matches!(self.reason, Reason::TooSlow { .. });
        (self.round.as_ref()?).read(|round| Reach::of(round, is_too_slow))
    }

    /// Returns the masters on which other clients hold or want the lock. A waiter asks one of these
    /// masters first.
    pub(super) fn wanted_by_others(&self) -> MasterSet {
        use Reason::{Quarantined, Queued, Split};
        match (&self.reason, &self.watching) {
            (_, Some(round)) => round.read(Round::held_by_others),
            (Split | Queued | Quarantined { .. }, None) => MasterSet::ALL,
            (_, None) => MasterSet::NONE,
        }
    }

    /// Returns the reason of this denial, and whether at least one master granted the lock.
    pub(super) fn met(&self) -> Met<'_> {
        let round = self.round.as_ref();
        let took_some = round.is_some_and(|round| !round.read(Round::granted).is_empty());
        (&self.reason, took_some)
    }

    pub(super) fn of_one_attempt(self, request: &LockRequest) -> AcquireError {
        let now = clock::now();
        let took = self.round.as_ref().map(|round| round.elapsed(now));
        self.error(request, (took.unwrap_or_default(), 1), false)
    }

    fn error(
        self,
        request: &LockRequest,
        waited: (Duration, u32),
        has_given_up: bool,
    ) -> AcquireError {
        let asked = Ok((request.lock_id.clone(), request.ttl));
        let votes = self.round.map(|round| round.votes());
        AcquireError::new(asked, self.reason, votes, waited, has_given_up)
    }
}

impl From<Reason> for Denied {
    /// Returns an attempt that sent nothing.
    fn from(reason: Reason) -> Self {
        Self::new(reason, None)
    }
}

/// The start and the end of a wait, and the attempts that failed meanwhile. The parts of a wait
/// share one deadline, so the error of the wait counts the attempts of all parts.
pub(in crate::driver) struct Deadline {
    start: LeaseTick,
    pub(super) end: Option<LeaseTick>,
    failures: AtomicU32,
    /// `true` once the wait was logged, because it took longer than a TTL.
    is_logged: AtomicBool,
}

impl Deadline {
    pub(in crate::driver) fn new(within: Option<Duration>) -> Self {
        let start = clock::now();
        Self {
            start,
            end: within.map(|within| start + within),
            failures: AtomicU32::new(0),
            is_logged: AtomicBool::new(false),
        }
    }

    /// Counts the attempt `denied`, which failed. Returns it as an error if the wait ends with this
    /// attempt. Otherwise, if the wait has taken longer than a TTL and was not logged yet, logs the
    /// wait.
    pub(super) fn note_failure(
        &self,
        request: &LockRequest,
        denied: Denied,
        is_last: bool,
    ) -> Result<Denied, Denied> {
        if is_last || denied.reason.is_final() {
            return Err(denied);
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        let waited = self.waited();
        if waited > request.ttl.duration() && !self.is_logged.swap(true, Ordering::Relaxed) {
            let (observer, name) = (request.context.observer(), request.lock_id.name());
            observer.waits(name, waited, &denied.reason);
        }
        Ok(denied)
    }

    fn waited(&self) -> Duration {
        clock::now().since(self.start)
    }

    pub(in crate::driver) fn cap(&self, at: LeaseTick) -> LeaseTick {
        self.end.map_or(at, |end| end.min(at))
    }

    pub(in crate::driver) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end <= clock::now())
    }

    /// Returns the time until which a caller waits for the permit to make an attempt. An attempt
    /// takes at most the time `attempt`. The last attempt begins at the deadline, and another task
    /// may have the permit then. So for the last attempt, the returned time is the deadline plus
    /// `attempt`. For an earlier attempt, the returned time is never after the deadline.
    pub(super) fn permit_by(&self, attempt: Duration, is_last: bool) -> LeaseTick {
        let end = self.queued_permit_by(attempt).filter(|_| is_last);
        end.unwrap_or_else(|| self.cap(clock::now() + attempt))
    }

    /// Returns the time until which a waiter in the queues waits for the permit to make a round.
    /// Returns `None` if the wait has no limit.
    pub(super) fn queued_permit_by(&self, attempt: Duration) -> Option<LeaseTick> {
        self.end.map(|end| end + attempt)
    }

    pub(super) fn error(&self, request: &LockRequest, last: Denied) -> AcquireError {
        let attempts = self.failures.load(Ordering::Relaxed).saturating_add(1);
        let has_given_up = self.end.is_some() && !last.reason.is_final();
        last.error(request, (self.waited(), attempts), has_given_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_attempt_waits_for_its_permit_beyond_the_deadline() {
        let deadline = Deadline::new(Some(Duration::ZERO));
        let (end, second) = (deadline.end.unwrap(), Duration::from_secs(1));
        assert_eq!(deadline.permit_by(second, false), end);
        assert_eq!(deadline.permit_by(second, true), end + second);
    }
}
