//! Acquisitions that did not end in a lock, as values. The face turns them into errors.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    core::{
        config::error::ConfigError,
        vote::{master_set::MasterSet, obstacle::Obstacle, quorum::Outcome, round::Round},
        wait::{chances::Chance, false_reports::Expiry},
    },
    driver::{live_round::LiveRound, time::clock, waiting::watched::Watched},
};

/// An attempt that did not end in a lock.
#[derive(Clone, Debug)]
pub(crate) struct Denied {
    pub(crate) obstacle: Obstacle,
    /// The round of the attempt, if there was one.
    pub(crate) round: Option<Arc<LiveRound>>,
    pub(crate) watched: Watched,
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
            watched: Watched::None,
        }
    }

    /// Returns the chance to win that this attempt shows.
    pub(crate) fn chance(&self) -> Chance {
        match (&self.obstacle, &self.round) {
            (Obstacle::TooSlow(_) | Obstacle::Quarantined(_), _) => Chance::None,
            (_, Some(round)) => round.read(|round| Chance::of_round(round, round.outcome())),
            (_, None) => Chance::Unknown,
        }
    }

    /// Returns the masters on which the lock is likely to be free after the wait.
    pub(crate) fn free(&self) -> MasterSet {
        let (Obstacle::HeldFor(Some(left)), Watched::All { release, .. }) =
            (&self.obstacle, &self.watched)
        else {
            return MasterSet::ALL;
        };
        release.read(|release| release.free_within(*left))
    }

    /// Returns when the lock expires on the master whose reports count. `None` if there is no such
    /// master. The attempt began at `start`.
    pub(crate) fn expiry(&self, start: Instant) -> Option<Expiry> {
        let (master, left) = match (&self.watched, &self.obstacle) {
            (Watched::One(master), Obstacle::HeldFor(left)) => (*master, *left),
            (Watched::All { release, agreed }, _) => {
                let master = (*agreed)?;
                (
                    master,
                    release.read(|release| release.vote(master)?.held_for()),
                )
            }
            (Watched::One(_) | Watched::None, _) => return None,
        };
        Some(Expiry::new(master, left, start, clock::now()))
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
            watched: Watched::None,
        }
    }
}

/// The reason why a lock was not acquired.
#[derive(Clone, Debug)]
pub(crate) enum NotAcquired {
    Closed,
    Config(ConfigError),
    /// The time to wait is over.
    Deadline {
        waited: Duration,
        attempts: u32,
        last: Denied,
    },
    Denied(Denied),
}

/// The reason why several locks were not acquired.
#[derive(Debug)]
pub(crate) struct NotAllAcquired {
    /// The number of the lock that was not acquired.
    pub(crate) at: usize,
    pub(crate) error: NotAcquired,
}

impl From<Denied> for NotAcquired {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}
