//! Acquisitions that did not end in a lock, as values. The face turns them into errors.

use std::{sync::Arc, time::Duration};

use crate::{
    core::{
        config_error::ConfigError,
        vote::{master_set::MasterSet, obstacle::Obstacle, quorum::Outcome, round::Round},
        wait::chances::Chance,
    },
    driver::{
        context::{Closed, Context},
        live_round::LiveRound,
        time::clock,
    },
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

    /// Returns the chance to win that this attempt shows.
    pub(crate) fn chance(&self) -> Chance {
        match (&self.obstacle, &self.round) {
            (Obstacle::TooSlow(_) | Obstacle::Quarantined(_), _) => Chance::None,
            (_, Some(round)) => round.read(|round| Chance::of_round(round, round.outcome())),
            (_, None) => Chance::Unknown,
        }
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

impl From<Closed> for NotAcquired {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Denied> for NotAcquired {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}
