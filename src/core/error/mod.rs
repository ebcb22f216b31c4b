//! The errors, one type for each operation.
//!
//! A message includes the message of its cause, so `source` returns `None`.

use std::{sync::Arc, time::Duration};

pub use self::acquire::{AcquireError, Contention};
use crate::core::{
    config_error::ConfigError,
    kind::Kind,
    view::{LostReason, inspection::MasterView},
    vote::{Vote, votes::Votes},
};

mod acquire;

/// The reason why a lock was not extended.
///
/// After [`Lost`](Self::Lost) and [`Expired`](Self::Expired) the guard is not valid. After any
/// other error, the guard is as valid as before the call. No key was created, deleted or shortened.
/// Masters that confirmed keep the key for the new TTL, but that does not prolong the validity of
/// the guard.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The TTL cannot be used. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// The guard's validity has ended. If the validity ended before the call, nothing was sent. It
    /// may also have ended after a majority had confirmed, but before the calling task ran again.
    #[error("could not extend {name:?}: its validity ended {since:.1?} ago")]
    #[non_exhaustive]
    Expired {
        /// The lock's name.
        name: Arc<str>,
        /// The time since the validity ended.
        since: Duration,
    },

    /// The lock is lost: a majority of masters say that the guard does not hold it.
    #[error("could not extend {name:?}: it is lost: {votes}")]
    #[non_exhaustive]
    Lost {
        /// The lock's name.
        name: Arc<str>,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// Too few masters confirmed. The lock is still valid for `remaining`. Try again after a pause.
    #[error(
        "could not extend {name:?}: only {}, still valid for {remaining:.1?}: {votes}",
        .votes.tally_text(" confirmed", Vote::is_grant)
    )]
    #[non_exhaustive]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// The rest of the guard's validity.
        remaining: Duration,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// A majority confirmed too late. By then, the guard's validity had ended, or even the extended
    /// validity would have been over.
    #[error("could not extend {name:?}: a majority confirmed too late to be of use: {votes}")]
    #[non_exhaustive]
    TooSlow {
        /// The lock's name.
        name: Arc<str>,
        /// The votes of the round that failed.
        votes: Votes,
    },
}

/// Only the guard of a [read-write lock](crate::Coordinator::read_write) can become the guard of a
/// reader. The guard of this call stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {kind} has no readers: only the guard of a read-write lock can become a reader's")]
#[non_exhaustive]
pub struct DowngradeError {
    /// The kind of the lock.
    pub kind: Kind,
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

/// The reason why [`Lock::run`](crate::Lock::run) did not return the value of its body.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The lock was not acquired, and the body did not run.
    #[error(transparent)]
    Acquire(#[from] AcquireError),

    /// The body returned an error. It is not the `source` of this `RunError`, because `E` need not
    /// be an error type.
    #[error("{0}")]
    Body(E),

    /// The lock was lost before the body ended. The body was dropped unfinished, or it returned a
    /// value too late.
    #[error(transparent)]
    Lost(#[from] LostError),
}

/// The reason why a release was not confirmed, or why a lock was not left in place.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Fewer than a majority of masters confirmed. The coordinator keeps trying to release the lock
    /// on the other masters until the TTL has passed. Then their keys expire. The caller need not
    /// do anything.
    ///
    /// If the owner has other guards of the lock, only one level was released. The coordinator does
    /// not send such a release again: the next extension or release tells the masters the depth.
    #[error(
        "released {name:?} on only {}, \
         the others are owed the release until the TTL has passed: {votes}",
        .votes.tally_text("", Vote::is_answer)
    )]
    #[non_exhaustive]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// The lock should have been left in place for its [minimum time](crate::Lock::min_hold), but
    /// fewer than a majority of masters confirmed this. Other clients may get the lock when its TTL
    /// has passed. On the masters that confirmed, the key stays for the rest of the minimum time.
    /// If half of the masters confirmed, other clients cannot get the lock in this time.
    #[error(
        "kept {name:?} for its minimum time on only {}, \
         others may get it when its TTL has passed: {votes}",
        .votes.tally_text("", Vote::is_grant)
    )]
    #[non_exhaustive]
    NotLeft {
        /// The lock's name.
        name: Arc<str>,
        /// The votes of the round that failed.
        votes: Votes,
    },
}

/// The reason why a lock was not inspected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
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
