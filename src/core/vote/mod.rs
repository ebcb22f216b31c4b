//! Votes: the vote of one master, the count of votes, and the round that the votes decide.

use std::{fmt, num::NonZeroU16, sync::Arc, time::Duration};

pub(crate) mod evidence;
pub(crate) mod quorum;
pub(crate) mod round;
pub(crate) mod server_error;
pub(crate) mod votes;

pub(crate) use quorum::{MasterSet, Outcome, Quorum, Roster};
pub(crate) use round::{CastVote, Round};
pub(crate) use server_error::ServerError;
pub(crate) use votes::Votes;

use crate::core::time::rounded;

/// The answer of one master in a round.
///
/// A refusal says that the client does not get the lock on that master, or does not hold it there.
/// A failure says nothing about the lock. After some kinds of failure, the master may have executed
/// the command: see [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the three answers are the algorithm; a match on them should be complete"
)]
pub enum Vote {
    // The variants have this order: yes, no, and no answer.
    /// The master did what was asked: see [`Votes`].
    Grant,
    /// The master answered that the client does not get the lock on it, or does not hold the lock
    /// there.
    Refuse(Refusal),
    /// The master gave no answer that counts as a vote.
    Fail(Failure),
}

impl Vote {
    /// Returns the vote of a master whose reply cannot be read.
    pub(crate) fn nonsense() -> Self {
        Self::Fail(Failure::ErrorReply("a reply that makes no sense".into()))
    }

    pub(crate) fn is_grant(&self) -> bool {
        matches!(self, Self::Grant)
    }

    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refuse(_))
    }

    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::Fail(_))
    }

    /// Returns whether the master denied the command until someone changes a right or its settings.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Fail(failure) if failure.is_denial())
    }

    /// Returns whether the master answered without an error.
    pub(crate) fn is_answer(&self) -> bool {
        !self.is_failure()
    }

    /// Returns whether the master can store a slot: it answered without an error, and did not
    /// report a lock of another kind.
    pub(crate) fn may_have_slot(&self) -> bool {
        self.is_answer() && *self != Self::Refuse(Refusal::OtherKind)
    }

    /// Returns whether the master answered, even with an error.
    pub(crate) fn is_reply(&self) -> bool {
        self.is_answer() || matches!(self, Self::Fail(Failure::ErrorReply(_)))
    }
}

/// A slot of a lock that several clients can hold, each in its own slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(NonZeroU16);

impl Slot {
    /// Returns the slot with this number on the masters, or `None` for 0.
    pub(crate) fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// Returns the number of the slot on the masters, which count from 1.
    pub(crate) fn number(self) -> u16 {
        self.0.get()
    }

    /// Returns the number of the slot for users, who count from 0.
    pub(crate) fn shown(self) -> usize {
        usize::from(self.number()) - 1
    }
}

/// The reason why a master refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The lock is not held on the master: it expired or was released, or the master lost it. In
    /// the votes on a release, `Gone` may also mean that another holder has the lock there.
    Gone,
    /// Other clients hold the lock on the master.
    #[non_exhaustive]
    Held {
        /// How long the lock will live on the master unless it is extended or released. `None` if
        /// the master did not say, or if the lock has no TTL there.
        remaining: Option<Duration>,
        /// The [IDs](crate::Owner::id) of the owners that hold the lock. Empty for a mutex. A
        /// master names at most five readers of a read-write lock, and at most five holders of a
        /// semaphore.
        owners: Vec<String>,
        /// How many times the first owner has acquired the lock. 1 for a mutex.
        depth: u64,
        /// The position of this client in the master's queue for the lock, starting at 1. `None` if
        /// the client is not in a queue.
        position: Option<u64>,
    },
    /// A lock of another kind is held on the master under the same name.
    OtherKind,
    /// The lock is free on the master, but other waiters come first.
    Queued {
        /// The position of this client in the master's queue, starting at 1. `None` for an attempt
        /// that does not wait.
        position: Option<u64>,
    },
    /// The client's clock differs too much from the master's clock. The master therefore gives the
    /// client no position in the lock's queue, or accepts no fencing token from the client.
    Skewed {
        /// The time since 1970 on the master's clock.
        clock: Duration,
    },
    /// The proposed fencing token is not larger than the master's counter.
    Stale {
        /// The largest proposed token that the master has accepted.
        counter: u64,
    },
}

