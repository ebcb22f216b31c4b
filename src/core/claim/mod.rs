//! A claim on a lock: what masters may have because of it, whether the lock is held, and what to
//! send next.
//!
//! Nothing here reads a clock, holds a mutex or sends anything. The driver locks the claim, calls
//! the method for what has happened, posts the [`Command`] that the method returns, unlocks, and
//! carries out what the [`ClaimStep`] has left to do. Votes are counted elsewhere, in a round that
//! is only read here.
//!
//! [`Command`]: crate::core::protocol::command::Command

use std::{
    mem,
    time::{Duration, Instant},
};

use crate::core::{
    ballot::Ballot,
    protocol::{command::Holding, identity::Identity, name::LockId},
    time::{
        lease::{Drift, Lease, Ttl},
        renewal::RenewalPlan,
    },
    view::lock_state::{LockState, LostReason},
    vote::{
        Slot,
        master_set::MasterSet,
        quorum::{Outcome, Quorum},
        round::Round,
    },
};

pub(crate) mod ask;
mod held;
pub(crate) mod leave;
mod levels;

use levels::Levels;

/// A round whose votes are counted elsewhere, perhaps by another thread.
pub(crate) trait ReadRound: Clone {
    fn read<T>(&self, look: impl FnOnce(&Round) -> T) -> T;

    /// Opens the round that comes after this one.
    fn open_next(&self, round: Round) -> Self;
}

/// The part of a claim that never changes.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) lock_id: LockId,
    pub(crate) ttl: Ttl,
    pub(crate) drift: Drift,
    pub(crate) quorum: Quorum,
}

/// A step of a claim: its time, and what it leaves to do after the unlock, because that may run
/// code of the program.
#[derive(Debug)]
pub(crate) struct ClaimStep<'a, R> {
    pub(crate) terms: &'a Terms,
    /// The time on the clock that leases use.
    pub(crate) now: Instant,
    /// The time on the clock that timers and the expiries of keys use. Unlike the other clock, it
    /// does not jump forward with the wall clock.
    pub(crate) monotonic: Instant,
    /// A change to announce.
    pub(crate) notice: Option<Notice<R>>,
    /// A round that is no longer the newest. Dropping it drops wakers.
    pub(crate) retired: Option<R>,
}

/// A change of a lock that was won.
#[derive(Debug)]
pub(crate) enum Notice<R> {
    /// A renewal or an extension has failed. The lock is still valid for this time.
    InDoubt {
        remaining: Duration,
        round: R,
    },
    /// The lock has no guard any more, and stays on the masters for its minimum time.
    Left,
    /// The lock was lost, perhaps because this process did not run for a while.
    Lost {
        reason: LostReason,
        stalled: Option<Duration>,
    },
    Released,
    /// A majority has confirmed a renewal or an extension. The lock may have been in doubt before.
    Renewed {
        validity: Duration,
        was_in_doubt: bool,
    },
}

/// The state of a claim.
#[derive(Debug)]
pub(crate) struct ClaimState<R> {
    traces: Traces,
    /// The newest round: the acquisition, or the last extension.
    pub(crate) newest: R,
    /// The number of rounds in which this claim has asked for the lock.
    pub(crate) rounds: u32,
    pub(crate) levels: Levels,
    pub(crate) lease: Lease,
    /// The time that was left of the lease when the lock was won or last extended.
    pub(crate) validity: Duration,
    phase: Phase,
}

/// The traces of a claim on the masters: what they may have because of it.
#[derive(Debug)]
struct Traces {
    /// The identity of the newest attempt. A release with this identity takes back this attempt and
    /// all earlier ones.
    by: Identity,
    /// `None` if the lock is not fenced.
    ballot: Option<Ballot>,
    /// The slot that was won, or that the first of the masters has granted.
    slot: Slot,
    /// The instant on the monotonic clock at which everything that the claim may have written has
    /// expired. After this instant, no release is needed.
    until: Instant,
    /// The masters that may have the key or the ticket because of a heal, or because of a round
    /// before the newest one.
    may_keep: MasterSet,
}

/// The phase of a claim. A claim never goes back to an earlier one.
///
/// A lock that is in doubt is held. It is the newest round that says so, and rounds fail without
/// telling the claim.
#[derive(Debug)]
enum Phase {
    /// A round asks for the lock. The round may be won, but the caller has not seen it.
    Asking {
        /// The masters that the round has not asked yet.
        unasked: MasterSet,
    },
    Held(Held),
    Lost {
        reason: LostReason,
        /// The time for which the renewer did not run before the loss.
        stalled: Option<Duration>,
    },
    /// The release was posted, or the lock was left in place.
    Released,
}

/// The part of a claim that only a held lock has.
#[derive(Debug, Default)]
struct Held {
    /// `true` if an extension before the newest round failed, and none has succeeded since.
    in_doubt: bool,
    plan: Option<RenewalPlan>,
    /// The time when the renewer looks at this claim next. `None` if the renewer does not.
    next_look: Option<Instant>,
    /// The instant on the monotonic clock until which the lock stays on the masters, even if all
    /// guards are dropped before.
    stays_until: Option<Instant>,
}

