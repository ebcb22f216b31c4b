//! Why a lock was not acquired.

use std::{sync::Arc, time::Duration};

use crate::core::{
    config_error::ConfigError,
    kind::Kind,
    vote::{Vote, votes::Votes},
};

/// The reason why a lock was not acquired.
///
/// After each of these errors, the attempt holds nothing. Every attempt that sent something and did
/// not win the lock is followed by a release on all masters that may have the key. If such a master
/// cannot be reached now, the coordinator sends the release when it can reach the master again,
/// unless the TTL has passed by then. If the owner held the lock before, its other guards are as
/// valid as they were.
///
/// To decide what to do, match on the error of the last attempt. After a
/// [`Deadline`](Self::Deadline), [`last_attempt`](Self::last_attempt) returns the error inside it:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use quorlock::{AcquireError, Coordinator, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// # let lock = locks.mutex("orders/42");
/// # let _holder = lock.acquire().await?;
/// match lock.acquire_within(Duration::from_millis(20)).await {
///     Ok(guard) => drop(guard), // work
///     Err(error) => match error.last_attempt() {
///         // Try again later.
///         AcquireError::Contended { .. } => println!("another holder has it: {error}"),
///         AcquireError::NoQuorum { .. } => println!("too few masters answer: {error}"),
///         AcquireError::Quarantined { remaining, .. } => println!("wait for {remaining:?}"),
///         AcquireError::TooSlow { .. } => println!("the masters are too slow: {error}"),
///         AcquireError::OwnerBusy { .. } => println!("another task is at it: {error}"),
///         // The program is shutting down.
///         AcquireError::Closed => return Ok(()),
///         // A mistake, such as `Config` or `MissingRight`: another attempt fails as well.
///         _ => return Err(error.into()),
///     },
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The coordinator is closed, its runtime has shut down, a stream of the program panicked in the
    /// task of the coordinator, or the coordinator was made before this process was forked. This
    /// attempt sent nothing.
    #[error(
        "could not lock: the coordinator is closed, its runtime ended, a task panicked, \
         or this process was forked: make the coordinator after the fork"
    )]
    Closed,

    /// A setting, the name or the owner cannot be used. This attempt sent nothing.
    #[error(transparent)]
    Config(#[from] ConfigError),

    /// Another holder has the lock, other waiters come first, or the vote was split. Try again
    /// later.
    ///
    /// `votes` does not name the holder of a mutex. [`Lock::inspect`](crate::Lock::inspect) names a
    /// holder that has a [client name](crate::Builder::client_name). An inspection takes another
    /// round.
    #[error("could not lock {name:?}: {}: {votes}", describe(*.reason, *.own_guard, .votes))]
    #[non_exhaustive]
    Contended {
        /// The lock's name.
        name: Arc<str>,
        /// The reason why the attempt did not win.
        reason: Contention,
        /// Whether a guard of the same coordinator had the lock when this error was made. A task
        /// that holds such a guard while it waits for the lock waits in vain. Only guards whose
        /// lock is renewed are found, and only if there are fewer than 250 such guards.
        own_guard: bool,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// The time limit of [`Lock::acquire_within`](crate::Lock::acquire_within) has passed.
    #[error("gave up after {waited:.1?} and {attempts} attempt{}: {last}", if *attempts == 1 { "" } else { "s" })]
    #[non_exhaustive]
    Deadline {
        /// The lock's name.
        name: Arc<str>,
        /// The duration of the call.
        waited: Duration,
        /// The number of attempts.
        attempts: u32,
        /// The error of the last attempt.
        last: Box<Self>,
    },

    /// So many masters deny a right, or lack a command, that the others are no majority. Another
    /// attempt fails as well, until someone gives the right or changes the
    /// [key template](crate::Builder::key_template). `votes` has the answers of the masters.
    ///
    /// The first attempts at each kind of lock try all rights that acquire, extend and release such
    /// a lock. If one is missing, nothing is left on a master. A right that was taken away later
    /// may have kept a lock from being released.
    #[error(
        "could not lock {name:?}, with the key {key:?}: a right or a command is missing on {}: \
         {votes}",
        .votes.denial_text()
    )]
    #[non_exhaustive]
    MissingRight {
        /// The lock's name.
        name: Arc<str>,
        /// The lock's key on the masters.
        key: Arc<str>,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// Too many masters failed. This client cannot get the lock until enough of them are back.
    ///
    /// The error is the same if some masters are down and too many of the other masters are
    /// quarantined. `votes` shows which masters are quarantined, and for how long
    /// ([`Failure::Quarantined`](crate::Failure::Quarantined)).
    #[error(
        "could not lock {name:?}: only {}: {votes}", .votes.tally_text(" voted", Vote::is_answer)
    )]
    #[non_exhaustive]
    NoQuorum {
        /// The lock's name.
        name: Arc<str>,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// The owner holds the lock without a fencing token. Acquiring the lock again does not add a
    /// token.
    #[error(
        "could not lock {name:?}: its owner holds it without a fencing token: \
         every task that acquires it must ask for a token"
    )]
    #[non_exhaustive]
    NotFenced {
        /// The lock's name.
        name: Arc<str>,
    },

    /// The name is held as another kind of lock. This is a mistake in one of the programs that use
    /// the name, and waiting does not fix it. The mistake is detected only while the lock is held.
    #[error(
        "could not lock {name:?} as a {asked}: it is held as another kind of lock, \
         use each name with one kind: {votes}"
    )]
    #[non_exhaustive]
    OtherKind {
        /// The lock's name.
        name: Arc<str>,
        /// The kind that was asked for.
        asked: Kind,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// Another task of the same [owner](crate::Owner) has been in the middle of an attempt at this
    /// lock for longer than an attempt takes. The attempt that got this error sent nothing.
    ///
    /// Tasks of one owner make their attempts one after the other. Try again later. Another try
    /// does not help if the other task no longer polls its future: see
    /// [`Lock`](crate::Lock#futures-that-are-not-polled).
    #[error(
        "could not lock {name:?}: another task of its owner is in the middle of an attempt, \
         try again later"
    )]
    #[non_exhaustive]
    OwnerBusy {
        /// The lock's name.
        name: Arc<str>,
    },

    /// Too many masters may have forgotten locks, for example after a restart. The other masters
    /// are no majority. A master that may have forgotten locks has no vote until all of these locks
    /// have ended.
    #[error(
        "could not lock {name:?}: too many masters may have forgotten locks, \
         enough of them vote again in {remaining:.1?}: {votes}"
    )]
    #[non_exhaustive]
    Quarantined {
        /// The lock's name.
        name: Arc<str>,
        /// The time until enough masters may vote again. Try again after this time, as
        /// [`Lock::acquire`](crate::Lock::acquire) does.
        remaining: Duration,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// A reader asked for a fencing token, but only writers get tokens. This attempt sent nothing.
    #[error(
        "could not lock {name:?}: a reader has no fencing token, because it writes nothing: \
         ask for a token to write"
    )]
    #[non_exhaustive]
    ReaderToken {
        /// The lock's name.
        name: Arc<str>,
    },

    /// A majority granted the lock, but so late that no validity was left.
    #[error(
        "could not lock {name:?}: a majority took {elapsed:.1?} to grant a TTL of {ttl:?}: {votes}"
    )]
    #[non_exhaustive]
    TooSlow {
        /// The lock's name.
        name: Arc<str>,
        /// The time that the majority took.
        elapsed: Duration,
        /// The TTL that was asked for.
        ttl: Duration,
        /// The votes of the round that failed.
        votes: Votes,
    },

    /// The owner holds the lock as a reader, and asked to write. If two readers waited for each
    /// other to become writers, both would wait for ever. This attempt sent nothing.
    #[error(
        "could not lock {name:?}: its owner holds it as a reader, and a reader cannot become a \
         writer: two of them would wait for each other for ever. \
         Release the guards that read, then write"
    )]
    #[non_exhaustive]
    Upgrade {
        /// The lock's name.
        name: Arc<str>,
    },
}

