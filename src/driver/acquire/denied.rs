//! Attempts that did not end in a lock.

use std::{sync::Arc, time::Duration};

use crate::{
    core::{
        error::{AcquireError, Contention},
        vote::{master_set::MasterSet, obstacle::Obstacle, quorum::Outcome, round::Round},
        wait::chances::Reach,
    },
    driver::{claim::ask::LockRequest, context::Context, live_round::LiveRound, time::clock},
};

/// An attempt that did not end in a lock.
#[derive(Clone, Debug)]
pub(crate) struct Denied {
    pub(crate) obstacle: Obstacle,
    /// The round of the attempt, if there was one.
    pub(crate) round: Option<Arc<LiveRound>>,
    /// The round whose answers make masters tell a waiter of the next change. The waiter asks again
    /// then.
    pub(crate) watched: Option<Arc<LiveRound>>,
}

impl Denied {
    /// Returns why `round`, an acquisition, did not end in a lock. The masters say that the lock
    /// will be free in `free_in`.
    pub(crate) fn by(round: Arc<LiveRound>, outcome: Outcome, free_in: Option<Duration>) -> Self {
        let elapsed = round.elapsed(clock::now());
        let obstacle = round.read(|round| Obstacle::of(round, outcome, free_in, elapsed));
        Self::in_round(obstacle, round)
    }

    pub(crate) fn in_round(obstacle: Obstacle, round: Arc<LiveRound>) -> Self {
        Self {
            obstacle,
            round: Some(round),
            watched: None,
        }
    }

    /// Tells the observer of this attempt at the lock `name`.
    pub(super) fn note(&self, context: &Context, name: &str) {
        let (observer, Some(round)) = (&context.observer, &self.round) else {
            return;
        };
        if let reason @ (Obstacle::NoQuorum | Obstacle::Quarantined(_) | Obstacle::TooSlow(_)) =
            &self.obstacle
        {
            let votes = || context.masters.votes(round).to_string();
            observer.lacks_quorum(name, reason, votes);
        } else if !round.is_pending() {
            // A round that is pending has asked one master only.
            observer.found_quorum();
        }
    }

    /// Returns whether this attempt reached a majority, if it shows that.
    pub(crate) fn is_reached(&self) -> Option<bool> {
        let is_too_slow = matches!(self.obstacle, Obstacle::TooSlow(_));
        let round = self.round.as_ref()?;
        round.read(|round| Reach::of(round, is_too_slow))
    }

    /// Returns the masters that other clients want now, too. A waiter asks one of them first.
    pub(crate) fn contested(&self) -> MasterSet {
        match (&self.obstacle, &self.watched) {
            (_, Some(round)) => round.read(Round::held_by_others),
            (Obstacle::Split | Obstacle::Queued | Obstacle::Quarantined(_), None) => MasterSet::ALL,
            (_, None) => MasterSet::NONE,
        }
    }

    /// Returns whether any master granted the lock.
    pub(crate) fn took_some(&self) -> bool {
        let round = self.round.as_ref();
        round.is_some_and(|round| !round.read(Round::granted).is_empty())
    }

    pub(crate) fn owner_busy() -> Self {
        Self {
            obstacle: Obstacle::OwnerBusy,
            round: None,
            watched: None,
        }
    }

    /// Returns the error of a call that ends with this attempt at the lock of `request`.
    pub(in crate::driver) fn error(
        &self,
        context: &Context,
        request: &LockRequest,
    ) -> AcquireError {
        let name = request.lock_id.name().clone();
        let Some(round) = &self.round else {
            return AcquireError::OwnerBusy { name };
        };
        let votes = context.masters.votes(round);
        let reason = match self.obstacle {
            Obstacle::HeldFor(remaining) => Contention::Held { remaining },
            Obstacle::Queued => Contention::Queued,
            Obstacle::Split => Contention::Split,
            Obstacle::NoQuorum => return AcquireError::NoQuorum { name, votes },
            Obstacle::OtherKind => {
                let asked = request.lock_id.kind();
                return AcquireError::OtherKind { name, asked, votes };
            }
            Obstacle::OwnerBusy => return AcquireError::OwnerBusy { name },
            Obstacle::Quarantined(remaining) => {
                return AcquireError::Quarantined {
                    name,
                    remaining,
                    votes,
                };
            }
            Obstacle::TooSlow(elapsed) => {
                return AcquireError::TooSlow {
                    name,
                    elapsed,
                    ttl: request.ttl.duration(),
                    votes,
                };
            }
        };
        let is_held = matches!(reason, Contention::Held { .. });
        AcquireError::Contended {
            name,
            reason,
            own_guard: is_held && context.renewer.holds(&request.lock_id),
            votes,
        }
    }
}
