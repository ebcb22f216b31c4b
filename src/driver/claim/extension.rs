//! Extends and renews a lock that was won, and puts its key back on masters that lack the key or
//! the slot that was won.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tracing::Span;

use super::{Claim, Locked, ask::LockRequest, level::Level, owned_lock::OwnedLock};
use crate::{
    clock,
    core::{
        claim::{ClaimState, rounds::Effect},
        error::{AcquireError, ExtendError},
        protocol::{command::Command, name::LockId},
        time::{
            lease::Ttl,
            tick::{LeaseTick, Tick},
        },
        view::lock_state::{LockState, LostReason},
        vote::{MasterSet, SlotVote, Verb, quorum::Outcome, round::Round},
    },
    driver::{
        live_round::LiveRound,
        observe::metrics::{CONFIRMED, CONFIRMED_LATE, FAILED},
        renewer::Renew,
    },
    master::VoteCounter,
};

/// An extension that is under way.
#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) round: Arc<LiveRound>,
    claim: Weak<Claim>,
    ttl: Ttl,
    /// `true` if the renewer made this extension.
    is_renewal: bool,
    /// The span of a renewal, if a subscriber wants to see it. `None` once the renewal is
    /// confirmed.
    span: Mutex<Option<Span>>,
}

impl VoteCounter for Arc<Extension> {
    /// Counts the vote, and carries out its consequences after the round is unlocked.
    fn count(&self, master: usize, vote: SlotVote, now: Tick) {
        // Other failures than the deciding one have no consequences, so the claim need not be
        // locked.
        let is_answer = vote.vote().is_answer();
        let (effect, outcome) = self
            .round
            .count_and_look(master, vote, now, |round, before| {
                let effect = Effect::of_vote(round, before, master);
                let outcome = outcome_word(before, round.outcome());
                let counts = |effect: &Effect| is_answer || *effect == Effect::Failed;
                (effect.filter(counts), outcome)
            });
        if let Some(effect) = effect
            && let Some(claim) = self.claim.upgrade()
        {
            claim.apply(effect, self);
        }
        if let Some(outcome) = outcome.filter(|_| self.is_renewal) {
            self.round.observer().renewal_decided(outcome);
            self.record(outcome);
        }
    }

    fn wake(&self) {
        self.round.wake();
    }
}

impl Extension {
    /// Opens the span of a renewal.
    fn open_span(&self, claim: &Claim) {
        let observer = self.round.observer();
        let span = observer.renewal(claim.name(), &claim.hold_span());
        *self.span.lock() = span;
        let outcome = self.round.read(Round::outcome);
        if let Some(outcome) = outcome_word(Outcome::Pending, outcome) {
            self.record(outcome);
        }
    }

    /// Records the outcome of a renewal in its span. Ends the span, unless late answers may still
    /// confirm the renewal.
    fn record(&self, outcome: &'static str) {
        let mut kept = self.span.lock();
        let span = if outcome == FAILED {
            kept.clone()
        } else {
            kept.take()
        };
        drop(kept); // a subscriber runs after the unlock
        if let Some(span) = span {
            span.record("outcome", outcome);
        }
    }
}

/// Returns the word for the outcome of a renewal, if a vote has changed the outcome.
fn outcome_word(before: Outcome, after: Outcome) -> Option<&'static str> {
    match (before, after) {
        (Outcome::Pending, Outcome::Won) => Some(CONFIRMED),
        (Outcome::Pending, Outcome::NoMajority | Outcome::TooLate) => Some(FAILED),
        (Outcome::NoMajority, Outcome::Won) => Some(CONFIRMED_LATE),
        _ => None,
    }
}

