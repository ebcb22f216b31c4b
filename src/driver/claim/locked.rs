//! A claim while it is locked, and what is left to do after the unlock.

use parking_lot::MutexGuard;

use super::{
    Claim, State,
    phases::{ClaimState, ClaimStep, Notice, Terms},
};
use crate::{
    core::{kind::command::Command, vote::master_set::MasterSet},
    driver::{observe::span::in_span, time::clock},
    log,
    master::CountVotes,
};

/// The state of a claim while it is locked. The time is read after the lock is taken. A change is
/// announced after the unlock, because the announcement runs code of the program.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    /// The first field. It is dropped, and the state is unlocked, before the announcement.
    pub(super) state: MutexGuard<'a, State>,
    unlocked: Unlocked<'a>,
}

/// The end of a step. Dropping this value announces a change.
#[derive(Debug)]
struct Unlocked<'a> {
    claim: &'a Claim,
    step: ClaimStep<'a>,
}

impl Claim {
    pub(super) fn lock(&self) -> Locked<'_> {
        let state = self.state.lock();
        let step = step(&self.terms);
        let unlocked = Unlocked { claim: self, step };
        Locked { state, unlocked }
    }

    /// Makes a step that posts nothing.
    pub(super) fn step<T>(&self, step: impl FnOnce(&mut ClaimState, &mut ClaimStep<'_>) -> T) -> T {
        self.lock().step(step)
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&ClaimState) -> T) -> T {
        look(&self.state.lock().claim)
    }
}

/// Returns a step that is made now.
pub(super) fn step(terms: &Terms) -> ClaimStep<'_> {
    let monotonic = clock::monotonic();
    ClaimStep {
        terms,
        now: clock::now_at(monotonic),
        monotonic,
        change: None,
        retired: None,
    }
}

impl Locked<'_> {
    pub(super) fn step<T>(
        &mut self,
        step: impl FnOnce(&mut ClaimState, &mut ClaimStep<'_>) -> T,
    ) -> T {
        step(&mut self.state.claim, &mut self.unlocked.step)
    }

    /// Posts `command`, unlocks, and then casts the votes of the masters that failed at once. They
    /// may run code of the program. The claim is locked until the command is posted, so a release
    /// never overtakes an extension.
    pub(super) fn post<C: CountVotes + 'static>(
        self,
        to: MasterSet,
        command: Command,
        votes_to: C,
    ) {
        let masters = &self.unlocked.claim.context.masters;
        let posted = masters.post_locked(to, command, votes_to);
        drop(self);
        drop(posted);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // With very many locks, the renewer may be late for another reason: it also waits for
        // votes.
        if let Some(Notice::Lost { stalled, .. }) = &mut self.unlocked.step.change
            && stalled.is_some()
            && self.unlocked.claim.context.renewer.is_crowded()
        {
            *stalled = None;
            self.state.claim.was_not_stalled();
        }
    }
}

impl Drop for Unlocked<'_> {
    fn drop(&mut self) {
        let Some(change) = self.step.change.take() else {
            return;
        };
        let (claim, name) = (self.claim, self.claim.name());
        let span = claim.hold_span();
        in_span(&span, || match &change {
            Notice::InDoubt { remaining, round } => {
                let votes = claim.votes(round);
                tracing::warn!(target: log::LOCK, %name, ?remaining, %votes, "lock in doubt: it could not be renewed");
            }
            Notice::Lost { reason, stalled } => {
                let votes = claim.votes(&claim.newest_round());
                let reason = reason.after(*stalled);
                tracing::warn!(target: log::LOCK, %name, %reason, %votes, "lock lost");
            }
            Notice::Renewed {
                validity,
                was_in_doubt: true,
            } => tracing::info!(target: log::LOCK, %name, ?validity, "lock no longer in doubt"),
            Notice::Renewed { validity, .. } => {
                tracing::debug!(target: log::LOCK, %name, ?validity, "lock renewed");
            }
        });
        if let Notice::Lost { reason, .. } = change {
            claim.changed.notify();
            claim.count_loss(reason);
        }
    }
}
