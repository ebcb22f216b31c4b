//! A claim on a lock: what it may have left on masters, whether the lock is held, and what to send
//! next.

use std::{mem, sync::Arc, time::Duration};

use self::step::Step;
use super::{
    RoundId,
    out::{Effect, Hold, What},
    round::Role,
    waiters::Topic,
};
use crate::core::{
    kind::Access,
    protocol::{Action, Command, Holding, LockId, QueueOptions},
    time::{Lease, LeaseTick, Tick, Ttl, lease::RenewalPlan},
    view::{LockState, LostReason},
    vote::{MasterSet, Outcome, Round},
};

pub(crate) mod ask;
pub(crate) mod detach;
pub(crate) mod extend;
pub(crate) mod step;
#[cfg(test)]
mod tests;

/// A claim on a lock, from its first round to its release.
pub(crate) struct Claim {
    pub(in crate::machine) lock_id: LockId,
    ttl: Ttl,
    /// The start of the first round, on the monotonic clock.
    pub(crate) began: Tick,
    /// What the commands of this claim say to masters. A release with this identity takes back the
    /// newest attempt and all earlier ones. The depth is the number of guards, including guards
    /// whose rounds are not over. The slot is the slot that was won. Before that, it is the slot
    /// that the agreed master has granted.
    pub(crate) holding: Holding,
    /// The number of guards that exclude other holders.
    exclusive: u32,
    /// The instant on the monotonic clock at which everything that the claim may have written has
    /// expired. After this instant, no release is needed.
    keys_until: Tick,
    /// The masters that may have the key or the ticket because of a heal, or because of a round
    /// before the newest one.
    may_keep: MasterSet,
    pub(crate) rounds: u32,
    pub(crate) lease: Lease,
    /// The time that was left of the lease when the lock was won or last extended.
    pub(crate) validity: Duration,
    phase: Phase,
    /// The newest round: the acquisition, or the last extension.
    pub(crate) newest: RoundId,
    /// The time of the claim's timer, by which it is renewed.
    pub(in crate::machine) timer: Option<LeaseTick>,
    pub(in crate::machine) refs: u32,
}

/// The phase of a claim. A claim never goes back to an earlier phase.
///
/// A lock that is in doubt is in the phase `Held`. If the newest round has failed, this round shows
/// the doubt.
enum Phase {
    /// A round asks for the lock. Even if the round was won, the caller has not seen the outcome
    /// yet.
    Asking {
        /// The masters that the round has not asked yet.
        unasked: MasterSet,
        /// The options for the queues of the masters. `None` if the round does not join the queues.
        queue: Option<QueueOptions>,
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
#[derive(Default)]
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
    has_guard: bool,
    /// The hold of the first guard, if someone wants to see it.
    hold: Option<Arc<Hold>>,
}

pub(crate) const KEPT: &str = "kept";
pub(crate) const LOST: &str = "lost";
pub(crate) const RELEASED: &str = "released";

impl Claim {
    /// Returns the state of the lock, and notes a loss by expiry.
    pub(crate) fn look(&mut self, step: &mut Step<'_>) -> LockState {
        if let Phase::Held(held) = &self.phase
            && !self.lease.is_valid(step.now.lease)
        {
            let (reason, stalled) = held.end(self.lease, step.now.lease);
            // With very many locks, the renewer may be late although the process did not stand
            // still, because the renewer also waits for votes.
            let stalled = stalled.filter(|_| !step.renewals.is_crowded());
            self.end(reason, stalled, step);
        }
        match &self.phase {
            Phase::Held(held) if held.in_doubt || has_failed(step.rounds.of(self.newest)) => {
                LockState::InDoubt
            }
            Phase::Held(_) => LockState::Held,
            Phase::Lost { reason, .. } => LockState::Lost(*reason),
            // Now there is no guard that could ask for the state. But another task of the owner may
            // ask for it before that task reenters the lock.
            Phase::Asking { .. } | Phase::Released => LockState::Lost(LostReason::Expired),
        }
    }

    /// Returns whether the lock is held, and notes a loss by expiry.
    pub(crate) fn is_held_at(&mut self, step: &mut Step<'_>) -> bool {
        !matches!(self.look(step), LockState::Lost(_))
    }

    /// Returns the time that is left of the lease. It is zero once the lock is lost.
    pub(crate) fn remaining(&mut self, step: &mut Step<'_>) -> Duration {
        match self.look(step) {
            LockState::Held | LockState::InDoubt => self.lease.remaining(step.now.lease),
            LockState::Lost(_) => Duration::ZERO,
        }
    }

    /// Notes that a held lock is lost for this `reason`. If its lease has expired, the reason is
    /// the expiry, whatever masters say.
    pub(crate) fn lose(&mut self, step: &mut Step<'_>, reason: LostReason) {
        if self.held_at(step).is_some() {
            self.end(reason, None, step);
        }
    }

