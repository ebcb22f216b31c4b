//! A claim on a lock: what it may have left on masters, whether the lock is held, and what to send
//! next.
//!
//! This module reads no clock, holds no mutex and sends nothing. The driver locks the mutex of the
//! claim, calls the method for the event, posts the [`Command`] that the method returns, and
//! unlocks the mutex. Then the driver announces the change that the [`ClaimStep`] names, if there
//! is one. Votes are counted elsewhere: a step only reads the newest round.

use std::time::Duration;

use crate::core::{
    kind::Access,
    protocol::{
        command::{Action, Command, Holding},
        name::LockId,
    },
    time::{
        lease::{Drift, Lease, Ttl},
        renewal::RenewalPlan,
        tick::{LeaseTick, Tick},
    },
    view::lock_state::{LockState, LostReason},
    vote::{
        MasterSet, Slot,
        quorum::{Outcome, Quorum},
        round::Round,
    },
};

pub(crate) mod rounds;
#[cfg(test)]
mod tests;

/// The part of a claim that never changes.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) lock_id: LockId,
    pub(crate) ttl: Ttl,
    pub(crate) drift: Drift,
    pub(crate) quorum: Quorum,
}

/// A step of a claim: what the step sees, and what the driver does after the step. The driver
/// announces a change after it has unlocked the mutex, because the announcement may run code of the
/// program.
#[derive(Debug)]
pub(crate) struct ClaimStep<'a> {
    pub(crate) terms: &'a Terms,
    /// The newest round: the acquisition, or the last extension.
    pub(crate) newest: &'a Round,
    pub(crate) now: LeaseTick,
    /// The time on the monotonic clock, by which the claim knows when its keys expire. Unlike the
    /// clock of leases, the monotonic clock does not jump forward with the wall clock.
    pub(crate) monotonic: Tick,
    /// The change that the driver announces, if there is one.
    pub(crate) notice: Option<Notice>,
    /// The round that the step opens, if it opens one. It is the newest round after this step. It
    /// is boxed, because most steps open none.
    pub(crate) opened: Option<Box<Round>>,
}

