//! The particulars of a kind of lock.

use crate::core::{
    protocol::{
        command::{Command, Reply},
        companion::Companion,
        words::Words,
    },
    vote::SlotVote,
};

/// The particulars of a kind of lock. The module of the kind has them as `SPEC`.
pub(crate) struct Spec {
    /// The word in metrics and on the wire: see `lua/README.md`.
    pub(crate) word: &'static str,
    /// The words for people.
    pub(in crate::core) shown: &'static str,
    pub(crate) holder: HolderForm,
    /// The keys that the kind keeps in addition to the key of the lock.
    pub(crate) companions: &'static [&'static Companion],
    pub(in crate::core) words: fn(&Command) -> Words<'_>,
    /// Returns the vote that a reply means. The reply is not an error, and the verb is not one that
    /// all kinds share.
    pub(in crate::core) vote: fn(&Command, &Reply<'_>) -> SlotVote,
    /// `true` if waiters ask masters to report changes of the key. The key of a lock with several
    /// holders changes too often for that, because each renewal changes it.
    pub(crate) is_watched: bool,
    /// `true` if an attempt can leave the lock to readers, which share it.
    pub(crate) has_readers: bool,
    /// `true` if several can hold the lock, each in a slot of its own. A grant is then for a slot.
    pub(crate) has_slots: bool,
}

/// The form in which masters know the holder of a lock. It also decides how attempts wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HolderForm {
    /// An owner, which may hold several levels. Attempts wait in turn.
    Owner,
    /// An owner with a ticket, by which it waits in the queue of each master.
    Ticket,
    /// A token, which is new for every attempt. Attempts wait in turn.
    Token,
}
