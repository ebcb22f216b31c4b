//! Handles of claims on locks, and of their levels. The machine keeps the claims.
//!
//! A level ends with a release. If the lock must stay for a while after its guards are gone, the
//! last level ends with an extension instead.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use self::owned_lock::OwnedLock;
use super::{context, round_handle::RoundHandle, waiter::Waiter};
use crate::{
    clock,
    core::{
        error::{Asked, LostError, QuorumError},
        kind::{Access, LockKind},
        protocol::LockId,
        time::{Renewal, Tick},
        view::{LockState, LostReason},
        vote::{Outcome, Round, Slot, Verb, Votes},
    },
    machine::{
        ClaimId,
        claim::{Claim, step::Step},
        waiters::Topic,
    },
    meter::Counted,
};

pub(crate) mod ask;
pub(crate) mod detach;
pub(crate) mod extension;
pub(crate) mod owned_lock;

/// A handle of a claim on a lock. Each level has one.
pub(crate) struct ClaimHandle {
    context: Arc<context::Context>,
    lock_id: LockId,
    id: ClaimId,
    /// Set once the level of this handle was removed, with the reference to the claim.
    has_left: AtomicBool,
}

impl ClaimHandle {
    /// Takes over a reference to the claim.
    fn new(context: &Arc<context::Context>, lock_id: &LockId, id: ClaimId) -> Self {
        Self {
            context: context.clone(),
            lock_id: lock_id.clone(),
            id,
            has_left: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.lock_id.name()
    }

    pub(crate) fn kind(&self) -> LockKind {
        self.lock_id.kind()
    }

    /// Returns the number of guards.
    pub(crate) fn depth(&self) -> u32 {
        self.read(|claim| claim.holding.depth)
    }

    /// Returns the number of rounds in which this claim has asked for the lock.
    pub(crate) fn rounds(&self) -> u32 {
        self.read(|claim| claim.rounds)
    }

    /// Returns the newest round: the acquisition, or the last extension.
    pub(crate) fn newest_round(&self) -> RoundHandle {
        let machine = &self.context.machine;
        let round = machine.lock(|it| it.rounds.share(it.claim(self.id).newest));
        RoundHandle::new(machine, round)
    }

    pub(crate) fn newest_votes(&self) -> Votes {
        if self.context.is_forked() {
            return self.context.closed_votes(Verb::Extend);
        }
        self.newest_round().votes()
    }

    /// Returns the fencing token, if the lock is fenced.
    pub(crate) fn fencing_token(&self) -> Option<u64> {
        self.read(|claim| claim.holding.candidate)
    }

    /// Returns the slot that was won, if the lock has slots.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.read(|claim| claim.holding.slot)
    }

    /// Returns the time that was left of the lease when the lock was won or last extended.
    pub(crate) fn validity(&self) -> Duration {
        self.read(|claim| claim.validity)
    }

    pub(crate) fn lost_error(&self, reason: LostReason) -> LostError {
        LostError {
            name: self.name().clone(),
            reason,
            stalled: self.read(|claim| claim.stalled()),
            votes: self.newest_votes(),
        }
    }

    /// Returns the end of the lease, on the clock of [`Tick`]. If a step of the wall clock moves
    /// the end to a time before the start of the first round, returns that start.
    pub(crate) fn valid_until(&self) -> Tick {
        let times = self.unless_forked(|claim, _| (claim.lease.until(), claim.began));
        times.map_or_else(clock::monotonic, |(until, began)| {
            clock::to_monotonic(until, began)
        })
    }

    /// Returns whether the lock is held. After a fork, the parent has it.
    pub(crate) fn lock_state(&self) -> LockState {
        let state = self.unless_forked(Claim::look);
        state.unwrap_or(LockState::Lost(LostReason::Closed))
    }

    pub(crate) fn ensure_valid(&self) -> Result<(), LostError> {
        match self.lock_state() {
            LockState::Held | LockState::InDoubt => Ok(()),
            LockState::Lost(reason) => Err(self.lost_error(reason)),
        }
    }

    /// Returns the time that is left of the lease. It is zero once the lock is lost.
    pub(crate) fn remaining(&self) -> Duration {
        self.unless_forked(Claim::remaining).unwrap_or_default()
    }

    /// Begins the hold after the lock was won or reentered, and starts to renew the lock. If the
    /// lock is held already, keeps its renewal limit unless the limit in `request` is later. Does
    /// the same with the end of the minimum hold.
    pub(crate) fn hold(&self, renewal: Renewal, min_hold: Duration) {
        let observer = self.context.observer();
        // Only the first guard opens a hold, and only an owner may have another guard.
        let is_first = !self.kind().has_owner() || self.read(Claim::is_new);
        let won = || (self.fencing_token(), self.slot());
        let mut hold = is_first
            .then(|| observer.hold(&self.lock_id, won))
            .flatten();
        self.step(|claim, step| {
            claim.stay(step, min_hold);
            claim.hold(step, renewal, &mut hold);
        });
    }

    /// Stops the renewal. Without another extension, the lock ends with its present lease.
    pub(crate) fn stop_renewing(&self) {
        self.unless_forked(|claim, _| claim.stop_renewing());
    }

