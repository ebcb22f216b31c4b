//! Acquisitions that did not end in a lock, as values. The face turns them into errors.

use std::{sync::Arc, time::Duration};

use super::{clock, live_round::LiveRound};
use crate::core::{chances::Chance, config_error::ConfigError, refused::Refused, round::Outcome};

/// An attempt that did not end in a lock.
#[derive(Clone, Debug)]
pub(crate) struct Denied {
    pub(crate) refused: Refused,
    /// The round of the attempt, if there was one.
    pub(crate) round: Option<Arc<LiveRound>>,
}

impl Denied {
    /// Returns why `round`, an acquisition, did not end in a lock. The masters say that the lock
    /// will be free in `free_in`.
    pub(crate) fn by(round: Arc<LiveRound>, outcome: Outcome, free_in: Option<Duration>) -> Self {
        let elapsed = round.elapsed(clock::now());
        let refused = round.read(|round| Refused::of(round, outcome, free_in, elapsed));
        Self {
            refused,
            round: Some(round),
        }
    }

    /// Returns the chance to win that this attempt shows.
    pub(crate) fn chance(&self) -> Chance {
        match (&self.refused, &self.round) {
            (Refused::TooSlow(_) | Refused::Quarantined(_), _) => Chance::None,
            (_, Some(round)) => round.read(|round| Chance::of_round(round, round.outcome())),
            (_, None) => Chance::Unknown,
        }
    }

    pub(crate) fn owner_busy() -> Self {
        Self {
            refused: Refused::OwnerBusy,
            round: None,
        }
    }
}

/// The reason why a lock was not acquired.
#[derive(Clone, Debug)]
pub(crate) enum NotAcquired {
    Closed,
    Config(ConfigError),
    Denied(Denied),
    /// The time to wait is over.
    Deadline {
        waited: Duration,
        attempts: u32,
        last: Denied,
    },
}

impl From<Denied> for NotAcquired {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}