impl AcquireError {
    /// Returns the error of the last attempt: `last` of a [`Deadline`](Self::Deadline), otherwise
    /// this error itself.
    pub fn last_attempt(&self) -> &Self {
        match self {
            Self::Deadline { last, .. } => last.last_attempt(),
            error => error,
        }
    }

    /// Returns what each master answered in the last attempt. `None` if nothing was sent.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Deadline { last, .. } => last.votes(),
            Self::Contended { votes, .. }
            | Self::MissingRight { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::OtherKind { votes, .. }
            | Self::Quarantined { votes, .. }
            | Self::TooSlow { votes, .. } => Some(votes),
            _ => None,
        }
    }

    /// Returns the text of this error without the answers of the masters. It suits a person who
    /// asked for the lock. A log should get the whole text, which says what each master answered.
    pub fn summary(&self) -> String {
        let mut text = self.to_string();
        if let Some(votes) = self.votes()
            && let Some(rest) = text.strip_suffix(&format!(": {votes}"))
        {
            text.truncate(rest.len());
        }
        text
    }
}

/// The reason why an attempt failed with [`AcquireError::Contended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Contention {
    /// Other holders have the lock on so many masters that the rest is no majority.
    Held {
        /// The time until a majority of masters will be free, unless a holder extends or releases
        /// the lock. `None` if too few masters reported a time, or if the lock has no TTL.
        ///
        /// Masters may report this time when they answer the release that follows the attempt. So
        /// the time may belong to a holder that came after the attempt.
        remaining: Option<Duration>,
    },
    /// The lock is free on a majority of masters, but other waiters come first. Only a lock with
    /// queues is refused for this reason: a fair or a read-write lock, or a semaphore.
    Queued,
    /// The vote was split: no client got a majority, or the lock was released during the attempt.
    Split,
}

