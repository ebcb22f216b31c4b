//! The reasons why groups of masters cannot be used.

use crate::core::config_error::ConfigError;

/// The error of [`Groups::new`](crate::Groups::new) and [`Groups::change`](crate::Groups::change).
/// Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupsError {
    /// Two groups have the same ID.
    #[error("two groups are called {id:?}: every group needs an ID of its own")]
    Duplicate {
        /// The ID.
        id: String,
    },

    /// The masters or the [weight](crate::Group::weight) of a group cannot be used.
    #[error("group {id}: {error}")]
    Group {
        /// The ID of the group. For names that move from `a` to `b`, it is `a->b`.
        id: String,
        /// The reason.
        error: ConfigError,
    },

    /// The ID of a group cannot be used.
    #[error(
        "the group ID {given:?} cannot be used: \
         it must be 1 to {most} ASCII letters, digits, dots, hyphens and underscores"
    )]
    Id {
        /// The ID that was given.
        given: String,
        /// The maximum length in characters.
        most: usize,
    },

    /// The settings have masters of their own.
    #[error("masters were given without a group, too: list all of them in groups")]
    MastersWithoutGroup,

    /// No groups were given.
    #[error("no groups were given: list at least one")]
    NoGroups,

    /// The settings cannot be used, or there are too many groups, or their change moves names
    /// between too many pairs of groups.
    #[error(transparent)]
    Settings(#[from] ConfigError),

    /// A server is in two groups.
    #[error("groups {first} and {second} have the same master, {address}: give each its own")]
    SharedMaster {
        /// The ID of the first group.
        first: String,
        /// The ID of the second group.
        second: String,
        /// The address of the server.
        address: String,
    },
}