/// A change of a lock that was won.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A renewal or an extension has failed, and the next one begins or has begun before. The lock
    /// is still valid for the time `remaining`.
    InDoubt {
        remaining: Duration,
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
pub(crate) struct ClaimState {
    /// What the commands of this claim say to masters. A release with this identity takes back the
    /// newest attempt and all earlier ones. The depth is the number of guards, including guards
    /// whose rounds are not over. The slot is the slot that was won. Before that, it is the slot
    /// that the agreed master has granted.
    holding: Holding,
    /// The number of guards that exclude other holders.
    exclusive: u32,
    /// The instant on the monotonic clock at which everything that the claim may have written has
    /// expired. After this instant, no release is needed.
    keys_until: Tick,
    /// The masters that may have the key or the ticket because of a heal, or because of a round
    /// before the newest one.
    may_keep: MasterSet,
    /// The number of rounds in which this claim has asked for the lock.
    pub(crate) rounds: u32,
    pub(crate) lease: Lease,
    /// The time that was left of the lease when the lock was won or last extended.
    pub(crate) validity: Duration,
    phase: Phase,
}

/// The phase of a claim. A claim never goes back to an earlier phase.
///
/// A lock that is in doubt is in the phase `Held`. If the newest round has failed, this round shows
/// the doubt.
#[derive(Debug)]
enum Phase {
    /// A round asks for the lock. Even if the round was won, the caller has not seen the outcome
    /// yet.
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

/// The part of a claim that exists only while the lock is held.
#[derive(Debug, Default)]
struct Held {
    /// `true` if an extension before the newest round failed, and none has succeeded since.
    in_doubt: bool,
    /// The start of the last extension that a majority has confirmed.
    confirmed: Option<LeaseTick>,
    plan: Option<RenewalPlan>,
    /// The time when the renewer looks at this claim next. `None` if the renewer does not look at
    /// it.
    next_look: Option<LeaseTick>,
    /// The instant on the monotonic clock until which the lock stays on the masters, even if all
    /// guards are dropped earlier.
    stays_until: Option<Tick>,
}

impl ClaimState {
    /// Returns the state of the lock, and notes a loss by expiry.
    pub(crate) fn look(&mut self, step: &mut ClaimStep<'_>) -> LockState {
        if let Phase::Held(held) = &self.phase
            && !self.lease.is_valid(step.now)
        {
            let (reason, stalled) = held.end(self.lease, step.now);
            self.end(reason, stalled, step);
        }
        match &self.phase {
            Phase::Held(held) if held.in_doubt || has_failed(step.newest) => LockState::InDoubt,
            Phase::Held(_) => LockState::Held,
            Phase::Lost { reason, .. } => LockState::Lost(*reason),
            // Now there is no guard that could ask for the state. But another task of the owner may
            // ask for it before that task reenters the lock.
            Phase::Asking { .. } | Phase::Released => LockState::Lost(LostReason::Expired),
        }
    }

    /// Notes that a held lock is lost for this `reason`. If its lease has expired, the reason is
    /// the expiry, whatever masters say.
    pub(crate) fn lose(&mut self, step: &mut ClaimStep<'_>, reason: LostReason) {
        if self.held_at(step).is_some() {
            self.end(reason, None, step);
        }
    }

    /// Removes the level of one guard. If that was the last level, the lock is released or left in
    /// place.
    pub(crate) fn leave(&mut self, step: &mut ClaimStep<'_>, access: Access) -> Leave {
        let lock_id = &step.terms.lock_id;
        let last = self.holding.clone();
        self.remove_level(access);
        if self.depth() > 0 {
            let (holding, was_won) = (self.holding.clone(), true);
            return Leave {
                command: Command::new(lock_id, Action::Release { holding, was_won }),
                to: MasterSet::ALL,
                keys_until: None,
                owed: None,
            };
        }
        self.look(step); // notes an expiry that no one has noticed
        let time_to_stay = self.time_to_stay(step);
        let (action, to) = match time_to_stay {
            Some(time) => {
                let ttl = step.terms.drift.outlasting(time);
                (Action::Extend(last, ttl), MasterSet::ALL)
            }
            None => {
                let was_won = self.was_won(step.newest);
                let holding = Holding { depth: 0, ..last };
                let release = Action::Release { holding, was_won };
                (release, self.needs_release(step.newest))
            }
        };
        if self.is_held() {
            step.notice = Some(match time_to_stay {
                Some(_) => Notice::Left,
                None => Notice::Released,
            });
        }
        self.phase = Phase::Released;
        Leave {
            command: Command::new(lock_id, action),
            to,
            keys_until: Some(self.keys_until),
            owed: time_to_stay.is_none().then_some(self.may_keep),
        }
    }

    /// Drops the note that this process did not run for a while before the loss.
    pub(crate) fn was_not_stalled(&mut self) {
        if let Phase::Lost { stalled, .. } = &mut self.phase {
            *stalled = None;
        }
    }

    pub(crate) fn fencing_token(&self) -> Option<u64> {
        Some(self.holding.ballot.as_ref()?.candidate)
    }

    pub(crate) fn depth(&self) -> u32 {
        self.holding.depth
    }

    pub(crate) fn slot(&self) -> Option<Slot> {
        self.holding.slot
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

    fn held_at(&mut self, step: &mut ClaimStep<'_>) -> Option<&mut Held> {
        self.look(step);
        match &mut self.phase {
            Phase::Held(held) => Some(held),
            Phase::Asking { .. } | Phase::Lost { .. } | Phase::Released => None,
        }
    }

    fn end(&mut self, reason: LostReason, stalled: Option<Duration>, step: &mut ClaimStep<'_>) {
        self.phase = Phase::Lost { reason, stalled };
        step.notice = Some(Notice::Lost { reason, stalled });
    }

    /// Opens a round, and makes it the newest one. Notes which masters may have the key or the
    /// ticket because of the round before.
    fn open(&mut self, round: Round, step: &mut ClaimStep<'_>) {
        self.may_keep |= step.newest.may_keep();
        step.opened = Some(Box::new(round));
    }

    fn add_level(&mut self, access: Access) {
        self.holding.depth = self.holding.depth.saturating_add(1);
        if access == Access::Exclusive {
            self.exclusive = self.exclusive.saturating_add(1);
            self.holding.access = access;
        }
    }

    fn remove_level(&mut self, access: Access) {
        self.holding.depth = self.holding.depth.saturating_sub(1);
        if access == Access::Exclusive {
            self.exclusive = self.exclusive.saturating_sub(1);
        }
        if self.exclusive == 0 {
            self.holding.access = Access::Shared;
        }
    }

    fn last_until(&mut self, until: Tick) {
        self.keys_until = self.keys_until.max(until);
    }

    fn was_won(&self, newest: &Round) -> bool {
        match self.phase {
            Phase::Asking { .. } => newest.outcome() == Outcome::Won,
            Phase::Held(_) | Phase::Lost { .. } | Phase::Released => true,
        }
    }

    /// Returns for how long the lock must stay on the masters without a holder.
    fn time_to_stay(&self, step: &ClaimStep<'_>) -> Option<Duration> {
        let Phase::Held(held) = &self.phase else {
            return None;
        };
        let until = held.stays_until.filter(|until| step.monotonic <= *until);
        until.map(|until| until.since(step.monotonic))
    }

    /// Returns the masters that need a release. If the newest acquisition has not asked all masters
    /// yet, a release is needed only on masters that may have the key or the ticket because of this
    /// acquisition or an earlier round.
    fn needs_release(&self, newest: &Round) -> MasterSet {
        match self.phase {
            Phase::Asking { unasked } if !unasked.is_empty() => {
                (newest.may_keep() - unasked) | self.may_keep
            }
            Phase::Asking { .. } | Phase::Held(_) | Phase::Lost { .. } | Phase::Released => {
                MasterSet::ALL
            }
        }
    }
}

/// The command that ends a level.
#[derive(Debug)]
pub(crate) struct Leave {
    pub(crate) command: Command,
    /// The masters that need the command. On all other masters, the key counts as gone.
    pub(crate) to: MasterSet,
    /// The instant on the monotonic clock at which everything that the claim may have written has
    /// expired. `None` if other levels are left.
    pub(crate) keys_until: Option<Tick>,
    /// The masters that may have the key or the ticket because of a heal or an earlier round. They
    /// must get the release, even if they cannot be reached now. The masters that may have the key
    /// or the ticket because of the newest round must also get the release. The driver finds these
    /// masters later, because a late vote may show that a master has nothing. `None` if the command
    /// does not release the last level. If other levels are left, the next extension also sets the
    /// depth.
    pub(crate) owed: Option<MasterSet>,
}

impl Held {
    /// Returns whether no extension that began at `start` or later is confirmed.
    fn is_after_confirmed(&self, start: LeaseTick) -> bool {
        self.confirmed.is_none_or(|confirmed| start > confirmed)
    }

    /// Returns why the lock is lost when `lease` ends. If the renewer has missed a retry, also
    /// returns how late the renewer is at `now`. The renewer only waits for the time of its next
    /// look, so if it is that late, the runtime probably did not run.
    fn end(&self, lease: Lease, now: LeaseTick) -> (LostReason, Option<Duration>) {
        let Some(plan) = self.plan else {
            return (LostReason::Expired, None);
        };
        if plan.due(lease).is_none() {
            return (LostReason::RenewalLimit, None);
        }
        let late = self.next_look.map(|at| now.since(at));
        (
            LostReason::Expired,
            late.filter(|late| *late >= plan.longest_retry()),
        )
    }
}

impl<'a> ClaimStep<'a> {
    pub(crate) fn new(
        terms: &'a Terms,
        newest: &'a Round,
        now: LeaseTick,
        monotonic: Tick,
    ) -> Self {
        Self {
            terms,
            newest,
            now,
            monotonic,
            notice: None,
            opened: None,
        }
    }

    fn lease(&self, ttl: Ttl) -> Lease {
        Lease::new(self.now, ttl, self.terms.drift)
    }

    /// Returns the time on the monotonic clock at which a key written now with `ttl` expires.
    fn expiry(&self, ttl: Ttl) -> Tick {
        self.monotonic + ttl.duration()
    }
}

/// Returns whether the round can no longer win: there is no majority, or the majority came too
/// late.
fn has_failed(round: &Round) -> bool {
    matches!(round.outcome(), Outcome::NoMajority | Outcome::TooLate)
}
