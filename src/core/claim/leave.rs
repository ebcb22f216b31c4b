//! The end of a level, and the end of a claim.

use std::time::{Duration, Instant};

use super::{ClaimState, ClaimStep, Notice, Phase};
use crate::core::{
    kind::Access,
    protocol::command::{Action, Command, Holding},
    vote::{master_set::MasterSet, round::Round},
};

/// The command that ends a level.
#[derive(Debug)]
pub(crate) struct Leave {
    pub(crate) command: Command,
    /// The masters that need the command. For all others, the key counts as gone.
    pub(crate) to: MasterSet,
    /// The instant on the monotonic clock at which everything that the claim may have written has
    /// expired. `None` if other levels are left.
    pub(crate) until: Option<Instant>,
    /// The masters that are owed a release of the last level, besides those that may keep what the
    /// newest round has asked for: a late vote in that round may show that a master has nothing.
    /// `None` if the command is no such release. If other levels are left, the next extension also
    /// sets the depth.
    pub(crate) owed: Option<MasterSet>,
}

impl ClaimState {
    /// Removes one level. The last level is released, or left in place.
    pub(crate) fn leave(&mut self, step: &mut ClaimStep<'_>, access: Access) -> Leave {
        let lock_id = &step.terms.lock_id;
        let last = self.holding();
        self.levels.remove(access);
        if self.levels.depth() > 0 {
            let (holding, was_won) = (self.holding(), true);
            return Leave {
                command: Command::new(lock_id, Action::Release { holding, was_won }),
                to: MasterSet::ALL,
                until: None,
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
            until: Some(self.traces.until),
            owed: time_to_stay.is_none().then_some(self.traces.may_keep),
        }
    }

    /// Returns for how long the lock must stay on the masters without a holder.
    fn time_to_stay(&self, step: &ClaimStep<'_>) -> Option<Duration> {
        let Phase::Held(held) = &self.phase else {
            return None;
        };
        held.stays_until?.checked_duration_since(step.monotonic)
    }

    /// Returns the masters that need a release. If the newest acquisition did not ask all masters,
    /// these are only the masters that may have the key, also because of an earlier round.
    fn needs_release(&self, newest: &Round) -> MasterSet {
        match self.phase {
            Phase::Asking { unasked } if !unasked.is_empty() => {
                (newest.may_keep() - unasked) | self.traces.may_keep
            }
            Phase::Asking { .. } | Phase::Held(_) | Phase::Lost { .. } | Phase::Released => {
                MasterSet::ALL
            }
        }
    }
}
