//! The errors, one type for each thing that a program does about them.
//!
//! A message includes the message of its cause, so `source` returns `None`.

use std::{sync::Arc, time::Duration};

pub use self::acquire::AcquireError;
use crate::core::{
    config_error::ConfigError,
    view::{LostReason, inspection::MasterView},
    vote::{Vote, votes::Votes},
};

mod acquire;

/// The reason why a lock was not extended.
///
/// No key was created, deleted or shortened. Masters that confirmed keep the key for the new TTL.
/// That prolongs the validity of the guard only if late answers make a majority.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The TTL cannot be used. Nothing was sent. The guard is as valid as before the call.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// The lock is lost, so the guard is not valid. If the lock was lost before the call, nothing
    /// was sent.
    #[error(transparent)]
    Lost(#[from] LostError),

    /// Too few masters confirmed in time. The guard is as valid as before the call. Try again after
    /// a pause, while the guard is valid.
    #[error(transparent)]
    NoQuorum(#[from] QuorumError),
}

/// The reason why a question to all masters has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The coordinator is closed, its runtime has shut down, a stream of the program panicked in
    /// the task of the coordinator, or the coordinator was made before this process was forked. An
    /// inspection still works after `close`.
    #[error(
        "the coordinator is closed, its runtime ended, a task panicked, \
         or this process was forked, and needs a coordinator of its own"
    )]
    Closed,

    /// The name cannot be used. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// So many masters deny a right, or lack a command, that the others are no majority. A call
    /// that waits did not wait until its time limit, because only someone who gives the right can
    /// change this.
    #[error("a right or a command is missing on {}: {votes}", .votes.denial_text())]
    #[non_exhaustive]
    Denied {
        /// The last answer of each master. A grant means that the master can vote.
        votes: Votes,
    },

    /// Too few masters answered, or can vote.
    #[error(transparent)]
    NoQuorum(#[from] QuorumError),

    /// A majority of masters can vote, but not all of them. Locks can be acquired. Only
    /// [`all_ready_within`](crate::Coordinator::all_ready_within) reports this.
    #[error("only {} of {} masters can vote: {votes}", .votes.granted_count(), .votes.master_count())]
    #[non_exhaustive]
    NotAll {
        /// The last answer of each master. A grant means that the master can vote.
        votes: Votes,
    },
}

impl AskError {
    /// Returns whether to stop asking: after a mistake, and if this coordinator is closed.
    pub fn is_final(&self) -> bool {
        self.is_mistake() || matches!(self, Self::Closed)
    }

    /// Returns the last answer of each master. `None` if nothing was sent.
    #[doc(hidden)]
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Closed | Self::Config(_) => None,
            Self::Denied { votes } | Self::NotAll { votes } => Some(votes),
            Self::NoQuorum(error) => Some(&error.votes),
        }
    }

    /// Returns whether another call fails as well, because of a mistake in this program, or in the
    /// settings and rights of the masters.
    pub fn is_mistake(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Denied { .. })
    }
}

/// Too few masters did what was asked, or answered in time.
///
/// After a release, the caller need not do anything, unless the lock has a minimum hold: see
/// [`Guard::release`](crate::Guard::release).
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {votes}", self.text())]
#[non_exhaustive]
pub struct QuorumError {
    /// The lock's name. `None` if the question was about no lock.
    pub name: Option<Arc<str>>,
    /// The votes of the round that failed, or the last answer of each master.
    pub votes: Votes,
    pub(crate) asked: Asked,
}

/// What too few masters did.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Break,
    /// An extension of a lock that is still valid for this time.
    Extend(Duration),
    /// An extension that a majority confirmed too late.
    ExtendTooLate,
    /// An inspection. What each master answered is not enough to know who holds the lock.
    Inspect(Vec<MasterView>),
    /// The end of a hold whose lock should stay for its minimum hold.
    Keep,
    /// A question that began this time ago.
    Ready(Duration),
    Release,
}

impl QuorumError {
    pub(crate) fn new(name: &Arc<str>, votes: Votes, asked: Asked) -> Self {
        Self {
            name: Some(name.clone()),
            votes,
            asked,
        }
    }

    /// Returns the report of each master on the lock that was inspected, in the order in which the
    /// masters were configured. Empty after anything but an inspection.
    #[doc(hidden)]
    pub fn views(&self) -> &[MasterView] {
        match &self.asked {
            Asked::Inspect(views) => views,
            _ => &[],
        }
    }

    fn text(&self) -> String {
        let (name, votes) = (self.name.as_deref().unwrap_or_default(), &self.votes);
        let only = |did, of| votes.tally_text(did, of);
        match &self.asked {
            Asked::Extend(left) => format!(
                "could not extend {name:?}: only {}, still valid for {left:.1?}",
                only(" confirmed", Vote::is_grant)
            ),
            Asked::ExtendTooLate => {
                format!("could not extend {name:?}: a majority confirmed too late to be of use")
            }
            Asked::Inspect(_) => format!(
                "could not inspect {name:?}: only {}",
                only(" answered", Vote::is_grant)
            ),
            Asked::Break => format!("broke {name:?} on only {}", only("", Vote::is_answer)),
            Asked::Keep => format!(
                "kept {name:?} for its minimum hold on only {}, \
                 others may get it when its TTL has passed",
                only("", Vote::is_grant)
            ),
            Asked::Ready(waited) => {
                format!(
                    "only {} after {waited:.1?}",
                    only(" can vote", Vote::is_grant)
                )
            }
            Asked::Release => format!(
                "released {name:?} on only {}; \
                 the others get the release when they can be reached, or the lock ends with its TTL",
                only("", Vote::is_answer)
            ),
        }
    }
}

/// A lock that was held is lost. Its keys are gone, or will be gone when their TTL has passed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("lost {name:?}: {}; last round: {votes}", .reason.after(*.stalled))]
#[non_exhaustive]
pub struct LostError {
    /// The lock's name.
    pub name: Arc<str>,
    /// The reason.
    pub reason: LostReason,
    /// Before the loss, this process stood still for at least this time, so it could not renew the
    /// lock. `None` if the process ran, or if that is not known.
    pub stalled: Option<Duration>,
    /// The votes of the last round.
    pub votes: Votes,
}
