//! A claim while it is locked, and what is left to do after the unlock.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::{Claim, Protected};
use crate::{
    core::{
        claim::{ClaimState, ClaimStep, Notice, Terms},
        protocol::command::Command,
        vote::master_set::MasterSet,
    },
    driver::{live_round::LiveRound, observe::observer::HoldEnd, time::clock},
    master::CountVotes,
};

/// The state of a claim while it is locked. The time is read after the lock is taken. Dropping this
/// value unlocks the state, and announces a change while no mutex is held, because the announcement
/// runs code of the program.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    claim: &'a Claim,
    pub(super) state: MutexGuard<'a, Protected>,
    /// Declared after the state, so it is dropped after the unlock.
    step: ClaimStep<'a, Arc<LiveRound>>,
}

impl Claim {
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            claim: self,
            state: self.state.lock(),
            step: step_now(&self.terms),
        }
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&ClaimState<Arc<LiveRound>>) -> T) -> T {
        look(&self.state.lock().claim)
    }
}

/// Returns a step that is made now.
pub(super) fn step_now(terms: &Terms) -> ClaimStep<'_, Arc<LiveRound>> {
    let monotonic = clock::monotonic();
    ClaimStep::new(terms, clock::now_at(monotonic), monotonic)
}

impl Locked<'_> {
    pub(super) fn step<T>(
        &mut self,
        step: impl FnOnce(&mut ClaimState<Arc<LiveRound>>, &mut ClaimStep<'_, Arc<LiveRound>>) -> T,
    ) -> T {
        step(&mut self.state.claim, &mut self.step)
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
        let masters = &self.claim.context.masters;
        let posted = masters.post_locked(to, command, votes_to);
        drop(self);
        drop(posted);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let claim = self.claim;
        let Some(mut notice) = self.step.notice.take() else {
            return;
        };
        if let Notice::Lost { stalled, .. } = &mut notice
            && stalled.is_some()
            && claim.context.renewer.is_crowded()
        {
            // With very many locks, the renewer may be late for another reason: it also waits for
            // votes.
            *stalled = None;
            self.state.claim.was_not_stalled();
        }
        MutexGuard::unlocked(&mut self.state, || claim.announce(notice));
    }
}

impl Claim {
    fn announce(&self, notice: Notice<Arc<LiveRound>>) {
        let (observer, lock) = (&self.context.observer, &self.terms.resource);
        let (name, hold) = (self.name(), self.hold_span());
        match notice {
            Notice::InDoubt { remaining, round } => {
                observer.in_doubt(name, &hold, remaining, &self.votes(&round));
            }
            Notice::Lost { reason, stalled } => {
                let votes = self.votes(&self.newest_round());
                observer.lost(lock, &hold, (reason, stalled), &votes);
                self.changed.notify();
                self.end_hold(HoldEnd::Lost);
            }
            Notice::Renewed {
                validity,
                was_in_doubt,
            } => observer.renewed(name, &hold, validity, was_in_doubt),
        }
    }
}
