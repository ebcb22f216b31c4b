//! Why masters did not answer a question.

use std::{sync::Arc, time::Duration};

use super::acquire::BlockingError;
use crate::core::{
    config_error::ConfigError,
    view::inspection::MasterView,
    vote::{Vote, votes::Votes},
};

/// The reason why a lock was not inspected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// A [blocking](crate::blocking) call was made where it cannot wait. It sent nothing.
    #[error(transparent)]
    Blocking(#[from] BlockingError),

    /// The name cannot be used. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// Too few masters answered, so it is not known who holds the lock.
    #[error(
        "could not inspect {name:?}: only {}: {votes}",
        .votes.tally_text(" answered", Vote::is_grant)
    )]
    #[non_exhaustive]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// The votes of the round that failed.
        votes: Votes,
        /// The report of each master, in the order in which the masters were configured.
        views: Vec<MasterView>,
    },
}

/// The reason why [`Coordinator::ready`](crate::Coordinator::ready) or
/// [`Coordinator::all_ready`](crate::Coordinator::all_ready) stopped waiting.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadyError {
    /// A [blocking](crate::blocking) call was made where it cannot wait. Nothing was sent.
    #[error(transparent)]
    Blocking(#[from] BlockingError),

    /// The coordinator is closed, its runtime has shut down, a stream of the program panicked in the
    /// task of the coordinator, or the coordinator was made before this process was forked.
    #[error(
        "the coordinator is closed, its runtime ended, a task panicked, \
         or this process was forked: make the coordinator after the fork"
    )]
    Closed,

    /// So many masters deny a right, or lack a command, that the others are no majority. The call
    /// did not wait until its time limit, because only someone who gives the right can change this.
    #[error("a right or a command is missing on {}: {votes}", .votes.denial_text())]
    #[non_exhaustive]
    MissingRight {
        /// The last answer of each master. A grant means that the master can vote.
        votes: Votes,
    },

    /// Too few masters could vote before the time limit.
    #[error("only {} after {waited:.1?}: {votes}", too_few(votes, *need_all))]
    #[non_exhaustive]
    NoQuorum {
        /// The duration of the call.
        waited: Duration,
        /// The last answer of each master. A grant means that the master can vote.
        votes: Votes,
        /// Whether the call waited for all masters. Otherwise, it waited for a majority.
        need_all: bool,
    },
}

fn too_few(votes: &Votes, need_all: bool) -> String {
    if !need_all {
        return votes.tally_text(" can vote", Vote::is_grant);
    }
    let (count, all) = (votes.granted_count(), votes.master_count());
    format!("{count} of {all} masters can vote")
}

impl ReadyError {
    /// Returns whether a majority of masters can vote. If so, locks can be acquired although
    /// [`all_ready`](crate::Coordinator::all_ready) has failed.
    pub fn has_quorum(&self) -> bool {
        matches!(self, Self::NoQuorum { votes, .. } if votes.has_quorum())
    }
}
