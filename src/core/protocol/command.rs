//! The commands that a master is asked to execute.
//!
//! [`words`](super::words) has the words of these commands, and [`reply`](super::reply) reads the
//! replies.

use std::{borrow::Cow, sync::Arc, time::Duration};

use super::{Identity, LockId, QueueOptions};
use crate::core::{
    kind::{Access, Rights},
    time::Ttl,
    vote::{Slot, Verb},
};

/// An action on one lock. A master executes it atomically.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) lock_id: LockId,
    pub(crate) action: Action,
    /// `true` if the master is also asked to report the next change of the lock's key. The command
    /// and the request to report are one step, so no change is missed in between.
    pub(crate) watch: bool,
    /// The rights that the master is also asked to try. If one of them is missing, the answer is an
    /// error, and nothing is done.
    pub(crate) tries: Option<Rights>,
}

/// What a command says of its attempt: who makes the attempt, and what the attempt wants to hold.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) by: Identity,
    /// The number of levels that are held after the command: 0 in the release of the last level.
    /// The key of a mutex does not contain this number.
    pub(crate) depth: u32,
    /// Whether other holders may share the lock. They may if no level is exclusive.
    pub(crate) access: Access,
    /// The slot that a master has granted. `None` if the lock has no slots, or if the master may
    /// choose the slot.
    pub(crate) slot: Option<Slot>,
    /// The candidate for the fencing token of a fenced lock. It is close to the microseconds since
    /// 1970, and below 2^53. It becomes the token if a majority of masters accept it. The rule by
    /// which a master accepts or refuses a candidate is in `lua/shared/ballot.lua`.
    pub(crate) candidate: Option<u64>,
}

/// The largest number of further ballots in an attempt. Each further ballot is a round with another
/// candidate for the fencing token. One may be needed because a counter is above our candidate, and
/// another because our clock differs from the clocks of the masters. If both fail, the masters
/// disagree on the time, and the attempt fails.
pub(crate) const MORE_BALLOTS: u32 = 2;

/// The action of a [`Command`] on its lock, with the data for the action.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Takes a lock that is free. If the lock has a queue, other waiters may come first. An attempt
    /// that waits in the queues has [`QueueOptions`].
    Acquire(Holding, Ttl, Option<QueueOptions>),
    /// Removes the given holders of a lock of any kind. Each holder is a line with a kind and a
    /// digest, as `lua/shared/inspect.lua` reports them.
    Break(Arc<str>),
    /// Prolongs the life of the key, and sets the depth.
    Extend(Holding, Ttl),
    /// Puts the key back on a master that lost it, while the lock is held.
    Heal(Holding, Ttl),
    /// Asks who holds the lock and who waits for it.
    Inspect,
    /// Asks whether the master accepts locks now. Writes a key that only this crate uses, with a
    /// TTL of a millisecond. If the key exists already, it stays as it is.
    Probe,
    /// Releases a level. If this was the last level, deletes the key and the place in the queue. If
    /// the attempt was not won, the reply also says for how much longer another client may hold the
    /// lock.
    Release { holding: Holding, was_won: bool },
    /// Deletes the key, and keeps the place in the queue for the silent-waiter timeout.
    Yield(Holding, Duration),
}

