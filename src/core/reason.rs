//! The reason why a lock was not acquired.

use std::{fmt, sync::Arc, time::Duration};

use super::config_error::ConfigError;

/// The reason in an [`AcquireError`](crate::AcquireError).
///
/// [`AcquireError::is_busy`](crate::AcquireError::is_busy) and its two siblings sort the reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The coordinator is closed, its runtime has shut down, a stream of the program panicked in
    /// the task of the coordinator, or the coordinator was made before this process was forked. The
    /// last attempt sent nothing.
    Closed,

    /// A setting, the name or the owner cannot be used. Nothing was sent.
    Config(ConfigError),

    /// So many masters deny a right, or lack a command, that the others are no majority. Another
    /// attempt fails as well, until someone gives the right or changes the
    /// [key template](crate::Builder::key_template).
    ///
    /// The first attempts at each kind of lock try all rights that acquire, extend and release such
    /// a lock. If one is missing, nothing is left on a master. A right that was taken away later
    /// may have kept a lock from being released.
    #[non_exhaustive]
    Denied {
        /// What the first of these masters replied.
        reply: Arc<str>,
    },

    /// A lock that was detached is not held any more: it has expired, or was released, broken or
    /// forgotten by masters. Only [`attach`](crate::Coordinator::attach) fails for this reason.
    /// Another holder may have the lock.
    Gone,

    /// Other holders have the lock on so many masters that those which are left and can vote are no
    /// majority. While masters are down, this may be what a failed attempt has left on one of them:
    /// see [`Inspection::is_split`](crate::Inspection::is_split).
    ///
    /// The votes do not name the holder of a mutex. [`Lock::inspect`](crate::Lock::inspect) names a
    /// holder that has a [client name](crate::Builder::client_name). An inspection takes another
    /// round.
    #[non_exhaustive]
    Held {
        /// The time until a majority of masters will be free, unless a holder extends or releases
        /// the lock. `None` if too few masters reported a time, or if the lock has no TTL.
        ///
        /// Masters may report this time when they answer the release that follows the attempt. So
        /// the time may belong to a holder that came after the attempt.
        remaining: Option<Duration>,
    },

    /// Too many masters failed. No client can get the lock until enough of them are back.
    ///
    /// The reason is the same if some masters are down and too many of the other masters are
    /// quarantined. The votes show which masters are quarantined, and for how long
    /// ([`Failure::Quarantined`](crate::votes::Failure::Quarantined)).
    NoQuorum,

    /// The owner holds the lock without a fencing token. Acquiring the lock again does not add a
    /// token.
    NotFenced,

    /// The name is held as another kind of lock. This is a mistake in one of the programs that use
    /// the name, and waiting does not fix it. The mistake is detected only while the lock is held.
    OtherKind,

    /// Another task of the same [owner](crate::Owner) has been in the middle of an attempt at this
    /// lock for longer than an attempt takes. The attempt that got this error sent nothing.
    ///
    /// Tasks of one owner make their attempts one after the other. Another try does not help if the
    /// other task no longer polls its future: see
    /// [`Lock`](crate::Lock#futures-that-are-not-polled).
    OwnerBusy,

    /// Too many masters may have forgotten locks, for example after a restart. The other masters
    /// are no majority. A master that may have forgotten locks has no vote until all of these locks
    /// have ended.
    #[non_exhaustive]
    Quarantined {
        /// The time until enough masters may vote again. Try again after this time, as
        /// [`Lock::acquire`](crate::Lock::acquire) does.
        remaining: Duration,
    },

    /// The lock is free on a majority of masters, but other waiters come first. Only a lock with
    /// queues is refused for this reason: a fair or a read-write lock, or a semaphore.
    Queued,

    /// The vote was split: no client got a majority, or the lock was released during the attempt.
    Split,

    /// A majority granted the lock, but so late that no validity was left.
    #[non_exhaustive]
    TooSlow {
        /// The time that the majority took.
        elapsed: Duration,
    },

    /// The owner holds the lock as a reader, and asked to write. If two readers waited for each
    /// other to become writers, both would wait forever. The last attempt sent nothing.
    Upgrade,
}

