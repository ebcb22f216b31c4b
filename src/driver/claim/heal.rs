//! Puts the key of a held lock back on masters that lack it, or that lack its slot.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use super::Claim;
use crate::{
    core::{
        time::lease::Ttl,
        vote::{SlotVote, master_set::MasterSet},
    },
    driver::live_round::LiveRound,
    master::CountVotes,
};

/// A counter of the votes on a heal. The votes of the round then show which masters have the key.
#[derive(Clone, Debug)]
pub(super) struct HealVotes {
    round: Arc<LiveRound>,
    claim: Weak<Claim>,
    ttl: Ttl,
    /// How often a master that refuses is asked again.
    tries: u32,
}

impl HealVotes {
    /// A waiter may have the key on that master for a moment: the extension has woken it, because
    /// it changed the key on the others. Or another holder has the slot there that has won a
    /// different one. Both leave the master as soon as they know.
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

impl CountVotes for HealVotes {
    fn count(&self, master: usize, vote: SlotVote, _now: Instant) {
        let (is_done, may_be_done) = (vote.vote.is_grant(), vote.vote.may_have_slot());
        self.round.note_heal(master, vote.vote);
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

impl Claim {
    /// Puts the key back on the masters in `lack`, if the lock is held.
    pub(super) fn heal(&self, lack: MasterSet, votes: HealVotes) {
        let mut locked = self.lock();
        if let Some((to, command)) = locked.step(|claim, step| claim.heal(step, lack, votes.ttl)) {
            locked.post(to, command, votes);
        }
    }
}
