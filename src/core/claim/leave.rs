//! The end of a level, and the end of a claim.

use std::time::{Duration, Instant};

use super::{ClaimState, ClaimStep, Notice, Phase, ReadRound};
use crate::core::{
    protocol::{
        access::Access,
        command::{Action, Command, Holding},
        name::LockId,
    },
    vote::{master_set::MasterSet, round::Round},
};

/// The command that ends a level.
#[derive(Debug)]
pub(crate) enum Leave<R> {
    /// Other levels are left. All masters are told the depth. No master is owed this, because the
    /// next extension also sets the depth.
    Depth(Command),
    /// The lock stays on the masters without a holder. This is its last extension.
    InPlace { command: Command, until: Instant },
    /// The last level is released.
    Release {
        /// The masters that need the release. For all others, the key counts as gone.
        to: MasterSet,
        command: Command,
        was_won: bool,
        owed: OwedRelease<R>,
    },
}

/// The release that masters are owed.
#[derive(Debug)]
pub(crate) struct OwedRelease<R> {
    /// The instant on the monotonic clock at which everything that the claim may have written has
    /// expired.
    pub(crate) until: Instant,
    /// See [`Traces`](super::Traces).
    may_keep: MasterSet,
    newest: R,
}

impl<R: ReadRound> OwedRelease<R> {
    /// Returns the masters that may have the key or the ticket. A late vote in the newest round may
    /// show that a master has nothing.
    pub(crate) fn to(&self) -> MasterSet {
        self.may_keep | self.newest.read(Round::may_keep)
    }
}

impl<R: ReadRound> ClaimState<R> {
    /// Removes one level. The last level is released, or left in place.
    pub(crate) fn leave(&mut self, step: &mut ClaimStep<'_, R>, access: Access) -> Leave<R> {
        let lock_id = &step.terms.lock_id;
        let last = self.holding();
        self.levels.remove(access);
        if self.levels.depth() > 0 {
            let (holding, was_won) = (self.holding(), true);
            let release = Action::Release { holding, was_won };
            return Leave::Depth(Command::new(lock_id, release));
        }
        self.look(step); // notes an expiry that no one has noticed
        let leave = match self.time_to_stay(step) {
            Some(time) => {
                let ttl = step.terms.drift.outlasting(time);
                Leave::InPlace {
                    command: Command::new(lock_id, Action::Extend(last, ttl)),
                    until: self.traces.until,
                }
            }
            None => self.release(lock_id, last),
        };
        if self.is_held() {
            step.notice = Some(match leave {
                Leave::InPlace { .. } => Notice::Left,
                Leave::Depth(_) | Leave::Release { .. } => Notice::Released,
            });
        }
        self.phase = Phase::Released;
        leave
    }

    /// Returns for how long the lock must stay on the masters without a holder.
    fn time_to_stay(&self, step: &ClaimStep<'_, R>) -> Option<Duration> {
        let Phase::Held(held) = &self.phase else {
            return None;
        };
        held.stays_until?.checked_duration_since(step.monotonic)
    }

    fn release(&self, lock_id: &LockId, last: Holding) -> Leave<R> {
        let was_won = self.was_won();
        let holding = Holding { depth: 0, ..last };
        Leave::Release {
            to: self.needs_release(),
            command: Command::new(lock_id, Action::Release { holding, was_won }),
            was_won,
            owed: OwedRelease {
                until: self.traces.until,
                may_keep: self.traces.may_keep,
                newest: self.newest.clone(),
            },
        }
    }

    /// Returns the masters that need a release. If the newest acquisition did not ask all masters,
    /// these are only the masters that may have the key, also because of an earlier round.
    fn needs_release(&self) -> MasterSet {
        match self.phase {
            Phase::Asking { unasked } if !unasked.is_empty() => {
                (self.newest.read(Round::may_keep) - unasked) | self.traces.may_keep
            }
            Phase::Asking { .. } | Phase::Held(_) | Phase::Lost { .. } | Phase::Released => {
                MasterSet::ALL
            }
        }
    }
}
