//! The commands that a master is asked to execute.
//!
//! [`words`](super::words) writes a command for a server. [`reply`](super::reply) reads the reply.

use std::{borrow::Cow, sync::Arc, time::Duration};

use super::{
    identity::{FairAttempt, Identity, OwnerAttempt, QueueOptions},
    name::{Resource, Token},
    script::Script,
};
use crate::core::{ballot::Ballot, time::lease::Ttl, vote::quorum::Vote};

/// One action on one lock. A master executes it atomically.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) resource: Resource,
    pub(crate) action: Action,
    /// `true` if the master is also asked to report the next change of the lock's key. The action
    /// and the request to report are one step, so no change is missed in between.
    pub(crate) watch: bool,
}

/// The action of a [`Command`] on its lock.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Takes a lock that is free.
    Acquire { by: Identity, key: NewKey },
    /// Takes a fair lock that is free, if no other waiter comes first. Otherwise puts the caller
    /// into the queue of the lock.
    AcquireOrQueue {
        by: FairAttempt,
        queue: QueueOptions,
        key: NewKey,
    },
    /// Prolongs the life of the key, and sets the depth.
    Extend { by: Identity, ttl: Ttl, depth: u32 },
    /// Puts the key back on a master that lost it, while the lock is held.
    Heal { by: Identity, key: NewKey },
    /// Releases a level that is not the last one.
    SetDepth {
        by: OwnerAttempt,
        depth: u32,
        ballot: Option<Ballot>,
    },
    /// Deletes the key. For a fair lock, also deletes the ticket.
    Release {
        by: Identity,
        ballot: Option<Ballot>,
        /// `false` if the attempt did not get the lock. The caller then needs to know for how long
        /// another holds it.
        #[cfg_attr(
            not(feature = "redis"),
            expect(dead_code, reason = "memory masters always say this")
        )]
        was_won: bool,
    },
    /// Deletes the key of a fair lock, and keeps the ticket in the queue for the waiter timeout.
    Yield { by: FairAttempt, timeout: Duration },
    /// Deletes the key of a lock of any kind, if one of these holders has it. Each holder is a line
    /// with a kind and a digest, as `lua/shared/inspect.lua` reports them. The channel is for
    /// waiters of Redisson.
    Break {
        channel: Arc<str>,
        holders: Arc<str>,
    },
    /// Asks who holds the lock and who waits for it.
    Inspect,
    /// Asks whether the master takes locks now. Writes a key of the crate's own, which is gone a
    /// millisecond later. A key that exists stays as it is.
    Probe,
}

/// The key that a master writes when it grants a lock.
#[derive(Clone, Debug)]
pub(crate) struct NewKey {
    pub(crate) ttl: Ttl,
    /// The number of levels that the owner holds after the grant. The key of a mutex does not
    /// contain it.
    pub(crate) depth: u32,
    /// The candidate for the fencing token of a fenced lock.
    pub(crate) ballot: Option<Ballot>,
}

/// The kind of a [`Command`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The words of a command for a server: a plain command, or a script with its keys and arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call<'a> {
    Plain(&'a [&'a [u8]]),
    Script {
        script: Script,
        keys: &'a [&'a [u8]],
        arguments: &'a [&'a [u8]],
    },
}

