//! Attempts that did not end in a lock.

use std::time::Duration;

use crate::{
    clock,
    core::{
        error::{AcquireError, Contention},
        vote::{MasterSet, obstacle::Obstacle, quorum::Outcome, round::Round},
        wait::{pauses::Met, reach::Reach},
    },
    driver::{claim::ask::LockRequest, round_handle::RoundHandle},
};

/// An attempt that did not end in a lock.
#[derive(Debug, thiserror::Error)]
#[error("{obstacle}")]
pub(crate) struct Denied {
    pub(super) obstacle: Obstacle,
    /// The round that was not won. `None` if nothing was sent.
    pub(super) round: Option<RoundHandle>,
    /// The round after which masters tell the waiter about the next change of the lock.
    pub(super) watching: Option<RoundHandle>,
}

impl Denied {
    /// Returns why `round`, an acquisition, did not end in a lock. The masters say that the lock
    /// will be free in `free_in`.
    pub(super) fn by(round: RoundHandle, outcome: Outcome, free_in: Option<Duration>) -> Self {
        let elapsed = round.elapsed(clock::now());
        let obstacle = round.read(|round| Obstacle::of(round, outcome, free_in, elapsed));
        Self::new(obstacle, Some(round))
    }

    pub(super) fn new(obstacle: Obstacle, round: Option<RoundHandle>) -> Self {
        Self {
            obstacle,
            round,
            watching: None,
        }
    }

    /// Notes what this attempt at the lock of `request` has shown, and reports it to the observer.
    pub(super) fn note(&self, request: &LockRequest) {
        use Obstacle::{MissingRight, NoQuorum, Quarantined, TooSlow};
        let context = &request.context;
        if let Some(round) = &self.round {
            round.read(|round| context.rights.note(request.rights(), round));
        }
        match (&self.obstacle, &self.round) {
            (reason @ (MissingRight | NoQuorum | Quarantined(_) | TooSlow(_)), Some(round)) => {
                let votes = || round.votes().to_string();
                let name = request.lock_id.name();
                context.observer().lacks_quorum(name, reason, votes);
            }
            (_, Some(_)) => context.observer().found_quorum(),
            (_, None) => {}
        }
    }

    /// Returns whether this attempt reached a majority of masters, or `None` if that is not
    /// certain.
    pub(super) fn is_reached(&self) -> Option<bool> {
        let is_too_slow = matches!(self.obstacle, Obstacle::TooSlow(_));
        (self.round.as_ref()?).read(|round| Reach::of(round, is_too_slow))
    }

    /// Returns the masters on which other clients hold or want the lock. A waiter asks one of these
    /// masters first.
    pub(super) fn wanted_by_others(&self) -> MasterSet {
        use Obstacle::{Quarantined, Queued, Split};
        match (&self.obstacle, &self.watching) {
            (_, Some(round)) => round.read(Round::held_by_others),
            (Split | Queued | Quarantined(_), None) => MasterSet::ALL,
            (_, None) => MasterSet::NONE,
        }
    }

    /// Returns the obstacle of this attempt, and whether at least one master granted the lock.
    pub(super) fn met(&self) -> Met<'_> {
        let round = self.round.as_ref();
        let took_some = round.is_some_and(|round| !round.read(Round::granted).is_empty());
        (&self.obstacle, took_some)
    }

    /// Returns the error of a call that ends with this attempt at the lock of `request`.
    pub(super) fn error(&self, request: &LockRequest) -> AcquireError {
        let (context, name) = (&request.context, request.lock_id.name().clone());
        let Some(round) = &self.round else {
            return AcquireError::OwnerBusy { name };
        };
        let votes = round.votes();
        let reason = match self.obstacle {
            Obstacle::OwnerBusy => return AcquireError::OwnerBusy { name },
            Obstacle::HeldFor(remaining) => Contention::Held { remaining },
            Obstacle::Queued => Contention::Queued,
            Obstacle::Split => Contention::Split,
            Obstacle::MissingRight => {
                let key = request.lock_id.key().clone();
                return AcquireError::MissingRight { name, key, votes };
            }
            Obstacle::NoQuorum => return AcquireError::NoQuorum { name, votes },
            Obstacle::OtherKind => {
                let asked = request.lock_id.kind();
                return AcquireError::OtherKind { name, asked, votes };
            }
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
            own_guard: is_held && context.holds(&request.lock_id),
            votes,
        }
    }
}