impl Refusal {
    /// Returns the refusal for a mutex that another client holds.
    pub(crate) fn held(remaining: Option<Duration>) -> Self {
        Self::Held {
            remaining,
            owners: Vec::new(),
            depth: 1,
            position: None,
        }
    }

    /// Returns the refusal for a lock with owners. `owners` has a line with the ID of each.
    pub(crate) fn held_by(
        owners: &str,
        remaining: Option<Duration>,
        depth: u64,
        position: Option<u64>,
    ) -> Self {
        Self::Held {
            remaining,
            owners: owners.split('\n').map(str::to_owned).collect(),
            depth,
            position,
        }
    }
}

/// The reason why a master gave no answer that counts as a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The coordinator was dropped, or its runtime has shut down. If the command was sent before
    /// that, the master may have executed it.
    Closed,
    /// The connection broke after the command was sent. The master may have executed the command.
    Disconnected(Arc<str>),
    /// The master may have forgotten locks, and has no vote until all forgotten locks have ended.
    /// The command was not sent.
    Quarantined {
        /// The time until the quarantine ends.
        remaining: Duration,
    },
    /// The master answered with an error, such as `OOM`, `LOADING`, `READONLY` or `NOPERM`.
    ErrorReply(Arc<str>),
    /// The master did not answer within the response timeout. The master may have executed the
    /// command, or may execute it later.
    TimedOut {
        /// The response timeout.
        after: Duration,
        /// How long the answers of the master have taken lately.
        round_trip: Duration,
        /// How long the connection was silent before the command, if that was at least a second. In
        /// that case, something between the program and the master may have forgotten the
        /// connection.
        silence: Option<Duration>,
    },
    /// The command was never sent. There is no connection, or the master has not kept up with
    /// earlier commands.
    Unreachable(Arc<str>),
}

impl Failure {
    /// Returns the failure of a command that timed out on a connection that was not silent before.
    #[cfg(test)]
    pub(crate) fn timed_out(after: Duration) -> Self {
        Self::TimedOut {
            after,
            round_trip: Duration::ZERO,
            silence: None,
        }
    }

    /// Returns whether the master may have executed the command.
    pub(crate) fn may_have_executed(&self) -> bool {
        match self {
            Self::Closed | Self::Disconnected(_) | Self::TimedOut { .. } => true,
            // A server that answers with an error has not executed the command. Before the error, a
            // script may have removed dead waiters from a queue. But the script has changed nothing
            // that belongs to this client.
            Self::Quarantined { .. } | Self::ErrorReply(_) | Self::Unreachable(_) => false,
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grant => f.write_str("granted"),
            Self::Refuse(refusal) => refusal.fmt(f),
            Self::Fail(failure) => failure.fmt(f),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("holds nothing"),
            Self::Held {
                remaining,
                owners,
                depth,
                position,
            } => {
                f.write_str("held by ")?;
                if owners.is_empty() {
                    f.write_str("another holder")?;
                }
                for (at, owner) in owners.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{owner:?}")?;
                }
                if *depth != 1 {
                    write!(f, " ({depth} times)")?;
                }
                if let Some(remaining) = remaining {
                    write!(f, " for {remaining:.1?} more")?;
                }
                match position {
                    None => Ok(()),
                    Some(position) => write!(f, ", position {position} in the queue"),
                }
            }
            Self::OtherKind => f.write_str("held as another kind of lock"),
            Self::Queued { position: None } => f.write_str("free, but others wait"),
            Self::Queued {
                position: Some(position),
            } => write!(f, "free, position {position} in the queue"),
            Self::Skewed { .. } => f.write_str("free, but the clocks are too far apart"),
            Self::Stale { .. } => f.write_str("free, but has seen a later fencing token"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Disconnected(why) => write!(f, "connection lost: {why}"),
            Self::Quarantined { remaining } => {
                write!(f, "may have forgotten locks, no vote for {remaining:.1?}")
            }
            Self::ErrorReply(reply) => write!(f, "answered {reply}"),
            Self::TimedOut {
                after,
                round_trip,
                silence,
            } => {
                write!(f, "no answer in {:?}", rounded(*after))?;
                if let Some(silence) = silence {
                    write!(f, " on a connection that was silent for {silence:.1?}")?;
                }
                match round_trip.as_millis() {
                    0 => Ok(()),
                    _ => write!(f, "; its answers take {:?}", rounded(*round_trip)),
                }
            }
            Self::Unreachable(why) => write!(f, "unreachable: {why}"),
        }
    }
}

