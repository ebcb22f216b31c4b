//! The particulars of a kind of lock.

use crate::core::protocol::companion::Companion;

/// The particulars of a kind of lock. The module of the kind has them as `SPEC`.
pub(crate) struct Spec {
    /// The words for people.
    pub(in crate::core) shown: &'static str,
    pub(crate) holder: HolderForm,
    /// The keys that the kind keeps in addition to the key of the lock, in the order that its
    /// scripts expect.
    pub(crate) companions: &'static [&'static Companion],
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
