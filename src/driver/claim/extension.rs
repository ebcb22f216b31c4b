//! Extension and renewal of a lock that was won.

use std::{
    mem,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tracing::{debug_span, field};

use super::{
    Claim, Level,
    announcement::{LockEvent, Locked},
    expiry_of,
    live_round::LiveRound,
};
use crate::{
    core::{
        config::error::ConfigError,
        kind::command::{Command, Verb},
        time::{
            lease::{Lease, Ttl},
            renewal::{Renewal, RenewalPlan},
        },
        view::lock_state::{LockState, LostReason},
        vote::{
            effect::Effect,
            master_set::MasterSet,
            quorum::Vote,
            round::{Outcome, Round},
        },
    },
    driver::{observe::span::LockSpan, renew::renewer::Renew, time::clock},
    log,
    master::CountVotes,
};

/// The reason why a lock was not extended.
#[derive(Debug)]
pub(crate) enum NotExtended {
    Config(ConfigError),
    /// The validity had ended.
    Expired {
        since: Duration,
    },
    /// A majority of masters say that another client holds the lock, or that no one holds it.
    Lost(Arc<LiveRound>),
    /// No majority confirmed.
    NoQuorum {
        remaining: Duration,
        round: Arc<LiveRound>,
    },
    /// A majority confirmed after the validity had ended.
    TooSlow(Arc<LiveRound>),
}

/// An extension that is under way.
#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) round: Arc<LiveRound>,
    claim: Weak<Claim>,
    /// The lease of the claim if a majority confirms.
    lease: Lease,
    ttl: Ttl,
    /// `true` if the renewer made it.
    is_renewal: bool,
    /// The span of a renewal, until it is decided.
    span: Mutex<Option<Arc<LockSpan>>>,
}

impl CountVotes for Arc<Extension> {
    /// Counts the vote, and carries out its consequences after the round is unlocked. Tasks that
    /// wait for the round are woken last, when the consequences are in effect.
    fn count(&self, master: usize, vote: Vote, now: Instant) {
        // A failure has no consequences, so the claim need not be locked.
        let is_answer = !matches!(vote, Vote::Fail(_));
        let (effect, is_decided) = self.round.cast(master, vote, now, |round, before| {
            let effect = is_answer.then(|| Effect::of_vote(round, before, master));
            (effect, round.was_decided_after(before))
        });
        if let Some(effect) = effect
            && let Some(claim) = self.claim.upgrade()
        {
            claim.apply(effect, self);
        }
        self.round.wake();
        if is_decided && self.is_renewal {
            let is_won = self.round.read(Round::outcome) == Outcome::Won;
            let metrics = self.round.metrics();
            metrics.record(|metrics| metrics.renewed(is_won));
            self.end_span();
        }
    }
}

impl Extension {
    /// Opens the span of a renewal.
    fn open_span(&self, claim: &Claim) {
        let Some(hold) = claim.hold_span() else {
            return;
        };
        let name = claim.name();
        let span = LockSpan::open(
            || debug_span!(target: log::LOCK, parent: hold.get(), "renew", %name, outcome = field::Empty),
        );
        *self.span.lock() = span;
        if !self.round.is_pending() {
            self.end_span();
        }
    }

    /// Ends the span of a renewal that was decided.
    fn end_span(&self) {
        let span = self.span.lock().take();
        if let Some(span) = span {
            let outcome = self.round.read(Round::outcome);
            let is_won = outcome == Outcome::Won;
            span.record("outcome", if is_won { "confirmed" } else { "failed" });
        }
    }
}

/// A counter of the votes on a heal. It notes the masters on which the key was put back.
#[derive(Debug)]
struct HealVotes(Arc<LiveRound>);

impl CountVotes for HealVotes {
    fn count(&self, master: usize, vote: Vote, _now: Instant) {
        if vote == Vote::Grant {
            self.0.healed(master);
        }
    }
}

impl Claim {
    pub(crate) async fn extend(self: &Arc<Self>, ttl: Duration) -> Result<(), NotExtended> {
        let config = self.context.masters.config();
        let ttl = config.ttl(ttl).map_err(NotExtended::Config)?;
        let extension = {
            let now = clock::now();
            let state = self.held_at(self.lock(), now)?;
            self.post_extension(state, ttl, now, false)
        };
        self.extended(&extension).await
    }

