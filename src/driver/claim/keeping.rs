//! How a lock that was won is kept, and how it is lost.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Claim, Level, Locked, end_of};
use crate::{
    core::{
        command::{Action, Command, Verb},
        lease::{Lease, Ttl},
        lock_state::{LockState, LostReason},
        renewal::{Renewal, RenewalPlan},
        round::{Outcome, Round},
    },
    driver::clock,
    driver::live_round::{Extends, LiveRound},
    driver::select::first_of,
    error::ExtendError,
};

impl Claim {
    pub(crate) async fn extend(self: &Arc<Self>, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = self.engine.config().ttl(ttl)?;
        let extension = {
            let now = clock::now();
            self.held_until(self.lock(), now)
                .map(|state| self.post_extension(state, ttl, now))?
        };
        self.extended(&extension).await
    }

    /// Whether the lock can be acquired once more by its owner.
    pub(crate) fn can_reenter(&self) -> bool {
        let now = clock::now();
        let mut state = self.lock();
        state.release.is_none() && !matches!(self.look(&mut state, now), LockState::Lost(_))
    }

    /// One more level, which takes a round like any extension. `None` when the lock is not held any more.
    pub(crate) fn reenter(self: &Arc<Self>, ttl: Ttl) -> Option<(Level, Arc<LiveRound>)> {
        let now = clock::now();
        let mut state = self.held_until(self.lock(), now).ok()?;
        if state.release.is_some() {
            return None;
        }
        state.depth = state.depth.saturating_add(1);
        let held = Level::new(self.clone());
        Some((held, self.post_extension(state, ttl, now)))
    }

    /// What came of an extension.
    pub(crate) async fn extended(&self, extension: &Arc<LiveRound>) -> Result<(), ExtendError> {
        match extension.decided().await {
            Outcome::Won => {
                let now = clock::now();
                self.renewed(extension);
                self.held_until(self.lock(), now).map(|_| ())
            }
            Outcome::Lost | Outcome::Pending => Err(self.extension_failed(extension).await),
            Outcome::TooLate => Err(ExtendError::TooSlow {
                name: self.name().clone(),
                votes: self.engine.votes(extension),
            }),
        }
    }

