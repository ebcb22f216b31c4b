//! What can go wrong, one enum per verb, each variant saying what the masters may still hold.

use std::{sync::Arc, time::Duration};

pub use crate::core::config_error::ConfigError;
use crate::core::{
    lock_state::LostReason,
    name::Kind,
    quorum::{Refusal, Vote},
    votes::{VoteRow, Votes},
};

/// Why a lock was not acquired.
///
/// Whatever the variant: nothing is held by this attempt. Every attempt that did not end in a lock was followed
/// by a release on all masters; a master that could not be reached is owed it until the TTL has passed. What the
/// owner of a reentrant or fair lock held before is as valid as it was.
///
/// What to do about it hangs on the [cause](Self::last_attempt), which looks through [`Deadline`](Self::Deadline):
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use quorlock::{AcquireError, Coordinator, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// # let lock = locks.mutex("orders/42");
/// # let _holder = lock.acquire().await?;
/// match lock.acquire_within(Duration::from_millis(20)).await {
///     Ok(guard) => drop(guard), // work
///     Err(error) => match error.last_attempt() {
///         AcquireError::Contended { .. } => println!("somebody is at it: {error}"),
///         AcquireError::NoQuorum { votes, .. } => println!("{} masters failed: {error}", votes.failed()),
///         AcquireError::Quarantined { left, .. } => println!("none to be had for {left:?}: {error}"),
///         AcquireError::OtherKind { .. } => return Err(error.into()), // a mistake: no use to try again
///         _ => return Err(error.into()),
///     },
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The coordinator was closed. Nothing was sent.
    #[error("could not lock: the coordinator is closed")]
    Closed,

    /// A setting does not fit. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// Somebody else holds the lock, split the vote with us, or waits for a fair one and comes first. Trying
    /// again later makes sense.
    #[error(
        "could not lock {name:?}: {} on {} of {} masters{}: {votes}",
        in_the_way(.votes), .votes.refused(), .votes.master_count(), for_still(*.remaining)
    )]
    Contended {
        /// The lock's name.
        name: Arc<str>,
        /// When a majority of masters will be free again unless whoever holds them extends or releases,
        /// as far as the masters have said. Zero after a split vote, and where a fair lock is free and others
        /// wait for it; masters say it when what they granted is taken back, so it may be of a holder that came
        /// meanwhile.
        remaining: Option<Duration>,
        /// Who said what.
        votes: Votes,
    },

    /// The time given to [`Lock::acquire_within`](crate::Lock::acquire_within) is over.
    #[error("gave up after {attempts} attempts in {waited:.1?}: {last}")]
    Deadline {
        /// The lock's name.
        name: Arc<str>,
        /// How long was waited.
        waited: Duration,
        /// How many rounds were run.
        attempts: u32,
        /// How the last round failed.
        last: Box<Self>,
    },

    /// Too many masters failed: nobody can get this lock until they are back. Also where some are down and the rest of
    /// them have no vote for a while: `votes` says which, and for how long
    /// ([`Failure::Quarantined`](crate::Failure::Quarantined)).
    #[error(
        "could not lock {name:?}: only {} of {} masters voted (need {}): {votes}",
        .votes.granted() + .votes.refused(), .votes.master_count(), .votes.quorum()
    )]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// Who said what.
        votes: Votes,
    },

    /// The name is held as another kind of lock, which is a mistake somewhere: waiting does not mend it. Found only
    /// while it is held.
    #[error("could not lock {name:?} as a {asked}, use one kind for each name: {votes}")]
    OtherKind {
        /// The lock's name.
        name: Arc<str>,
        /// The kind that was asked for.
        asked: Kind,
        /// Who said what.
        votes: Votes,
    },

    /// Another task of the same [owner](crate::Owner) is in the middle of an attempt at this lock,
    /// and has been for as long as an attempt takes. Nothing was sent. Tasks of one owner make
    /// their attempts one after the other. Trying again later makes sense, unless that task does
    /// not poll its future any more: see [`Lock`](crate::Lock).
    #[error("could not lock {name:?}: another task of its owner is in the middle of an attempt")]
    OwnerBusy {
        /// The lock's name.
        name: Arc<str>,
    },

    /// So many masters may have forgotten locks, by a restart say, that the others are no majority. They have no vote
    /// until all that they may have forgotten is over.
    #[error(
        "could not lock {name:?}: too many masters may have forgotten locks, enough of them vote again in {left:.1?}: {votes}"
    )]
    Quarantined {
        /// The lock's name.
        name: Arc<str>,
        /// In how long enough of them may vote again. To wait for it and try again is right, and what
        /// [`Lock::acquire`](crate::Lock::acquire) does.
        left: Duration,
        /// Who said what.
        votes: Votes,
    },

    /// A majority granted, but so late that no validity was left.
    #[error(
        "could not lock {name:?}: a majority took {elapsed:.1?} to grant a ttl of {ttl:?}: {votes}"
    )]
    TooSlow {
        /// The lock's name.
        name: Arc<str>,
        /// How long the majority took.
        elapsed: Duration,
        /// What was asked for.
        ttl: Duration,
        /// Who said what.
        votes: Votes,
    },
}