    /// Adds a level, and posts an extension that sets the new depth on the masters. Returns `None`
    /// if the lock is no longer held.
    pub(crate) fn reenter(self: &Arc<Self>, ttl: Ttl) -> Option<(Level, Arc<Extension>)> {
        let now = clock::now();
        let mut state = self.held_at(self.lock(), now).ok()?;
        if state.release.is_some() {
            return None;
        }
        state.depth = state.depth.saturating_add(1);
        let level = Level::new(self.clone());
        Some((level, self.post_extension(state, ttl, now, false)))
    }

    /// Waits for the outcome of an extension.
    pub(crate) async fn extended(&self, extension: &Extension) -> Result<(), NotExtended> {
        let round = &extension.round;
        match round.decided().await {
            Outcome::Won => {
                let now = clock::now();
                // The task that counted the deciding vote may not have applied its effect yet.
                self.renewed(extension.lease);
                self.held_at(self.lock(), now).map(|_| ())
            }
            Outcome::TooLate => Err(NotExtended::TooSlow(round.clone())),
            Outcome::Lost | Outcome::Pending => {
                // The missing votes decide whether the lock is lost or in doubt.
                self.settled(round).await;
                if round.read(Round::is_disowned) {
                    return Err(NotExtended::Lost(round.clone()));
                }
                if mutant!(ExtensionReleases) {
                    self.leave(false);
                }
                Err(NotExtended::NoQuorum {
                    remaining: self.remaining(),
                    round: round.clone(),
                })
            }
        }
    }