impl Claim {
    /// Posts an extension, which takes effect even if no one waits for it. Returns `None` if there
    /// is nothing to wait for.
    pub(crate) fn extend(
        self: &Arc<Self>,
        ttl: Duration,
    ) -> Result<Option<Arc<Extension>>, ExtendError> {
        let config = &self.context.config;
        let ttl = config.ttl(ttl)?;
        if self.context.is_forked() {
            return Err(ExtendError::NoQuorum {
                name: self.name().clone(),
                remaining: Duration::ZERO,
                votes: self.votes(&self.context.closed_round(Verb::Extend)),
            });
        }
        let mut locked = self.lock();
        match locked.take_step(|claim, step| claim.extend(step, ttl)) {
            Some(command) => Ok(Some(self.post_extension(locked, command, ttl, false))),
            None => ensure_held(locked).map(|()| None),
        }
    }

    /// Adds a level, and posts an extension that sets the new depth on the masters. Returns `None`
    /// if the lock is no longer held.
    pub(crate) fn reenter(
        self: &Arc<Self>,
        owned: Arc<OwnedLock>,
        request: &LockRequest,
    ) -> Result<Option<(Level, Arc<Extension>)>, AcquireError> {
        let LockRequest { access, ttl, .. } = *request;
        let mut locked = self.lock();
        let command = locked.take_step(|claim, step| claim.reenter(step, ttl, access))?;
        Ok(command.map(|command| {
            let level = Level::new(self.clone(), access, Some(owned));
            (level, self.post_extension(locked, command, ttl, false))
        }))
    }

    /// Lets other clients share a level that has excluded them. If no other level excludes them,
    /// posts an extension that tells the masters to share the lock.
    pub(super) fn downgrade(self: &Arc<Self>) {
        if self.context.is_forked() {
            return;
        }
        let mut locked = self.lock();
        if let Some(command) = locked.take_step(ClaimState::downgrade) {
            self.post_extension(locked, command, self.terms.ttl, false);
        }
    }

    /// Waits for the outcome of an extension.
    pub(crate) async fn confirm_extension(&self, extension: &Extension) -> Result<(), ExtendError> {
        let round = &extension.round;
        let name = || self.name().clone();
        let mut outcome = round.decided().await;
        if outcome == Outcome::NoMajority {
            // The missing votes decide whether the lock is lost or in doubt. Meanwhile, late
            // answers may confirm the extension.
            self.context.in_time(round.settled()).await;
            outcome = round.read(Round::outcome);
        }
        // The task that counted the last vote may not have applied the effect of that vote yet.
        let (start, ttl) = (round.read(Round::start), extension.ttl);
        match outcome {
            Outcome::Won => {
                let mut locked = self.lock();
                locked.take_step(|claim, step| claim.confirmed(step, start, ttl));
                ensure_held(locked)
            }
            Outcome::TooLate => Err(ExtendError::TooSlow {
                name: name(),
                votes: self.votes(round),
            }),
            Outcome::NoMajority | Outcome::Pending => {
                if round.read(Round::is_disowned)
                    && !self.is_held_after(Effect::Disowned, start, ttl)
                {
                    return Err(ExtendError::Lost {
                        name: name(),
                        votes: self.votes(round),
                    });
                }
                Err(ExtendError::NoQuorum {
                    name: name(),
                    remaining: self.remaining(),
                    votes: self.votes(round),
                })
            }
        }
    }

    /// Applies the effect of an extension, and returns whether the lock is held then.
    fn is_held_after(&self, effect: Effect, start: LeaseTick, ttl: Ttl) -> bool {
        let mut locked = self.lock();
        locked.take_step(|claim, step| claim.apply(step, effect, start, ttl));
        locked.state().is_held()
    }

    /// Posts an extension. The newest round counts its votes.
    fn post_extension(
        self: &Arc<Self>,
        locked: Locked<'_>,
        command: Command,
        ttl: Ttl,
        is_renewal: bool,
    ) -> Arc<Extension> {
        let extension = Arc::new(Extension {
            round: locked.protected.newest.clone(),
            claim: Arc::downgrade(self),
            ttl,
            is_renewal,
            span: Mutex::default(),
        });
        locked.post(MasterSet::ALL, command, extension.clone());
        extension
    }