fn describe(reason: Contention, own_guard: bool, votes: &Votes) -> String {
    let (refused, masters) = (votes.refused_count(), votes.master_count());
    let holder = ["another holder", "another guard of this coordinator"][usize::from(own_guard)];
    match reason {
        Contention::Held { remaining } => {
            let left = remaining.map(|left| format!(" for {left:.1?} more"));
            let left = left.unwrap_or_default();
            format!("held by {holder} on {refused} of {masters} masters{left}")
        }
        Contention::Queued => "other waiters come first".to_owned(),
        Contention::Split => {
            let granted = votes.tally_text(" granted", Vote::is_grant);
            format!("the vote was split, {granted}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::vote::{
        Refusal, Verb,
        quorum::{Quorum, Roster},
        round::CastVote,
    };

    fn votes(votes: &[Vote]) -> Votes {
        let roster = Roster::new(["a", "b", "c"].map(Arc::from), Quorum::of(3));
        let cast = votes
            .iter()
            .map(|vote| Some(CastVote::new(vote.clone(), Duration::ZERO)));
        Votes::new(roster, cast.collect(), Verb::Acquire)
    }

    #[test]
    fn the_error_for_contention_says_its_reason() {
        let seconds = Duration::from_secs;
        let held = || Vote::Refuse(Refusal::held(Some(seconds(5))));
        let queued = || Vote::Refuse(Refusal::Queued { position: Some(2) });
        for (reason, answers, text) in [
            (
                Contention::Held {
                    remaining: Some(seconds(5)),
                },
                [Vote::Grant, held(), held()],
                "held by another holder on 2 of 3 masters for 5.0s more: a granted, \
                 b held by another holder for 5.0s more, c held by another holder for 5.0s more",
            ),
            (
                Contention::Held { remaining: None },
                [Vote::Grant, held(), held()],
                "held by another holder on 2 of 3 masters: a granted, \
                 b held by another holder for 5.0s more, c held by another holder for 5.0s more",
            ),
            (
                Contention::Queued,
                [queued(), queued(), held()],
                "other waiters come first: a free, position 2 in the queue, \
                 b free, position 2 in the queue, c held by another holder for 5.0s more",
            ),
            (
                Contention::Split,
                [Vote::Grant, held(), held()],
                "the vote was split, 1 of 3 masters granted (need 2): a granted, \
                 b held by another holder for 5.0s more, c held by another holder for 5.0s more",
            ),
        ] {
            let votes = votes(&answers);
            let error = AcquireError::Contended {
                name: "orders/42".into(),
                reason,
                own_guard: false,
                votes,
            };
            assert_eq!(
                error.to_string(),
                format!("could not lock \"orders/42\": {text}")
            );
            let short = text.split(": a ").next();
            let last = Box::new(error);
            let expected = format!("could not lock \"orders/42\": {}", short.unwrap());
            assert_eq!(last.summary(), expected);
            let error = AcquireError::Deadline {
                name: "orders/42".into(),
                waited: seconds(1),
                attempts: 2,
                last,
            };
            let expected = format!("gave up after 1.0s and 2 attempts: {expected}");
            assert_eq!(error.summary(), expected);
        }
    }
}