    /// Returns `state` if the lock is still held at `now`.
    fn held_at<'a>(&self, mut state: Locked<'a>, now: Instant) -> Result<Locked<'a>, NotExtended> {
        match self.state_at(&mut state, now) {
            LockState::Held | LockState::InDoubt => Ok(state),
            LockState::Lost(LostReason::Disowned) => Err(NotExtended::Lost(state.newest.clone())),
            LockState::Lost(LostReason::Expired | LostReason::RenewalLimit) => {
                let since = now.saturating_duration_since(state.lease.until());
                Err(NotExtended::Expired { since })
            }
        }
    }

    /// Asks all masters to extend the lock.
    fn post_extension(
        self: &Arc<Self>,
        mut state: Locked<'_>,
        ttl: Ttl,
        start: Instant,
        is_renewal: bool,
    ) -> Arc<Extension> {
        let masters = &self.context.masters;
        let lease = Lease::new(start, ttl, masters.config().drift);
        // A majority counts only if it is complete before the old lease ends. Between that end and
        // a later majority, another client may have held the lock.
        let limit = state.lease.until().min(lease.until());
        let round = Round::open(Verb::Extend, masters.count(), start, Some(limit));
        let extension = Arc::new(Extension {
            round: LiveRound::open(round, &masters.metrics),
            claim: Arc::downgrade(self),
            lease,
            ttl,
            is_renewal,
            span: Mutex::new(None),
        });
        state.keep_newest();
        state.was_extended = true;
        if !state.in_doubt && state.newest.has_failed() {
            state.in_doubt = true;
            state.announcement.event = Some(LockEvent::InDoubt {
                remaining: state.lease.remaining(start),
                round: state.newest.clone(),
            });
        }
        let expiry = expiry_of(ttl, clock::monotonic());
        state.keys_until = state.keys_until.max(expiry);
        let retired = mem::replace(&mut state.newest, extension.round.clone());
        state.announcement.retired = Some(retired);
        let command = Command::extend(&self.resource, self.attempt(&state), ttl);
        state.post(MasterSet::ALL, command, extension.clone());
        extension
    }

    /// Carries out the consequences of a vote on an extension.
    fn apply(&self, effect: Effect, extension: &Extension) {
        match effect {
            Effect::None => {}
            Effect::Renewed { heal } => {
                self.renewed(extension.lease);
                self.heal(heal, extension);
            }
            Effect::Heal(masters) => self.heal(masters, extension),
            Effect::Disowned => self.disowned(),
        }
    }

    /// Notes that a majority has confirmed the extension that gives `lease`.
    fn renewed(&self, lease: Lease) {
        let now = clock::now();
        let mut state = self.lock();
        if let LockState::Lost(_) = self.state_at(&mut state, now) {
            return;
        }
        let was_in_doubt = mem::take(&mut state.in_doubt);
        let lease = if mutant!(ExtensionStartsLate) {
            Lease::new(now, self.ttl, self.context.masters.config().drift)
        } else {
            lease
        };
        if lease > state.lease {
            state.lease = lease;
            state.validity = lease.remaining(now);
            state.announcement.event = Some(LockEvent::Renewed {
                validity: state.validity,
                was_in_doubt,
            });
        }
    }

    /// Notes that a majority of masters say that the lock belongs to another client or to no one.
    fn disowned(&self) {
        let now = clock::now();
        let mut state = self.lock();
        // If the lease has expired, masters may say the same, but the reason is the expiry.
        if !matches!(self.state_at(&mut state, now), LockState::Lost(_)) {
            Self::lose(&mut state, LostReason::Disowned);
        }
    }

    /// Puts the key back on masters that lost it, after a majority has confirmed an extension. Does
    /// nothing if the lock was released or lost before the answer came.
    fn heal(&self, masters: MasterSet, extension: &Extension) {
        if masters.is_empty() {
            return;
        }
        let now = clock::now();
        let mut state = self.lock();
        let is_lost = matches!(self.state_at(&mut state, now), LockState::Lost(_));
        if state.release.is_some() || is_lost && !mutant!(HealsLate) {
            return;
        }
        let expiry = expiry_of(extension.ttl, clock::monotonic());
        state.keys_until = state.keys_until.max(expiry);
        state.may_hold |= masters;
        let votes = HealVotes(extension.round.clone());
        let command = Command::heal(&self.resource, self.attempt(&state), extension.ttl);
        state.post(masters, command, votes);
    }

    /// Begins the hold after the lock was won or reentered, and starts to renew the lock. If the
    /// lock is renewed already, the later of the two limits counts.
    pub(crate) fn hold(self: &Arc<Self>, renewal: Renewal) {
        let masters = &self.context.masters;
        let retry = masters.node_timeout().max(self.ttl.duration() / 20);
        let mut hold = self.begin_hold(); // dropped after the state, if it is not needed
        let mut state = self.lock();
        if state.lost.is_none() && hold.is_some() {
            state.hold = hold.take();
        }
        let start = state.newest.read(Round::start);
        // This lease has the TTL of the lock. An extension by hand may have had another TTL.
        let lease = Lease::new(start, self.ttl, masters.config().drift);
        let Some(mut plan) = RenewalPlan::new(start, lease, retry, renewal) else {
            return;
        };
        if let Some(before) = state.renewal {
            plan = before.or_longer(plan);
        }
        let renewer = &self.context.renewer;
        if state.timer.is_none() && renewer.is_crowded() {
            plan = plan.spread(clock::random_u64());
        }
        state.renewal = Some(plan);
        if state.timer.is_some() {
            return;
        }
        if let Some(due) = plan.due(state.lease) {
            let claim = Arc::downgrade(self) as Weak<dyn Renew>;
            state.timer = Some(renewer.add(due, claim));
            state.next_look = Some(due);
        }
    }

    /// Stops the renewal. Without another extension, the lock ends with its present lease.
    pub(crate) fn stop_renewing(&self) {
        let mut state = self.lock();
        state.renewal = None;
        if let Some(timer) = state.timer.take() {
            self.context.renewer.remove(timer);
        }
    }
}

impl Renew for Claim {
    fn renew(self: Arc<Self>, now: Instant) -> (Option<Instant>, Option<Arc<LiveRound>>) {
        let mut state = self.lock();
        let Some(plan) = state.renewal.filter(|_| state.release.is_none()) else {
            return (None, None);
        };
        if let LockState::Lost(_) = self.state_at(&mut state, now) {
            return (None, None);
        }
        let due = plan.due(state.lease).filter(|_| !plan.is_over(now));
        let Some(due) = due else {
            // The timer ends here. If the lock is reentered, another timer may start.
            (state.timer, state.next_look) = (None, None);
            return (None, None);
        };
        if now < due {
            state.next_look = Some(due);
            return (Some(due), None);
        }
        let again = Some(plan.look_again(now));
        state.next_look = again;
        if state.newest.is_pending() {
            return (again, None);
        }
        state.renewal = Some(plan.after_renewal());
        let extension = self.post_extension(state, self.ttl, now, true);
        extension.open_span(&self);
        (again, Some(extension.round.clone()))
    }
}