/// A master's reply. It has a case for each reply that some command tells apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// The whole text of an error reply, without the leading `-`.
    Error(Cow<'a, str>),
    Int(i64),
    Nil,
    Ok,
    Text(Cow<'a, str>),
    /// A reply that no command of this crate expects.
    #[cfg(any(test, feature = "redis"))]
    Other,
}

impl Command {
    pub(crate) fn new(resource: &Resource, action: Action) -> Self {
        Self {
            resource: resource.clone(),
            action,
            watch: false,
        }
    }

    pub(crate) fn verb(&self) -> Verb {
        match self.action {
            Action::Acquire { .. } | Action::AcquireOrQueue { .. } => Verb::Acquire,
            Action::Extend { .. } => Verb::Extend,
            Action::Heal { .. } => Verb::Heal,
            Action::SetDepth { .. } | Action::Release { .. } => Verb::Release,
            Action::Yield { .. } => Verb::Yield,
            Action::Break { .. } => Verb::Break,
            Action::Inspect => Verb::Inspect,
            Action::Probe => Verb::Probe,
        }
    }

    /// Returns whether this command releases what `other` takes, or one level of it.
    #[cfg(feature = "redis")]
    pub(crate) fn undoes(&self, other: &Self) -> bool {
        matches!(self.verb(), Verb::Release | Verb::Yield)
            && self.resource == other.resource
            && self.action.identity() == other.action.identity()
    }
}

impl Action {
    /// Returns the identity of the attempt. For a mutex, this is the token. For the other kinds, it
    /// is the owner and the number of the attempt. The other actions have neither.
    pub(crate) fn identity(&self) -> (Option<&Token>, Option<&OwnerAttempt>) {
        match self {
            Self::Acquire { by, .. }
            | Self::Extend { by, .. }
            | Self::Heal { by, .. }
            | Self::Release { by, .. } => (by.token(), by.owner()),
            Self::AcquireOrQueue { by, .. } | Self::Yield { by, .. } => (None, Some(&by.owner)),
            Self::SetDepth { by, .. } => (None, Some(by)),
            Self::Break { .. } | Self::Inspect | Self::Probe => (None, None),
        }
    }
}

impl Verb {
    /// Returns whether a quarantine keeps a master from voting on this verb.
    pub(crate) fn quarantine_applies(self) -> bool {
        match self {
            Self::Acquire | Self::Extend | Self::Heal | Self::Probe => true,
            Self::Break | Self::Inspect | Self::Release | Self::Yield => false,
        }
    }

    /// Returns whether this verb may leave a key on a master that did not have it before. A master
    /// that grants such a verb takes locks.
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

/// Commands for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;
    use crate::core::{
        kind::{
            identity::Ticket,
            name::{KeyTemplate, Kind},
        },
        time::lease::Drift,
    };

    pub(crate) const VERBS: [Verb; 8] = [
        Verb::Acquire,
        Verb::Break,
        Verb::Extend,
        Verb::Heal,
        Verb::Inspect,
        Verb::Probe,
        Verb::Release,
        Verb::Yield,
    ];

    /// Returns a command for the lock `r`. After this command, the owner holds `depth` levels.
    pub(crate) fn command(kind: Kind, verb: Verb, depth: u32) -> Command {
        of(&resource(kind, "r"), verb, depth, None)
    }

    /// Does the same as [`command`] for a fenced lock.
    pub(crate) fn fenced(kind: Kind, verb: Verb, depth: u32) -> Command {
        let resource = resource(kind, "r");
        let ballot = Ballot {
            counter: resource.counter(),
            candidate: 1_770_000_000_000_001, // more digits than `tostring` in Lua prints
        };
        of(&resource, verb, depth, Some(ballot))
    }

    pub(crate) fn resource(kind: Kind, name: &str) -> Resource {
        let names = KeyTemplate::parse("{name}").unwrap();
        names.resource(kind, name.into()).unwrap()
    }

    pub(crate) fn of(
        resource: &Resource,
        verb: Verb,
        depth: u32,
        ballot: Option<Ballot>,
    ) -> Command {
        let (kind, fair) = (resource.kind(), fair_attempt());
        let (owner, timeout) = (fair.owner.clone(), Duration::from_secs(3));
        let by = match kind {
            Kind::Mutex => Identity::Token(Token::new([0; 20], None)),
            Kind::Reentrant => Identity::Owner(owner.clone()),
            Kind::Fair => Identity::Ticket(fair.clone()),
        };
        let no_drift = Drift::from_ppm(0).unwrap();
        let ttl = Ttl::parse(Duration::from_secs(10), Duration::ZERO, no_drift).unwrap();
        let key = |ballot| NewKey { ttl, depth, ballot };
        let queue = QueueOptions {
            waiter_timeout: timeout,
            is_fresh: true,
        };
        let action = match (verb, by) {
            (Verb::Acquire, Identity::Ticket(by)) => {
                let key = key(ballot);
                Action::AcquireOrQueue { by, queue, key }
            }
            (Verb::Acquire, by) => Action::Acquire {
                by,
                key: key(ballot),
            },
            (Verb::Extend, by) => Action::Extend { by, ttl, depth },
            (Verb::Heal, by) => Action::Heal {
                by,
                key: key(ballot),
            },
            (Verb::Release, Identity::Owner(_) | Identity::Ticket(_)) if depth > 0 => {
                let by = owner;
                Action::SetDepth { by, depth, ballot }
            }
            (Verb::Release, by) => Action::Release {
                by,
                ballot,
                was_won: true,
            },
            (Verb::Yield, _) => Action::Yield { by: fair, timeout },
            (Verb::Break, _) => Action::Break {
                channel: resource.redisson_channel(),
                holders: "mutex 0a\nfair 0b\n".into(),
            },
            (Verb::Inspect, _) => Action::Inspect,
            (Verb::Probe, _) => Action::Probe,
        };
        Command::new(resource, action)
    }

    fn fair_attempt() -> FairAttempt {
        let owner = OwnerAttempt {
            owner: "u:1".into(),
            attempt: 7,
        };
        let ticket = Ticket::new(5, &owner.owner);
        FairAttempt { owner, ticket }
    }
}

#[cfg(test)]
mod tests {
    use super::{fixture::VERBS, *};
    use crate::core::vote::quorum::{Failure, Refusal};

    #[test]
    fn a_quarantine_applies_to_what_relies_on_the_memory_of_a_master() {
        let applies = VERBS.map(Verb::quarantine_applies);
        assert_eq!(
            applies,
            [true, false, true, true, false, true, false, false]
        );
    }

    #[test]
    fn votes_count_as_done_depending_on_the_verb() {
        let gone = Vote::Refuse(Refusal::Gone);
        let failed = Vote::Fail(Failure::Closed);
        for verb in VERBS {
            let is_release = matches!(verb, Verb::Break | Verb::Release | Verb::Yield);
            assert!(verb.is_done(&Vote::Grant), "{verb:?}");
            assert_eq!(verb.is_done(&gone), is_release, "{verb:?}");
            assert!(!verb.is_done(&failed), "{verb:?}");
        }
    }

    #[test]
    fn acquisitions_healings_and_probes_may_leave_a_key() {
        let takes = VERBS.map(Verb::takes);
        assert_eq!(takes, [true, false, false, true, false, true, false, false]);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn a_release_undoes_the_acquisition_of_the_same_attempt() {
        use super::fixture::{command, of, resource};
        use crate::core::kind::name::Kind;

        for kind in [Kind::Mutex, Kind::Reentrant, Kind::Fair] {
            let acquisition = command(kind, Verb::Acquire, 1);
            for verb in VERBS {
                let undoes = match verb {
                    Verb::Release => true,
                    Verb::Yield => kind != Kind::Mutex, // only a fair lock is yielded
                    _ => false,
                };
                let command = command(kind, verb, 0);
                assert_eq!(command.undoes(&acquisition), undoes, "{kind:?} {verb:?}");
            }
            let other_lock = of(&resource(kind, "other"), Verb::Release, 0, None);
            assert!(!other_lock.undoes(&acquisition), "{kind:?}");
        }
        let mut other_attempt = command(Kind::Mutex, Verb::Release, 0);
        if let Action::Release { by, .. } = &mut other_attempt.action {
            *by = Identity::Token(Token::new([1; 20], None));
        }
        assert!(!other_attempt.undoes(&command(Kind::Mutex, Verb::Acquire, 1)));
    }
}