impl<R: ReadRound> ClaimState<R> {
    /// Returns the state of the lock, and notes a loss by expiry.
    pub(crate) fn look(&mut self, step: &mut ClaimStep<'_, R>) -> LockState {
        if let Phase::Held(held) = &self.phase
            && !self.lease.is_valid(step.now)
        {
            let (reason, stalled) = held.end(self.lease, step.now);
            self.lose(reason, stalled, step);
        }
        match &self.phase {
            Phase::Held(held) if held.in_doubt || has_failed(&self.newest) => LockState::InDoubt,
            Phase::Held(_) => LockState::Held,
            Phase::Lost { reason, .. } => LockState::Lost(*reason),
            // No guard can ask, but another task of the owner may, before it reenters.
            Phase::Asking { .. } | Phase::Released => LockState::Lost(LostReason::Expired),
        }
    }

    /// Notes that a majority of masters say that the lock belongs to another client or to no one.
    /// If the lease has expired, masters may say the same, but the reason is the expiry.
    pub(crate) fn disowned(&mut self, step: &mut ClaimStep<'_, R>) {
        if self.held_at(step).is_some() {
            self.lose(LostReason::Disowned, None, step);
        }
    }

    /// Notes that nothing renews the lock any more, and nothing notices the end of its lease.
    pub(crate) fn ended(&mut self, step: &mut ClaimStep<'_, R>) {
        if self.held_at(step).is_some() {
            self.lose(LostReason::Ended, None, step);
        }
    }

    /// Takes back that this process did not run for a while before the loss.
    pub(crate) fn was_not_stalled(&mut self) {
        if let Phase::Lost { stalled, .. } = &mut self.phase {
            *stalled = None;
        }
    }

    pub(crate) fn fencing_token(&self) -> Option<u64> {
        Some(self.traces.ballot.as_ref()?.candidate)
    }

    pub(crate) fn slot(&self) -> Slot {
        self.traces.slot
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held(_))
    }

    pub(crate) fn stalled(&self) -> Option<Duration> {
        match self.phase {
            Phase::Lost { stalled, .. } => stalled,
            Phase::Asking { .. } | Phase::Held(_) | Phase::Released => None,
        }
    }

    fn held_at(&mut self, step: &mut ClaimStep<'_, R>) -> Option<&mut Held> {
        self.look(step);
        match &mut self.phase {
            Phase::Held(held) => Some(held),
            Phase::Asking { .. } | Phase::Lost { .. } | Phase::Released => None,
        }
    }

    fn lose(&mut self, reason: LostReason, stalled: Option<Duration>, step: &mut ClaimStep<'_, R>) {
        self.phase = Phase::Lost { reason, stalled };
        step.notice = Some(Notice::Lost { reason, stalled });
    }

    /// Opens a round, and makes it the newest one. Masters may keep what the old one has asked for.
    fn open(&mut self, round: Round, step: &mut ClaimStep<'_, R>) {
        self.traces.may_keep |= self.newest.read(Round::may_keep);
        let round = self.newest.open_next(round);
        step.retired = Some(mem::replace(&mut self.newest, round));
    }

    /// Returns what commands to masters say about this claim.
    pub(crate) fn holding(&self) -> Holding {
        Holding {
            by: self.traces.by.clone(),
            depth: self.levels.depth(),
            access: self.levels.access(),
            slot: self.traces.slot,
            ballot: self.traces.ballot.clone(),
        }
    }

    fn was_won(&self) -> bool {
        match self.phase {
            Phase::Asking { .. } => self.newest.read(Round::outcome) == Outcome::Won,
            Phase::Held(_) | Phase::Lost { .. } | Phase::Released => true,
        }
    }
}

impl Held {
    /// Returns why the lock ends with `lease`. Also returns how late the renewer is at `now`, if it
    /// has missed a retry. The renewer does nothing but wait for the time, so the runtime has not
    /// run.
    fn end(&self, lease: Lease, now: Instant) -> (LostReason, Option<Duration>) {
        let Some(plan) = self.plan else {
            return (LostReason::Expired, None);
        };
        if plan.due(lease).is_none() {
            return (LostReason::RenewalLimit, None);
        }
        let late = self.next_look.and_then(|at| now.checked_duration_since(at));
        (
            LostReason::Expired,
            late.filter(|late| *late >= plan.retry()),
        )
    }
}

impl<'a, R> ClaimStep<'a, R> {
    pub(crate) fn new(terms: &'a Terms, now: Instant, monotonic: Instant) -> Self {
        Self {
            terms,
            now,
            monotonic,
            notice: None,
            retired: None,
        }
    }

    fn lease(&self, ttl: Ttl) -> Lease {
        Lease::new(self.now, ttl, self.terms.drift)
    }

    /// Returns the expiry of a key that is written now with `ttl`, on the monotonic clock.
    fn expiry(&self, ttl: Ttl) -> Instant {
        let expiry = self.monotonic.checked_add(ttl.duration());
        expiry.unwrap_or(self.monotonic)
    }
}

impl Traces {
    fn last_until(&mut self, until: Instant) {
        self.until = self.until.max(until);
    }
}

/// Returns whether the round can no longer win: there is no majority, or it came too late.
fn has_failed(round: &impl ReadRound) -> bool {
    matches!(round.read(Round::outcome), Outcome::Lost | Outcome::TooLate)
}

#[cfg(test)]
mod tests;