    /// Removes the level of one guard. If that was the last level, the lock is released or left in
    /// place. A release goes to all masters that may have the key. A master that cannot be reached
    /// now is owed the release. With `watch`, the release of the last level also watches the key.
    ///
    /// Returns the round of the command, with a reference for the caller, and whether the command
    /// frees a lock that was won.
    pub(crate) fn leave(
        &mut self,
        step: &mut Step<'_>,
        access: Access,
        watch: bool,
    ) -> (RoundId, bool) {
        let last = self.holding.clone();
        self.remove_level(access);
        if self.holding.depth > 0 {
            let (holding, was_won) = (self.holding.clone(), true);
            let release = self.command(Action::Release { holding, was_won });
            return (step.ask(MasterSet::ALL, release, Role::Question), false);
        }
        self.look(step); // notes an expiry that no one has noticed
        let time_to_stay = self.time_to_stay(step);
        let newest = step.rounds.of(self.newest);
        let was_won = time_to_stay.is_none() && self.was_won(newest);
        let (action, to) = match time_to_stay {
            Some(time) => {
                let ttl = step.config.drift.outlasting(time);
                (Action::Extend(last, ttl), MasterSet::ALL)
            }
            None => {
                let holding = Holding { depth: 0, ..last };
                let release = Action::Release { holding, was_won };
                (release, self.needs_release(newest))
            }
        };
        if let Phase::Held(held) = mem::replace(&mut self.phase, Phase::Released)
            && held.has_guard
        {
            let end = match time_to_stay {
                Some(_) => KEPT,
                None => RELEASED,
            };
            self.tell(step, held.hold, What::HoldEnded(end));
        }
        let mut command = self.command(action);
        command.watch = watch;
        step.rounds.add_pending(self.keys_until);
        let role = match time_to_stay {
            Some(_) => Role::Stay(self.lock_id.clone()),
            None => Role::Release {
                may_keep: self.may_keep,
                newest: step.rounds.share(self.newest),
                keys_until: self.keys_until,
            },
        };
        (step.ask(to, command, role), was_won)
    }

    pub(crate) fn stalled(&self) -> Option<Duration> {
        match self.phase {
            Phase::Lost { stalled, .. } => stalled,
            Phase::Asking { .. } | Phase::Held(_) | Phase::Released => None,
        }
    }

    pub(in crate::machine) fn set_timer(&mut self, step: &mut Step<'_>) {
        let next = self.held().and_then(|held| held.next_look);
        if next != self.timer {
            if step.renewals.set(step.id, self.timer, next) {
                step.out.push(Effect::WakeRenewer);
            }
            self.timer = next;
        }
    }

    /// Returns whether the lock is held, and no guard has had it yet.
    pub(crate) fn is_new(&self) -> bool {
        self.held().is_some_and(|held| !held.has_guard)
    }

    /// Returns the hold, if the lock is held and someone wants to see the hold.
    pub(in crate::machine) fn shown_hold(&self) -> Option<Arc<Hold>> {
        self.held()?.hold.clone()
    }

    fn held(&self) -> Option<&Held> {
        match &self.phase {
            Phase::Held(held) => Some(held),
            Phase::Asking { .. } | Phase::Lost { .. } | Phase::Released => None,
        }
    }

    fn held_at(&mut self, step: &mut Step<'_>) -> Option<&mut Held> {
        self.look(step);
        match &mut self.phase {
            Phase::Held(held) => Some(held),
            Phase::Asking { .. } | Phase::Lost { .. } | Phase::Released => None,
        }
    }

    fn end(&mut self, reason: LostReason, stalled: Option<Duration>, step: &mut Step<'_>) {
        let lost = Phase::Lost { reason, stalled };
        step.waiters.wake(&Topic::Lost(step.id), step.out);
        // A call for several locks may lose one of them before a guard has it.
        if let Phase::Held(held) = mem::replace(&mut self.phase, lost)
            && held.has_guard
        {
            let votes = step.votes(self.newest);
            let what = What::Lost {
                reason,
                stalled,
                votes,
            };
            self.tell(step, held.hold.clone(), what);
            self.tell(step, held.hold, What::HoldEnded(LOST));
        }
    }

    fn tell(&self, step: &mut Step<'_>, hold: Option<Arc<Hold>>, what: What) {
        let lock = self.lock_id.clone();
        step.out.push(Effect::Event(lock, hold, what));
    }

    fn command(&self, action: Action) -> Command {
        Command::new(&self.lock_id, action)
    }

    /// Opens a round, and makes it the newest one. Notes which masters may have the key or the
    /// ticket because of the round before.
    fn open(&mut self, round: Round, role: Role, step: &mut Step<'_>) {
        self.may_keep = self.may_keep | step.rounds.of(self.newest).may_keep();
        let before = mem::replace(&mut self.newest, step.rounds.open(round, role));
        step.rounds.drop(before, step.out);
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
    fn time_to_stay(&self, step: &Step<'_>) -> Option<Duration> {
        let now = step.now.monotonic;
        let until = self.held()?.stays_until.filter(|until| now <= *until);
        until.map(|until| until.since(now))
    }

    /// Returns the masters that need a release. If the newest acquisition has not asked all masters
    /// yet, a release is needed only on masters that may have the key or the ticket because of this
    /// acquisition or an earlier round.
    fn needs_release(&self, newest: &Round) -> MasterSet {
        match self.phase {
            Phase::Asking { unasked, .. } if !unasked.is_empty() => {
                (newest.may_keep() - unasked) | self.may_keep
            }
            Phase::Asking { .. } | Phase::Held(_) | Phase::Lost { .. } | Phase::Released => {
                MasterSet::ALL
            }
        }
    }
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

/// Returns whether the round can no longer win: there is no majority, or the majority came too
/// late.
fn has_failed(round: &Round) -> bool {
    matches!(round.outcome(), Outcome::NoMajority | Outcome::TooLate)
}