    /// Waits until the lock is lost. The lock also counts as lost when the timers end, because
    /// nothing can notice the end of its lease after that.
    pub(crate) async fn lost(&self) -> LostReason {
        let context = &self.context;
        if let LockState::Lost(reason) = self.lock_state() {
            return reason; // after a fork, no mutex may be locked
        }
        let check = || match self.lock_state() {
            LockState::Lost(reason) => ControlFlow::Break(reason),
            // This task has its own timer for the end of the lease. The timer fires even if every
            // renewal hangs.
            LockState::Held | LockState::InDoubt => {
                let machine = &context.machine;
                ControlFlow::Continue(machine.lock(|machine| machine.claim(self.id).lease.until()))
            }
        };
        let waiter = Waiter::for_topic(&context.machine, &context.timers, &Topic::Lost(self.id));
        if let Some(reason) = waiter.wait(check).await {
            return reason;
        }
        self.unless_forked(|claim, step| claim.lose(step, LostReason::Closed));
        match self.lock_state() {
            LockState::Lost(reason) => reason,
            LockState::Held | LockState::InDoubt => LostReason::Closed, // it was lost just now
        }
    }

    /// Waits until every master has voted in the newest round. When the tasks have ended, no
    /// further vote comes.
    pub(crate) async fn settled(&self) {
        if !self.context.timers.have_ended() {
            self.newest_round().settled().await;
        }
    }

    pub(crate) fn count_guard(&self) -> Option<Counted> {
        self.context.observer().count_guard(&self.lock_id)
    }

    /// Removes the level of this handle, unless it was removed before. See
    /// [`leave`](crate::machine::claim::Claim::leave).
    ///
    /// After a fork, does nothing: the lock belongs to the parent.
    fn leave(&self, access: Access, watch: bool) -> Option<RoundHandle> {
        let context = &self.context;
        if self.has_left.swap(true, Ordering::Relaxed) || context.is_forked() {
            return None;
        }
        let are_told = !context.config.poll_only;
        let round = context.machine.with(|machine, now| {
            let (round, frees) =
                machine.step(self.id, now, |claim, step| claim.leave(step, access, watch));
            if frees && are_told {
                (machine.waiters).note_release(&self.lock_id, now.lease, &mut machine.out);
            }
            machine.drop_claim(self.id);
            round
        });
        Some(RoundHandle::new(&context.machine, round))
    }

    /// Waits until a majority has confirmed `release`, which removes a level.
    pub(crate) async fn confirm_release(
        &self,
        release: Option<RoundHandle>,
    ) -> Result<(), QuorumError> {
        let Some(release) = release else {
            let votes = self.context.closed_votes(Verb::Release);
            return Err(QuorumError::new(self.name(), votes, Asked::Release));
        };
        if release.decided().await == Outcome::Won {
            return Ok(());
        }
        self.context.in_time(release.settled()).await; // so that the error shows every vote
        let asked = match release.read(Round::verb) {
            Verb::Extend => Asked::Keep,
            _ => Asked::Release,
        };
        Err(QuorumError::new(self.name(), release.votes(), asked))
    }

    /// Lets the claim take a step, unless the lock belongs to the parent, after a fork.
    fn unless_forked<T>(&self, act: impl FnOnce(&mut Claim, &mut Step<'_>) -> T) -> Option<T> {
        (!self.context.is_forked()).then(|| self.step(act))
    }

    fn step<T>(&self, act: impl FnOnce(&mut Claim, &mut Step<'_>) -> T) -> T {
        let machine = &self.context.machine;
        machine.with(|machine, now| machine.step(self.id, now, act))
    }

    /// Returns what `look` returns. After a fork, the mutex may stay locked: then, returns the
    /// default.
    fn read<T: Default>(&self, look: impl FnOnce(&Claim) -> T) -> T {
        let machine = &self.context.machine;
        if self.context.is_forked() {
            let seen = machine.try_read(|machine| look(machine.claim(self.id)));
            return seen.unwrap_or_default();
        }
        machine.lock(|machine| look(machine.claim(self.id)))
    }
}

impl Drop for ClaimHandle {
    fn drop(&mut self) {
        if !*self.has_left.get_mut() && !self.context.is_forked() {
            (self.context.machine).lock(|machine| machine.drop_claim(self.id));
        }
    }
}

/// One level of a claim, for one guard. Dropping this value removes the level. A future that is
/// dropped before it completes also drops its `Level`. So every round that leads to no guard is
/// followed by a release.
#[must_use = "dropping it releases the lock"]
pub(crate) struct Level {
    pub(crate) claim: ClaimHandle,
    /// Keeps alive the entry through which other tasks of the owner find the claim.
    owned: Option<Arc<OwnedLock>>,
    /// `true` if other clients may share the lock with this level.
    is_shared: AtomicBool,
    /// `true` if a drop leaves the lock in place.
    is_abandoned: AtomicBool,
}

impl Level {
    /// Creates the first level of a claim, or a level that [`ClaimHandle::reenter`] has counted.
    pub(crate) fn new(claim: ClaimHandle, access: Access, owned: Option<Arc<OwnedLock>>) -> Self {
        Self {
            claim,
            owned,
            is_shared: AtomicBool::new(access == Access::Shared),
            is_abandoned: AtomicBool::new(false),
        }
    }

    /// Removes the level, unless it was removed before. Returns the round of the command that
    /// removes the level. `None` if there is no such command, as after a fork. With `watch`, the
    /// release of the last level also watches the key. After this call, only the names of the claim
    /// may be read.
    pub(crate) fn end(&self, watch: bool) -> Option<RoundHandle> {
        self.claim.leave(self.access(), watch)
    }

    pub(crate) fn access(&self) -> Access {
        if self.is_shared.load(Ordering::Relaxed) {
            Access::Shared
        } else {
            Access::Exclusive
        }
    }

    /// Lets other clients share the lock with this level, unless the level is shared already.
    pub(crate) fn downgrade(&self) {
        if !self.is_shared.swap(true, Ordering::Relaxed) {
            self.claim.downgrade();
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        let is_left = self.claim.has_left.load(Ordering::Relaxed);
        if is_left || !*self.is_abandoned.get_mut() || self.detach().is_err() {
            self.end(false);
        }
    }
}
