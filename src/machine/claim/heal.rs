//! Puts the key of a lock back on masters that lack the key, or the slot that was won.

use super::{Claim, step::Step};
use crate::{
    core::{protocol::command::Action, time::lease::Ttl, vote::MasterSet},
    machine::{ClaimId, RoundId, out::What},
};

/// A request to put the key back. Its votes are noted in the round of an extension or an
/// acquisition, which then shows the masters that have the key.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) struct Heal {
    pub(in crate::machine) claim: ClaimId,
    ttl: Ttl,
    /// How many more times a master is asked if it refuses.
    tries: u32,
}

impl Heal {
    /// A master that refuses may grant the lock a moment later. A waiter that the extension has
    /// woken may have the key, or a holder that has won another slot may have this slot. Both soon
    /// give back what they have.
    const TRIES: u32 = 5;

    pub(super) fn new(step: &Step<'_>, ttl: Ttl) -> Self {
        Self {
            claim: step.id,
            ttl,
            tries: Self::TRIES,
        }
    }
}

impl Claim {
    /// Asks the masters in `lack` for the slot that `round` has won on the other masters. Masters
    /// that know the same holders choose the same slot for the next client.
    pub(in crate::machine) fn align(
        &mut self,
        step: &mut Step<'_>,
        round: RoundId,
        lack: MasterSet,
    ) {
        let heal = Heal::new(step, self.terms.ttl);
        self.heal(step, round, lack, heal);
    }

    /// Puts the key back on the masters in `lack`. They lost the key, or lack the slot that was won.
    /// Does nothing if there is no such master, or if the lock is not held.
    pub(super) fn heal(
        &mut self,
        step: &mut Step<'_>,
        round: RoundId,
        lack: MasterSet,
        heal: Heal,
    ) {
        if lack.is_empty() || self.held_at(step).is_none() {
            return;
        }
        self.last_until(step.expiry(heal.ttl));
        self.may_keep |= lack;
        let action = Action::Heal(self.holding.clone(), heal.ttl);
        step.post(lack, self.command(action), round, Some(heal));
    }

    /// Handles a vote of `master` on a heal that is no grant. Asks a master that has refused again.
    pub(in crate::machine) fn heal_refused(
        &mut self,
        step: &mut Step<'_>,
        heal: Heal,
        round: RoundId,
        master: usize,
        may_be_done: bool,
    ) {
        if may_be_done && heal.tries > 0 {
            let tries = heal.tries - 1;
            self.heal(step, round, MasterSet::only(master), Heal { tries, ..heal });
        } else if let Some(hold) = self.hold_span() {
            let votes = step.votes(round);
            self.tell(step, hold, What::NotPutBack { votes });
        }
    }
}
