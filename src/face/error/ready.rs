//! The error of a wait for masters that can vote.

use std::time::Duration;

use crate::core::{config::error::ConfigError, vote::votes::Votes};

/// The reason why [`Coordinator::ready`](crate::Coordinator::ready) or
/// [`Coordinator::all_ready`](crate::Coordinator::all_ready) stopped waiting.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadyError {
    /// The coordinator is closed, or its runtime has shut down.
    #[error("the coordinator is closed")]
    Closed,

    /// A [blocking](crate::blocking) call cannot wait here. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// Too few masters could vote before the time limit.
    #[error(
        "only {} of {} masters can vote after {waited:.1?} (need {needed}): {votes}",
        .votes.granted_count(), .votes.master_count()
    )]
    #[non_exhaustive]
    NoQuorum {
        /// The number of masters that were needed.
        needed: usize,
        /// The duration of the call.
        waited: Duration,
        /// The last answer of each master. A grant means that the master can vote.
        votes: Votes,
    },
}

impl ReadyError {
    /// Returns whether a majority of masters can vote. If so, only
    /// [`all_ready`](crate::Coordinator::all_ready) has failed, and locks can be acquired.
    pub fn has_quorum(&self) -> bool {
        match self {
            Self::Closed | Self::Config(_) => false,
            Self::NoQuorum { votes, .. } => votes.has_quorum(),
        }
    }
}