/// The name of an action on a lock: see [`Action`](crate::core::protocol::command::Action).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Acquire,
    Break,
    Extend,
    Heal,
    Inspect,
    Probe,
    Release,
    Yield,
}

impl Verb {
    /// Returns whether a quarantine keeps a master from voting on this verb.
    pub(crate) fn quarantine_applies(self) -> bool {
        match self {
            Self::Acquire | Self::Extend | Self::Heal | Self::Probe => true,
            Self::Break | Self::Inspect | Self::Release | Self::Yield => false,
        }
    }

    /// Returns whether this verb may leave a key on a master that did not have the key before. A
    /// master that grants such a verb accepts locks.
    pub(crate) fn takes(self) -> bool {
        match self {
            Self::Acquire | Self::Heal | Self::Probe => true,
            Self::Break | Self::Extend | Self::Inspect | Self::Release | Self::Yield => false,
        }
    }

    /// Returns the word for a grant of this verb.
    pub(crate) fn granted_word(self) -> &'static str {
        match self {
            Self::Acquire => "granted",
            Self::Break => "broken",
            Self::Extend | Self::Heal => "confirmed",
            Self::Inspect => "answered",
            Self::Probe => "can vote",
            Self::Release | Self::Yield => "released",
        }
    }

    /// Returns whether `vote` counts towards the majority that this verb needs.
    pub(crate) fn is_done(self, vote: &Vote) -> bool {
        match (self, vote) {
            (_, Vote::Grant) => true,
            (_, Vote::Fail(_)) => false,
            // A key that is gone, or that belongs to another holder, counts as released.
            (Self::Break | Self::Release | Self::Yield, Vote::Refuse(_)) => true,
            (
                Self::Acquire | Self::Extend | Self::Heal | Self::Inspect | Self::Probe,
                Vote::Refuse(_),
            ) => false,
        }
    }
}

#[cfg(test)]
impl Verb {
    pub(crate) const ALL: [Self; 8] = [
        Self::Acquire,
        Self::Break,
        Self::Extend,
        Self::Heal,
        Self::Inspect,
        Self::Probe,
        Self::Release,
        Self::Yield,
    ];
}

/// The words for votes in the metrics.
pub(crate) const OUTCOMES: &[&str] = &[
    "closed",
    "disconnected",
    "granted",
    "quarantined",
    "refused",
    "error_reply",
    "timed_out",
    "unreachable",
];

