//! Errors in settings and names, found before anything is sent.

use std::time::Duration;

/// A setting, a name or a call that cannot be used. Nothing was sent to a master.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A master cannot be used, for example because its URL is wrong. The message does not show the
    /// URL, because a URL may contain a password.
    #[error("master {master}: {reason}")]
    BadMaster {
        /// The number of the master in the list, starting at 1.
        master: usize,
        /// The reason why the master cannot be used.
        reason: String,
    },

    /// A [blocking](crate::blocking) call was made in an async task of tokio, where it would stop
    /// the other tasks of its thread. The same error is returned while the values of a thread are
    /// destroyed.
    #[error(
        "a blocking call cannot wait here: \
         in an async task, use the async API, or make the call in spawn_blocking"
    )]
    CannotBlock,

    /// The connect timeout is out of range.
    #[error(
        "a connect timeout of {given:?} is out of range: it must be from {least:?} to {most:?}"
    )]
    ConnectTimeout {
        /// The connect timeout that was given.
        given: Duration,
        /// The minimum.
        least: Duration,
        /// The maximum.
        most: Duration,
    },

    /// The drift allowance would use up the whole TTL.
    #[error("a drift of {ppm} ppm is out of range: it must be below 1,000,000 (10,000 is 1 %)")]
    Drift {
        /// The drift that was given, in parts per million.
        ppm: u32,
    },

    /// One server is listed twice, so its vote would count twice.
    #[error(
        "masters {first} and {second} are the same server, {address}: \
         every master must be a server of its own"
    )]
    DuplicateMaster {
        /// The number of the server's first entry in the list, starting at 1.
        first: usize,
        /// The number of the server's second entry in the list, starting at 1.
        second: usize,
        /// The address of the server.
        address: String,
    },

    /// The lock's name is empty.
    #[error("the lock's name is empty")]
    EmptyName,

    /// The owner was made by another coordinator. Only that coordinator counts how often the owner
    /// holds each lock.
    #[error("the owner {owner:?} belongs to another coordinator: make one with Coordinator::owner")]
    ForeignOwner {
        /// The [ID](crate::Owner::id) of the owner.
        owner: String,
    },

    /// The key template does not contain `{name}` exactly once.
    #[error("the key template {template:?} must contain {{name}} exactly once")]
    KeyTemplate {
        /// The key template that was given.
        template: String,
    },

    /// The lock's name is too long.
    #[error("a name of {length} bytes is too long: the maximum is {most}")]
    NameTooLong {
        /// The length of the name in bytes.
        length: usize,
        /// The maximum in bytes.
        most: usize,
    },

    /// No masters were given.
    #[error("no masters were given")]
    NoMasters,

    /// There is no tokio runtime to run the coordinator's background tasks.
    #[error(
        "there is no tokio runtime here: \
         build the coordinator inside one, with time and I/O enabled"
    )]
    NoRuntime,

    /// The background thread of a [blocking](crate::blocking) coordinator could not be started.
    #[error("the background thread of the coordinator could not be started: {reason}")]
    NoThread {
        /// The reason from the operating system.
        reason: String,
    },

    /// The node timeout is out of range.
    #[error("a node timeout of {given:?} is out of range: it must be from {least:?} to {most:?}")]
    NodeTimeout {
        /// The node timeout that was given.
        given: Duration,
        /// The minimum.
        least: Duration,
        /// The maximum.
        most: Duration,
    },

    /// The owner holds the lock without a fencing token. Acquiring the lock again as this owner
    /// does not make a token.
    #[error(
        "the owner holds the lock without a fencing token: \
         every task that acquires it must ask for a token"
    )]
    NotFenced,

    /// The bounds of the poll interval are not a range.
    #[error(
        "a poll interval from {least:?} to {most:?} is not a range: \
         it needs 0 < least <= most <= 1 h"
    )]
    PollInterval {
        /// The lower bound that was given.
        least: Duration,
        /// The upper bound that was given.
        most: Duration,
    },

    /// The lock's key begins with `quorlock:`. This prefix is reserved for the crate's own keys.
    #[error(
        "the key {key:?} begins with quorlock:, which is reserved for the crate's own keys: \
         use another name or key template"
    )]
    ReservedKey {
        /// The key that was made from the name and the key template. If the template itself begins
        /// with `quorlock:`, this is the template.
        key: String,
    },

    /// The bounds of the retry delay are not a range.
    #[error(
        "a retry delay from {least:?} to {most:?} is not a range: \
         it needs 0 < least <= most <= 1 h"
    )]
    RetryDelay {
        /// The lower bound that was given.
        least: Duration,
        /// The upper bound that was given.
        most: Duration,
    },

    /// There are more masters than a lock can use.
    #[error("{given} masters are too many: the maximum is {most}, and 3 or 5 are usual")]
    TooManyMasters {
        /// The number of masters that were given.
        given: usize,
        /// The maximum.
        most: usize,
    },

    /// The TTL is too long.
    #[error(
        "a TTL of {ttl:?} is too long: the maximum is {most:?}, \
         see Builder::ttl (10 s by default) and Builder::max_ttl"
    )]
    TtlTooLong {
        /// The TTL that was given.
        ttl: Duration,
        /// The maximum.
        most: Duration,
    },

    /// The node timeout and the drift allowance would use up the whole TTL.
    #[error(
        "a TTL of {ttl:?} is too short: \
         it must exceed {least:?}, the node timeout and the drift allowance together"
    )]
    TtlTooShort {
        /// The TTL that was given.
        ttl: Duration,
        /// The duration that the TTL must exceed.
        least: Duration,
    },

    /// The waiter timeout is out of range. A waiter timeout below the minimum would treat live
    /// waiters as dead. One above the maximum would keep dead waiters in the queue for too long.
    #[error(
        "a waiter timeout of {given:?} is out of range: \
         it must be from {least:?} (four node timeouts) to {most:?}"
    )]
    WaiterTimeout {
        /// The waiter timeout that was given.
        given: Duration,
        /// The minimum: four node timeouts.
        least: Duration,
        /// The maximum.
        most: Duration,
    },
}
