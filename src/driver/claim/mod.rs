//! Handles of claims on locks. The machine keeps the claims.

use std::{future::poll_fn, ops::ControlFlow, sync::Arc, task::Context, time::Duration};

use super::{context, round_handle::RoundHandle, waiter::Waiter};
use crate::{
    clock,
    core::{
        kind::{Kind, rights::Rights},
        protocol::name::LockId,
        time::tick::Tick,
        view::lock_state::{LockState, LostReason},
        vote::{Slot, Verb, quorum::Outcome, votes::Votes},
    },
    machine::{
        ClaimId,
        claim::{Claim, step::Step},
        waiters::Topic,
    },
    meter::Counted,
};

pub(crate) mod ask;
pub(crate) mod extension;
pub(crate) mod level;
pub(crate) mod owned_lock;

/// A handle of a claim on a lock. Each level has one.
#[derive(Debug)]
pub(crate) struct ClaimHandle {
    context: Arc<context::Context>,
    lock_id: LockId,
    rights: Rights,
    id: ClaimId,
}

impl ClaimHandle {
    pub(crate) fn name(&self) -> &Arc<str> {
        self.lock_id.name()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.lock_id.kind()
    }

    /// Returns the number of guards.
    pub(crate) fn depth(&self) -> u32 {
        self.read(Claim::depth)
    }

    /// Returns the number of rounds in which this claim has asked for the lock.
    pub(crate) fn rounds(&self) -> u32 {
        self.read(|claim| claim.rounds)
    }

    /// Returns the newest round: the acquisition, or the last extension.
    pub(crate) fn newest_round(&self) -> RoundHandle {
        let machine = &self.context.machine;
        let round = machine.lock(|machine| machine.share_newest(self.id));
        RoundHandle::new(machine, round)
    }

    /// Waits until the outcome of the newest round is certain.
    async fn decided(&self) -> Outcome {
        let poll = |cx: &mut Context<'_>| {
            (self.context.machine).poll(cx, |machine, waker| machine.poll_decided(self.id, waker))
        };
        poll_fn(poll).await
    }

    /// Returns the votes in the newest round.
    pub(crate) fn newest_votes(&self) -> Votes {
        if self.context.is_forked() {
            return self.context.closed_votes(Verb::Extend);
        }
        self.newest_round().votes()
    }

    /// Returns the fencing token, if the lock is fenced.
    pub(crate) fn fencing_token(&self) -> Option<u64> {
        self.read(|claim| claim.fencing_token())
    }

    /// Returns the slot that was won, if the lock has slots.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.read(|claim| claim.slot())
    }

    /// Returns the time that was left of the lease when the lock was won or last extended.
    pub(crate) fn validity(&self) -> Duration {
        self.read(|claim| claim.validity)
    }

    /// Returns a lower bound of the time for which this process stood still before the lock was
    /// lost. Returns `None` if the loss is not known to come from such a pause.
    pub(crate) fn stalled(&self) -> Option<Duration> {
        self.read(|claim| claim.stalled())
    }

    /// Returns the end of the lease, on the clock of [`Tick`]. If a step of the wall clock moves
    /// the end to a time before the start of the first round, returns that start.
    pub(crate) fn valid_until(&self) -> Tick {
        if self.context.is_forked() {
            return clock::monotonic();
        }
        let times = self.read(|claim| Some((claim.lease.until(), claim.began)));
        times.map_or_else(clock::monotonic, |(until, began)| {
            clock::to_monotonic(until, began)
        })
    }

    /// Returns whether the lock is held. After a fork, the parent has it.
    pub(crate) fn lock_state(&self) -> LockState {
        if self.context.is_forked() {
            return LockState::Lost(LostReason::Ended);
        }
        self.step(Claim::look)
    }

    /// Returns the time that is left of the lease. It is zero once the lock is lost.
    pub(crate) fn remaining(&self) -> Duration {
        if self.context.is_forked() {
            return Duration::ZERO;
        }
        self.step(Claim::remaining)
    }

    /// Begins the hold after the lock was won or reentered, and starts to renew the lock. If the
    /// lock is held already, keeps its renewal limit unless the limit in `request` is later. Does
    /// the same with the end of the minimum time.
    pub(crate) fn hold(&self, request: &ask::LockRequest) {
        let observer = self.context.observer();
        // Only the first guard opens a span.
        let is_first = !observer.shows_holds() || self.read(Claim::is_new);
        let mut hold = is_first.then(|| {
            let won = || (self.fencing_token(), self.slot());
            observer.open_hold(&self.lock_id, won)
        });
        // The node timeout of a slow master may be long, compared with the lease.
        let least_retry = self.context.config.node_timeout.least();
        self.step(|claim, step| {
            claim.stay(step, request.min_hold);
            claim.hold(step, &mut hold, request.renewal, least_retry);
        });
    }

    /// Stops the renewal. Without another extension, the lock ends with its present lease.
    pub(crate) fn stop_renewing(&self) {
        if !self.context.is_forked() {
            self.step(|claim, _| claim.stop_renewing());
        }
    }

    /// Waits until the lock is lost. The lock also counts as lost when the timers end, because
    /// nothing can notice the end of its lease after that.
    pub(crate) async fn lost(&self) -> LostReason {
        if let LockState::Lost(reason) = self.lock_state() {
            return reason; // after a fork, no mutex may be locked
        }
        let check = || match self.lock_state() {
            LockState::Lost(reason) => ControlFlow::Break(reason),
            // This task has its own timer for the end of the lease. The timer fires even if every
            // renewal hangs.
            LockState::Held | LockState::InDoubt => {
                let machine = &self.context.machine;
                ControlFlow::Continue(machine.lock(|machine| machine.claim(self.id).lease.until()))
            }
        };
        let waiter = Waiter::for_topic(&self.context, &Topic::Lost(self.id));
        loop {
            if let Some(reason) = waiter.wait(check).await {
                return reason;
            }
            if self.context.is_forked() {
                return LostReason::Ended;
            }
            self.step(|claim, step| claim.lose(step, LostReason::Ended));
        }
    }

    /// Waits until every master has voted in the newest round. When the tasks have ended, no
    /// further vote comes.
    pub(crate) async fn settled(&self) {
        if !self.context.timers.have_ended() {
            self.newest_round().settled().await;
        }
    }

    /// Counts a guard, as long as the returned value exists.
    pub(crate) fn count_guard(&self) -> Option<Counted> {
        self.context.observer().count_guard(&self.lock_id)
    }

    /// Lets the claim in the machine take a step.
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

    /// Takes over a reference to the claim, for a level that was added.
    fn shared(&self) -> Self {
        Self {
            context: self.context.clone(),
            lock_id: self.lock_id.clone(),
            rights: self.rights,
            id: self.id,
        }
    }
}

impl Drop for ClaimHandle {
    fn drop(&mut self) {
        if !self.context.is_forked() {
            self.context
                .machine
                .lock(|machine| machine.drop_claim(self.id));
        }
    }
}