/// Returns the word for a vote in the metrics.
pub(crate) fn outcome_word(vote: &Vote) -> &'static str {
    match vote {
        Vote::Grant => "granted",
        Vote::Refuse(_) => "refused",
        Vote::Fail(Failure::Closed) => "closed",
        Vote::Fail(Failure::Disconnected(_)) => "disconnected",
        Vote::Fail(Failure::Quarantined { .. }) => "quarantined",
        Vote::Fail(Failure::ErrorReply(_)) => "error_reply",
        Vote::Fail(Failure::TimedOut { .. }) => "timed_out",
        Vote::Fail(Failure::Unreachable(_)) => "unreachable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vote_shows_its_reason() {
        let text = |text: &str| Arc::<str>::from(text);
        let (millis, clock) = (Duration::from_millis, Duration::ZERO);
        for (vote, expected) in [
            (Vote::Grant, "granted"),
            (Vote::Refuse(Refusal::Gone), "holds nothing"),
            (Vote::Refuse(Refusal::held(None)), "held by another holder"),
            (
                Vote::Refuse(Refusal::OtherKind),
                "held as another kind of lock",
            ),
            (
                Vote::Refuse(Refusal::Queued { position: None }),
                "free, but others wait",
            ),
            (
                Vote::Refuse(Refusal::Queued { position: Some(2) }),
                "free, position 2 in the queue",
            ),
            (
                Vote::Refuse(Refusal::Skewed { clock }),
                "free, but the clocks are too far apart",
            ),
            (
                Vote::Refuse(Refusal::Stale { counter: 1 }),
                "free, but has seen a later fencing token",
            ),
            (Vote::Fail(Failure::Closed), "closed"),
            (
                Vote::Fail(Failure::Disconnected(text("reset"))),
                "connection lost: reset",
            ),
            (
                Vote::Fail(Failure::Quarantined {
                    remaining: millis(1_500),
                }),
                "may have forgotten locks, no vote for 1.5s",
            ),
            (Vote::Fail(Failure::ErrorReply(text("OOM"))), "answered OOM"),
            (
                Vote::Fail(Failure::timed_out(Duration::from_nanos(51_643_108))),
                "no answer in 52ms",
            ),
            (
                Vote::Fail(Failure::TimedOut {
                    after: millis(50),
                    round_trip: Duration::from_micros(61_437),
                    silence: None,
                }),
                "no answer in 50ms; its answers take 61ms",
            ),
            (
                Vote::Fail(Failure::TimedOut {
                    after: millis(50),
                    round_trip: Duration::from_micros(999),
                    silence: Some(millis(600_000)),
                }),
                "no answer in 50ms on a connection that was silent for 600.0s",
            ),
            (
                Vote::Fail(Failure::Unreachable(text("refused"))),
                "unreachable: refused",
            ),
        ] {
            assert_eq!(vote.to_string(), expected);
        }
    }

    #[test]
    fn a_refusal_shows_who_holds_the_lock() {
        let millis = Duration::from_millis;
        let by = |remaining, depth, position| Refusal::held_by("u:1", remaining, depth, position);
        for (refusal, text) in [
            (
                Refusal::held(Some(millis(5_000))),
                "held by another holder for 5.0s more",
            ),
            (Refusal::held(None), "held by another holder"),
            (by(None, 1, None), "held by \"u:1\""),
            (by(None, 3, None), "held by \"u:1\" (3 times)"),
            (
                Refusal::held_by("u:1\nu:2", None, 1, None),
                "held by \"u:1\", \"u:2\"",
            ),
            (
                by(Some(millis(250)), 2, Some(7)),
                "held by \"u:1\" (2 times) for 250.0ms more, position 7 in the queue",
            ),
        ] {
            assert_eq!(refusal.to_string(), text);
        }
    }

    #[test]
    fn a_command_may_have_been_executed_if_it_was_sent_and_not_answered() {
        let why = || Arc::<str>::from("why");
        let time = Duration::from_secs(1);
        for (failure, may_have) in [
            (Failure::Closed, true),
            (Failure::Disconnected(why()), true),
            (Failure::timed_out(time), true),
            (Failure::Quarantined { remaining: time }, false),
            (Failure::ErrorReply(why()), false),
            (Failure::Unreachable(why()), false),
        ] {
            assert_eq!(failure.may_have_executed(), may_have, "{failure}");
        }
    }

    #[test]
    fn a_quarantine_applies_to_what_relies_on_the_memory_of_a_master() {
        let applies = Verb::ALL.map(Verb::quarantine_applies);
        assert_eq!(
            applies,
            [true, false, true, true, false, true, false, false]
        );
    }

    #[test]
    fn votes_count_as_done_depending_on_the_verb() {
        let gone = Vote::Refuse(Refusal::Gone);
        let failed = Vote::Fail(Failure::Closed);
        for verb in Verb::ALL {
            let is_release = matches!(verb, Verb::Break | Verb::Release | Verb::Yield);
            assert!(verb.is_done(&Vote::Grant), "{verb:?}");
            assert_eq!(verb.is_done(&gone), is_release, "{verb:?}");
            assert!(!verb.is_done(&failed), "{verb:?}");
        }
    }

    #[test]
    fn acquisitions_healings_and_probes_may_leave_a_key() {
        let takes = Verb::ALL.map(Verb::takes);
        assert_eq!(takes, [true, false, false, true, false, true, false, false]);
    }
}
