//! Errors in settings and names, found before anything is sent.

use std::time::Duration;

/// What is wrong with a setting. Found before anything is sent to a master.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A master's URL makes no sense. The URL itself is not shown, as it may hold a password.
    #[error("master {master}: {reason}")]
    BadMaster {
        /// Which one, counted from 1.
        master: usize,
        /// What is wrong with it.
        reason: String,
    },

    /// The drift allowance would eat the whole TTL.
    #[error("a drift of {ppm} ppm is out of range: it must be below 1,000,000 (10,000 is 1 %)")]
    Drift {
        /// What was given.
        ppm: u32,
    },

    /// One server was listed twice, so its vote would count twice.
    #[error(
        "masters {first} and {second} are the same server, {address}: every master needs one of its own"
    )]
    DuplicateMaster {
        /// The first of the two, counted from 1.
        first: usize,
        /// The second of the two, counted from 1.
        second: usize,
        /// Where both of them are.
        address: String,
    },

    /// A lock needs a name.
    #[error("the lock's name is empty")]
    EmptyName,

    /// A key template must say where the name goes, once.
    #[error("the key template {template:?} must contain {{name}} exactly once")]
    KeyTemplate {
        /// What was given.
        template: String,
    },

    /// The lock's name is too long.
    #[error("a name of {length} bytes is too long: the most is {most}")]
    NameTooLong {
        /// How many bytes it has.
        length: usize,
        /// How many it may have.
        most: usize,
    },

    /// The owner holds the lock without a fencing token, and entering it again does not make one.
    #[error(
        "the owner holds the lock without a fencing token: all who acquire it must ask for one"
    )]
    NotFenced,

    /// No masters were listed.
    #[error("no masters were given")]
    NoMasters,

    /// Coordinators supervise their masters in background tasks, and there is no runtime to run them.
    #[error(
        "there is no tokio runtime here: build the coordinator inside one, with time and I/O enabled"
    )]
    NoRuntime,

    /// The owner was made by another coordinator, which counts how deep it holds what.
    #[error("the owner {owner:?} is of another coordinator: make one with Coordinator::owner")]
    ForeignOwner {
        /// What it is called.
        owner: String,
    },

    /// Waiters of fair locks would be taken for dead between two signs of life, or for far too long not.
    #[error(
        "a patience of {given:?} is out of range: it must be between {least:?}, four node timeouts, and {most:?}"
    )]
    WaiterTimeout {
        /// What was given.
        given: Duration,
        /// The least that makes sense.
        least: Duration,
        /// The most that makes sense.
        most: Duration,
    },

    /// The bounds of the poll interval make no sense.
    #[error(
        "a poll interval between {least:?} and {most:?} is no range: it needs 0 < least <= most <= 1 h"
    )]
    PollInterval {
        /// The lower bound given.
        least: Duration,
        /// The upper bound given.
        most: Duration,
    },

    /// The lock's key begins with `quorlock:`, as the keys that the crate keeps for itself do.
    #[error(
        "the key {key:?} begins with quorlock:, which is for the crate's own keys: use another name or key template"
    )]
    ReservedKey {
        /// The key that the name and the key template make, or the template where no name helps.
        key: String,
    },

    /// The bounds of the retry delay make no sense.
    #[error(
        "a retry delay between {least:?} and {most:?} is no range: it needs 0 < least <= most <= 1 h"
    )]
    RetryDelay {
        /// The lower bound given.
        least: Duration,
        /// The upper bound given.
        most: Duration,
    },

    /// A timeout was zero or absurdly long.
    #[error("a {which} of {given:?} is out of range: it must be between 1 ms and {most:?}")]
    Timeout {
        /// Which timeout.
        which: &'static str,
        /// What was given.
        given: Duration,
        /// The most that makes sense.
        most: Duration,
    },

    /// More masters than a lock can make use of.
    #[error("{given} masters are too many: the most is {most}, and 3 or 5 are usual")]
    TooManyMasters {
        /// How many were given.
        given: usize,
        /// How many there may be.
        most: usize,
    },

    /// The TTL is too long.
    #[error("a ttl of {ttl:?} is too long: the most is {most:?}, see Builder::max_ttl")]
    TtlTooLong {
        /// What was given.
        ttl: Duration,
        /// The most there may be.
        most: Duration,
    },

    /// The TTL would be used up by one slow master and the drift allowance.
    #[error(
        "a ttl of {ttl:?} is too short: it must be above {least:?}, the node timeout and the drift allowance together"
    )]
    TtlTooShort {
        /// What was given.
        ttl: Duration,
        /// What it must exceed.
        least: Duration,
    },
}