/// A master's reply. Two replies have different variants if they mean different things to at least
/// one command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// The first sentence of an error reply, without the leading `-`.
    Error(Cow<'a, str>),
    Int(i64),
    Nil,
    Ok,
    /// A reply that no command of this crate expects.
    Other,
    Text(Cow<'a, str>),
}

impl Command {
    pub(crate) fn new(lock_id: &LockId, action: Action) -> Self {
        Self {
            lock_id: lock_id.clone(),
            action,
            watch: false,
            tries: None,
        }
    }

    pub(crate) fn verb(&self) -> Verb {
        match &self.action {
            Action::Acquire { .. } => Verb::Acquire,
            Action::Break { .. } => Verb::Break,
            Action::Extend { .. } => Verb::Extend,
            Action::Heal { .. } => Verb::Heal,
            Action::Inspect => Verb::Inspect,
            Action::Probe => Verb::Probe,
            Action::Release { .. } => Verb::Release,
            Action::Yield { .. } => Verb::Yield,
        }
    }

    /// Returns the identity of the attempt. `None` for a command that is not about an attempt.
    pub(crate) fn by(&self) -> Option<&Identity> {
        self.holding().map(|holding| &holding.by)
    }

    pub(in crate::core) fn is_fenced(&self) -> bool {
        self.holding()
            .is_some_and(|holding| holding.candidate.is_some())
    }

    /// Returns whether this command takes the lock or puts it back.
    pub(crate) fn is_acquisition(&self) -> bool {
        matches!(self.verb(), Verb::Acquire | Verb::Heal)
    }

    /// Returns whether this command releases the lock, or the level, that `other` takes. A release
    /// applies to its own attempt, and to earlier attempts of the same owner.
    pub(crate) fn undoes(&self, other: &Self) -> bool {
        let covers = |by: &Identity, taken: &Identity| match (by.owner(), taken.owner()) {
            (Some(by), Some(taken)) => by.owner == taken.owner && by.attempt >= taken.attempt,
            _ => by == taken,
        };
        matches!(self.verb(), Verb::Release | Verb::Yield)
            && self.lock_id == other.lock_id
            && (self.by().zip(other.by())).is_some_and(|(by, taken)| covers(by, taken))
    }

    pub(in crate::core) fn holding(&self) -> Option<&Holding> {
        match &self.action {
            Action::Acquire(holding, _, _)
            | Action::Extend(holding, _)
            | Action::Heal(holding, _)
            | Action::Release { holding, .. }
            | Action::Yield(holding, _) => Some(holding),
            Action::Break(..) | Action::Inspect | Action::Probe => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;
    use crate::core::{
        kind::LockKind,
        protocol::{
            identity::{OwnerAttempt, Ticket},
            name::{KeyTemplate, Token},
        },
        time::lease::Drift,
    };

    /// Returns a command for the lock `r`. After this command, the owner holds `depth` levels.
    pub(crate) fn command(kind: LockKind, verb: Verb, depth: u32) -> Command {
        of(&lock_id(kind, "r"), verb, holding(kind, depth, None))
    }

    pub(crate) fn fenced(kind: LockKind, verb: Verb, depth: u32) -> Command {
        let lock_id = lock_id(kind, "r");
        let candidate = 1_770_000_000_000_001; // more digits than `tostring` in Lua prints
        of(&lock_id, verb, holding(kind, depth, Some(candidate)))
    }

    pub(crate) fn lock_id(kind: LockKind, name: &str) -> LockId {
        let names = KeyTemplate::parse("{name}").unwrap();
        names.lock_id(kind, name.into()).unwrap()
    }

    pub(crate) fn holding(kind: LockKind, depth: u32, candidate: Option<u64>) -> Holding {
        let by = if kind.has_owner() {
            Identity::Owner(OwnerAttempt {
                owner: "u:1".into(),
                attempt: 7,
                ticket: kind.has_queue().then(|| Ticket::new(5, "u:1")),
            })
        } else {
            Identity::Token(Token::new([0; 20], None))
        };
        Holding {
            by,
            depth,
            access: Access::Exclusive,
            slot: None,
            candidate,
        }
    }

    pub(crate) fn ttl() -> Ttl {
        let no_drift = Drift::from_ppm(0).unwrap();
        Ttl::parse(Duration::from_secs(10), Duration::ZERO, no_drift).unwrap()
    }

    pub(crate) fn of(lock_id: &LockId, verb: Verb, holding: Holding) -> Command {
        let silent_waiter_timeout = Duration::from_secs(3);
        let queue = QueueOptions {
            silent_waiter_timeout,
            is_fresh: true,
        };
        let (ttl, queue) = (ttl(), Some(queue));
        let action = match verb {
            Verb::Acquire => Action::Acquire(holding, ttl, queue),
            Verb::Extend => Action::Extend(holding, ttl),
            Verb::Heal => Action::Heal(holding, ttl),
            Verb::Release => Action::Release {
                holding,
                was_won: true,
            },
            Verb::Yield => Action::Yield(holding, silent_waiter_timeout),
            Verb::Break => Action::Break("mutex 0a\nfair 0b\n".into()),
            Verb::Inspect => Action::Inspect,
            Verb::Probe => Action::Probe,
        };
        Command::new(lock_id, action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_undoes_the_acquisition_of_the_same_attempt() {
        use super::fixture::{command, holding, lock_id, of};
        use crate::core::{kind::LockKind, protocol::name::Token};

        for kind in LockKind::ALL {
            let acquisition = command(kind, Verb::Acquire, 1);
            for verb in Verb::ALL {
                let undoes = matches!(verb, Verb::Release | Verb::Yield);
                let command = command(kind, verb, 0);
                assert_eq!(command.undoes(&acquisition), undoes, "{kind:?} {verb:?}");
            }
            let release = holding(kind, 0, None);
            let other_lock = of(&lock_id(kind, "other"), Verb::Release, release);
            assert!(!other_lock.undoes(&acquisition), "{kind:?}");
        }
        let mut other = holding(LockKind::Mutex, 0, None);
        other.by = Identity::Token(Token::new([1; 20], None));
        let other = of(&lock_id(LockKind::Mutex, "r"), Verb::Release, other);
        assert!(!other.undoes(&command(LockKind::Mutex, Verb::Acquire, 1)));
    }

    #[test]
    fn a_release_undoes_earlier_acquisitions_of_the_same_owner() {
        use super::fixture::{command, holding, lock_id, of};
        use crate::core::{
            kind::LockKind,
            protocol::identity::{OwnerAttempt, Ticket},
        };

        for kind in LockKind::ALL.into_iter().filter(|kind| kind.has_owner()) {
            let acquisition = command(kind, Verb::Acquire, 1); // the attempt 7 of `u:1`
            for (owner, attempt, expected) in [
                ("u:1", 7, true),
                ("u:1", 8, true),
                ("u:1", 6, false),
                ("u:2", 8, false),
            ] {
                let mut release = holding(kind, 0, None);
                release.by = Identity::Owner(OwnerAttempt {
                    owner: owner.into(),
                    attempt,
                    ticket: kind.has_queue().then(|| Ticket::new(9, owner)),
                });
                let release = of(&lock_id(kind, "r"), Verb::Release, release);
                assert_eq!(release.undoes(&acquisition), expected, "{kind} {owner:?}");
            }
        }
    }
}