    /// Carries out the consequences of a vote on an extension.
    fn apply(self: &Arc<Self>, effect: Effect, extension: &Extension) {
        let (round, ttl) = (&extension.round, extension.ttl);
        let start = round.read(Round::start);
        let mut locked = self.lock();
        if effect == Effect::Failed {
            locked.retired = Some(round.clone());
        }
        let heal = locked.take_step(|claim, step| claim.apply(step, effect, start, ttl));
        if let Some((to, command)) = heal {
            locked.post(to, command, HealVoteCounter::new(round.clone(), self, ttl));
        }
    }

    /// Puts the key back on the masters in `lack`, if the lock is held.
    pub(super) fn heal(&self, lack: MasterSet, votes: HealVoteCounter) {
        let mut locked = self.lock();
        if let Some((to, command)) =
            locked.take_step(|claim, step| claim.heal(step, lack, votes.ttl))
        {
            locked.post(to, command, votes);
        }
    }
}

fn ensure_held(mut locked: Locked<'_>) -> Result<(), ExtendError> {
    let claim = locked.claim;
    let name = || claim.name().clone();
    match locked.take_step(ClaimState::look) {
        LockState::Held | LockState::InDoubt => Ok(()),
        LockState::Lost(LostReason::Disowned) => Err(ExtendError::Lost {
            name: name(),
            votes: claim.votes(&locked.protected.newest),
        }),
        LockState::Lost(LostReason::Expired | LostReason::RenewalLimit | LostReason::Ended) => {
            let until = locked.state().lease.until();
            Err(ExtendError::Expired {
                name: name(),
                since: locked.now.since(until),
            })
        }
    }
}

impl Renew for Claim {
    fn holds(&self, lock_id: &LockId) -> bool {
        self.terms.lock_id == *lock_id && !matches!(self.lock_state(), LockState::Lost(_))
    }

    fn renew(self: Arc<Self>) -> Option<Arc<LiveRound>> {
        let mut locked = self.lock();
        let random = clock::random_u64();
        let (next_look, command) = locked.take_step(|claim, step| claim.renew(step, random));
        self.stop_timer(&mut locked); // removes a newer timer, if the renewal has begun again
        if let Some(due) = next_look {
            self.start_timer(&mut locked, due);
        }
        let extension = self.post_extension(locked, command?, self.terms.ttl, true);
        extension.open_span(&self);
        Some(extension.round.clone())
    }
}

/// A counter of the votes on a heal, the command that puts the key back. Notes the votes in
/// `round`, which then shows the masters that have the key.
#[derive(Clone, Debug)]
pub(super) struct HealVoteCounter {
    round: Arc<LiveRound>,
    claim: Weak<Claim>,
    ttl: Ttl,
    /// How many more times a master is asked if it refuses.
    tries: u32,
}

impl HealVoteCounter {
    /// A master that refuses may grant the lock a moment later. A waiter that the extension has
    /// woken may have the key, or a holder that has won another slot may have this slot. Both soon
    /// give back what they have.
    const TRIES: u32 = 5;

    pub(super) fn new(round: Arc<LiveRound>, claim: &Arc<Claim>, ttl: Ttl) -> Self {
        Self {
            round,
            claim: Arc::downgrade(claim),
            ttl,
            tries: Self::TRIES,
        }
    }
}

impl VoteCounter for HealVoteCounter {
    fn count(&self, master: usize, vote: SlotVote, _now: Tick) {
        let (is_done, may_be_done) = (vote.vote().is_grant(), vote.vote().may_have_slot());
        self.round.note_heal(master, vote.into_vote());
        let Some(claim) = self.claim.upgrade().filter(|_| !is_done) else {
            return;
        };
        if may_be_done && self.tries > 0 {
            let tries = self.tries - 1;
            claim.heal(
                MasterSet::only(master),
                Self {
                    tries,
                    ..self.clone()
                },
            );
        } else if claim.lock().state().is_held() {
            let votes = claim.context.masters.votes(&self.round);
            let observer = self.round.observer();
            observer.not_put_back(claim.name(), &claim.hold_span(), &votes);
        }
    }
}