    /// The state of a lock that is still held at `now`.
    fn held_until<'a>(
        &self,
        mut state: Locked<'a>,
        now: Instant,
    ) -> Result<Locked<'a>, ExtendError> {
        let name = || self.name().clone();
        match self.look(&mut state, now) {
            LockState::Held | LockState::InDoubt => Ok(state),
            LockState::Lost(LostReason::Disowned) => Err(ExtendError::Lost {
                name: name(),
                votes: self.engine.votes(&state.newest),
            }),
            LockState::Lost(LostReason::Expired | LostReason::RenewalLimit) => {
                Err(ExtendError::Expired {
                    name: name(),
                    since: now.saturating_duration_since(state.lease.until()),
                })
            }
        }
    }

    async fn extension_failed(&self, extension: &LiveRound) -> ExtendError {
        // Whether it is lost or only unconfirmed may hang on masters that have not spoken yet.
        extension.settled().await;
        let name = self.name().clone();
        let votes = self.engine.votes(extension);
        if extension.read(Round::is_disowned) {
            return ExtendError::Lost { name, votes };
        }
        ExtendError::NoQuorum {
            name,
            remaining: self.remaining(),
            votes,
        }
    }

    /// Asks all masters to extend the lock. Under the state's lock, so that a release is behind it on
    /// every wire, or it is not sent at all.
    fn post_extension(
        self: &Arc<Self>,
        mut state: Locked<'_>,
        ttl: Ttl,
        start: Instant,
    ) -> Arc<LiveRound> {
        let lease = Lease::new(start, ttl, self.engine.config().drift);
        // A majority counts only while the old validity lasts: after it, the lock may have been
        // somebody else's in between.
        let limit = state.lease.until().min(lease.until());
        let round = Round::open(Verb::Extend, self.engine.size(), start, Some(limit));
        let extension = LiveRound::of_extension(
            round,
            Extends {
                hold: Arc::downgrade(self),
                lease,
                ttl,
            },
        );
        let may_keep = state.newest.read(Round::may_keep);
        state.may_hold |= may_keep;
        state.in_doubt |= state.newest.has_failed();
        state.keys_until = state.keys_until.max(end_of(ttl));
        state.newest = extension.clone();
        let action = Action::Extend {
            by: state.identity.clone(),
            ttl,
            depth: state.depth,
        };
        let command = Command::new(&self.resource, action);
        let ask = self.engine.ask(command, extension.clone());
        self.engine.post(&ask);
        extension
    }

    /// A majority has confirmed an extension.
    pub(crate) fn renewed(&self, extension: &LiveRound) {
        let Some(lease) = extension.extended_to() else {
            return;
        };
        let now = clock::now();
        let mut state = self.lock();
        if let LockState::Lost(_) = self.look(&mut state, now) {
            return;
        }
        state.in_doubt = false;
        if lease > state.lease {
            state.lease = lease;
            state.validity = lease.remaining(now);
        }
    }

    /// A majority of masters say that the lock is not ours.
    pub(crate) fn disowned(&self) {
        let now = clock::now();
        let mut state = self.lock();
        // Keys that have expired are not ours either: then that is the reason.
        if !matches!(self.look(&mut state, now), LockState::Lost(_)) {
            Self::lose(&mut state, LostReason::Disowned);
        }
    }

    /// Has the renewer keep the lock until `max_hold` after it was last asked for, or for longer if it does so
    /// already.
    pub(crate) fn start_renewing(self: &Arc<Self>, renewal: Renewal) {
        let config = self.engine.config();
        let retry = self.engine.node_timeout().max(self.ttl.duration() / 20);
        let mut state = self.state.lock();
        let start = state.newest.read(Round::start);
        // Just won, or entered: this is what the lease is without any extension by hand.
        let lease = Lease::new(start, self.ttl, config.drift);
        let Some(mut plan) = RenewalPlan::new(start, lease, retry, renewal) else {
            return;
        };
        if let Some(before) = state.renewal {
            plan = before.or_longer(plan);
        }
        state.renewal = Some(plan);
        if state.timer_key.is_some() {
            return;
        }
        if let Some(due) = plan.due(state.lease) {
            state.timer_key = Some(self.engine.renewer().watch(due, Arc::downgrade(self)));
        }
    }

    /// Lets the lock end with its present lease.
    pub(crate) fn stop_renewing(&self) {
        let mut state = self.state.lock();
        state.renewal = None;
        if let Some(timer_key) = state.timer_key.take() {
            self.engine.renewer().forget(timer_key);
        }
    }

    /// Renews the lock if it is time to. When to call again, if at all; a renewal that was posted is left in
    /// `posted`.
    pub(crate) fn renew(
        self: &Arc<Self>,
        now: Instant,
        posted: &mut Option<Arc<LiveRound>>,
    ) -> Option<Instant> {
        let mut state = self.lock();
        let renewal = state.renewal.filter(|_| state.release.is_none())?;
        if let LockState::Lost(_) = self.look(&mut state, now) {
            return None;
        }
        let Some(due) = renewal.due(state.lease) else {
            // Nobody looks again, unless the owner acquires it once more and for longer.
            state.timer_key = None;
            return None;
        };
        if now < due {
            return Some(due);
        }
        if !state.newest.is_pending() {
            *posted = Some(self.post_extension(state, self.ttl, now));
        }
        Some(renewal.look_again(now))
    }

    /// How the lock stands now.
    pub(crate) fn state(&self) -> LockState {
        let now = clock::now();
        self.look(&mut self.lock(), now)
    }

    /// Waits until the lock is lost.
    pub(crate) async fn lost(&self) -> LostReason {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable(); // first register, then look
            if let LockState::Lost(reason) = self.state() {
                return reason;
            }
            // A timer of our own, which fires even when every renewal hangs.
            let end = pin!(clock::sleep_until(self.lease_end()));
            first_of(changed, end).await;
        }
    }

    fn lease_end(&self) -> Instant {
        self.state.lock().lease.until()
    }

    pub(super) fn look(&self, state: &mut Locked<'_>, now: Instant) -> LockState {
        if let Some(reason) = state.lost {
            return LockState::Lost(reason);
        }
        if state.lease.is_valid(now) {
            return if state.in_doubt || state.newest.has_failed() {
                LockState::InDoubt
            } else {
                LockState::Held
            };
        }
        let is_over = state
            .renewal
            .is_some_and(|renewal| renewal.due(state.lease).is_none());
        let reason = if is_over {
            LostReason::RenewalLimit
        } else {
            LostReason::Expired
        };
        Self::lose(state, reason);
        LockState::Lost(reason)
    }

    fn lose(state: &mut Locked<'_>, reason: LostReason) {
        if state.lost.is_none() && state.release.is_none() {
            state.lost = Some(reason);
            state.announcement.lost = Some(reason);
        }
    }

    /// What is left of the validity: nothing once the lock is lost.
    pub(crate) fn remaining(&self) -> Duration {
        let now = clock::now();
        let mut state = self.lock();
        match self.look(&mut state, now) {
            LockState::Held | LockState::InDoubt => state.lease.remaining(now),
            LockState::Lost(_) => Duration::ZERO,
        }
    }
}