impl AcquireError {
    /// How the last round failed, where the time [was over](Self::Deadline); else this error.
    pub fn last_attempt(&self) -> &Self {
        match self {
            Self::Deadline { last, .. } => last.last_attempt(),
            error => error,
        }
    }
}

/// Why a lock was not extended.
///
/// The guard is as valid as before, which is not at all after [`Lost`](Self::Lost) and [`Expired`](Self::Expired), and
/// no master's key was created, deleted or shortened. Masters that confirmed hold the lock for the new TTL, which gives
/// the guard nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// A setting does not fit. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// The guard's validity was over before the extension was asked for, and nothing was sent; or it
    /// was over before this task got to run again.
    #[error("could not extend {name:?}: its validity ended {since:.1?} ago")]
    Expired {
        /// The lock's name.
        name: Arc<str>,
        /// How long it has been over.
        since: Duration,
    },

    /// A majority of masters say that the lock is not ours any more: it is lost.
    #[error("could not extend {name:?}: it is lost: {votes}")]
    Lost {
        /// The lock's name.
        name: Arc<str>,
        /// Who said what.
        votes: Votes,
    },

    /// Too few masters confirmed. The lock is still valid for `remaining`; trying again after a pause makes sense.
    #[error(
        "could not extend {name:?}: only {} of {} masters confirmed (need {}), still valid for {remaining:.1?}: {votes}",
        .votes.granted(), .votes.master_count(), .votes.quorum()
    )]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// For how long the guard stays valid.
        remaining: Duration,
        /// Who said what.
        votes: Votes,
    },

    /// A majority confirmed, but after the validity of the guard had ended, or that which it would have got.
    #[error("could not extend {name:?}: a majority confirmed too late to be of use: {votes}")]
    TooSlow {
        /// The lock's name.
        name: Arc<str>,
        /// Who said what.
        votes: Votes,
    },
}

/// Why a lock was not looked at.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// A setting does not fit. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// Too few masters answered to say who holds it.
    #[error(
        "could not inspect {name:?}: only {} of {} masters answered (need {}): {votes}",
        .votes.granted(), .votes.master_count(), .votes.quorum()
    )]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// Who said what.
        votes: Votes,
    },
}

/// A lock that was held is not held any more. Its keys are gone, or will be when their TTL has passed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("lost {name:?}: {reason}; last round: {votes}")]
#[non_exhaustive]
pub struct LostError {
    /// The lock's name.
    pub name: Arc<str>,
    /// Why it was lost.
    pub reason: LostReason,
    /// Who said what in the last round.
    pub votes: Votes,
}

/// Why [`Lock::run`](crate::Lock::run) did not return what its body did.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The lock was not acquired, and the body did not run.
    #[error(transparent)]
    Acquire(#[from] AcquireError),

    /// The body failed.
    #[error("{0}")]
    Body(E),

    /// The lock was lost before the body had ended. The body was dropped where it waited, or had ended
    /// too late.
    #[error(transparent)]
    Lost(#[from] LostError),
}

/// Why a release was not confirmed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Fewer than a majority of masters confirmed. The others are owed the release until the TTL has
    /// passed, and then their keys are gone by themselves; nothing is left to do but to know it.
    #[error(
        "released {name:?} on only {} of {} masters (need {}), the rest are owed it until its ttl has passed: {votes}",
        .votes.granted() + .votes.refused(), .votes.master_count(), .votes.quorum()
    )]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// Who said what.
        votes: Votes,
    },
}

/// Who is, where masters refused.
fn in_the_way(votes: &Votes) -> &'static str {
    let is_held =
        |row: VoteRow<'_>| !matches!(row.vote(), Some(Vote::Refuse(Refusal::Queued { .. })));
    let mut refused = votes
        .iter()
        .filter(|row| matches!(row.vote(), Some(Vote::Refuse(_))));
    if refused.any(is_held) || votes.refused() == 0 {
        "held by another"
    } else {
        "others come first"
    }
}

fn for_still(remaining: Option<Duration>) -> String {
    match remaining {
        None | Some(Duration::ZERO) => String::new(),
        Some(remaining) => format!(" for {remaining:.1?}"),
    }
}