impl Reason {
    pub(crate) fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Gone | Self::Held { .. } | Self::OwnerBusy | Self::Queued | Self::Split
        )
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Closed | Self::NoQuorum | Self::Quarantined { .. } | Self::TooSlow { .. }
        )
    }

    pub(crate) fn is_mistake(&self) -> bool {
        !self.is_busy() && !self.is_unavailable()
    }

    /// Returns whether another attempt would be useless.
    pub(crate) fn is_final(&self) -> bool {
        self.is_mistake() || matches!(self, Self::Closed | Self::Gone)
    }

    /// Returns the word for this reason in the metrics. `None` if the call was a mistake of the
    /// program that nobody else can notice.
    pub(crate) fn word(&self) -> Option<&'static str> {
        match self {
            Self::Closed => Some("closed"),
            Self::Config(_) | Self::Gone | Self::NotFenced | Self::Upgrade => None,
            Self::Denied { .. } => Some("denied"),
            Self::Held { .. } | Self::OwnerBusy | Self::Queued | Self::Split => Some("busy"),
            Self::NoQuorum => Some("no_quorum"),
            Self::OtherKind => Some("other_kind"),
            Self::Quarantined { .. } => Some("quarantined"),
            Self::TooSlow { .. } => Some("too_slow"),
        }
    }
}

impl From<ConfigError> for Reason {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => {
                "the coordinator is closed, its runtime ended, a task panicked, or this process was \
                 forked, and needs a coordinator of its own"
            }
            Self::Config(error) => return error.fmt(f),
            Self::Denied { .. } => "a right or a command is missing",
            Self::Gone => {
                "it is not held any more: it has expired, or was released, broken or forgotten"
            }
            Self::Held { remaining: None } => "held by another holder",
            Self::Held {
                remaining: Some(left),
            } => return write!(f, "held by another holder for {left:.1?} more"),
            Self::NoQuorum => "too few masters voted",
            Self::NotFenced => {
                "its owner holds it without a fencing token: every task that acquires it must ask \
                 for a token"
            }
            Self::OtherKind => "held as another kind of lock",
            Self::OwnerBusy => "another task of its owner is in the middle of an attempt",
            Self::Quarantined { remaining } => {
                return write!(
                    f,
                    "too many masters may have forgotten locks, for {remaining:.1?} more"
                );
            }
            Self::Queued => "other waiters come first",
            Self::Split => "the vote was split",
            Self::TooSlow { elapsed } => {
                return write!(f, "a majority took {elapsed:.1?} to grant it");
            }
            Self::Upgrade => {
                "its owner holds it as a reader, and a reader cannot become a writer: two of them \
                 would wait for each other forever. Release the guards that read, then write"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_a_contention_an_outage_or_a_mistake() {
        let remaining = Duration::from_secs(1);
        for (reason, class, word) in [
            (Reason::Closed, "unavailable", "closed"),
            (Reason::Config(ConfigError::EmptyName), "mistake", ""),
            (Reason::Denied { reply: "".into() }, "mistake", "denied"),
            (Reason::Gone, "busy", ""),
            (Reason::Held { remaining: None }, "busy", "busy"),
            (Reason::NoQuorum, "unavailable", "no_quorum"),
            (Reason::NotFenced, "mistake", ""),
            (Reason::OtherKind, "mistake", "other_kind"),
            (Reason::OwnerBusy, "busy", "busy"),
            (
                Reason::Quarantined { remaining },
                "unavailable",
                "quarantined",
            ),
            (Reason::Queued, "busy", "busy"),
            (Reason::Split, "busy", "busy"),
            (
                Reason::TooSlow { elapsed: remaining },
                "unavailable",
                "too_slow",
            ),
            (Reason::Upgrade, "mistake", ""),
        ] {
            let classes = [
                (reason.is_busy(), "busy"),
                (reason.is_unavailable(), "unavailable"),
                (reason.is_mistake(), "mistake"),
            ];
            let of: Vec<_> = classes.iter().filter(|(is_so, _)| *is_so).collect();
            assert_eq!(of, [&(true, class)], "{reason:?}");
            assert_eq!(reason.word().unwrap_or_default(), word, "{reason:?}");
            let is_final = class == "mistake" || matches!(reason, Reason::Closed | Reason::Gone);
            assert_eq!(reason.is_final(), is_final, "{reason:?}");
        }
    }
}
