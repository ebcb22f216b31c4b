//! The kinds of locks, and what differs between them: the keys on the masters and the
//! scripts.
//!
//! A kind is a row of [`kinds`]. Each row names a module with what only this kind has. The
//! folder of the same name in `lua/` has the scripts of the kind. What each kind sends is in
//! [`words`](super::protocol::words). All other code that has to know the kinds iterates over
//! [`LockKind::ALL`], and asks [`LockKind::spec`].

use std::{collections::BTreeSet, fmt, ptr};

use companion::{Companion, DEADLINES, FENCE};

pub(crate) mod companion;
pub(crate) mod fair;
pub(crate) mod mutex;
pub(crate) mod read_write;
pub(crate) mod reentrant;
pub(crate) mod rights;
pub(crate) mod script;
pub(crate) mod semaphore;

pub(crate) use rights::Rights;
pub(crate) use script::Script;

/// Calls the macro `$make` with all rows of the table. A row has the name of the kind, then its
/// module.
macro_rules! kinds {
    ($make:ident) => {
        $make! {
            // Kinds with one holder at a time come before kinds with several.
            /// A lock that only one guard can hold at a time, like the locks of most Redlock
            /// libraries.
            Mutex => mutex,
            /// A lock that its owner can acquire again while it holds the lock. It has the layout
            /// of Redisson's plain lock.
            Reentrant => reentrant,
            /// A lock that serves its waiters in the order in which they came.
            Fair => fair,
            /// A lock that readers share, and that a writer holds alone.
            ReadWrite => read_write,
            /// A lock that a limited number of holders have at once, each in a slot of its own.
            Semaphore => semaphore,
        }
    };
}
pub(crate) use kinds;

macro_rules! enumerate {
    ($($(#[doc = $doc:literal])+ $kind:ident => $module:ident,)+) => {
        /// A kind of lock. Locks with the same name exclude each other, even if their kinds differ.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum LockKind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl LockKind {
            pub(crate) const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];

            pub(crate) fn spec(self) -> &'static Spec {
                match self {
                    $(Self::$kind => &$module::SPEC,)+
                }
            }

            /// Returns the word for the kind in metrics and JSON, such as `read_write`. The method
            /// of [`Coordinator`](crate::Coordinator) for the kind has the same name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($module),)+
                }
            }
        }
    };
}
kinds!(enumerate);

impl LockKind {
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns whether the holder of such a lock is an owner. Otherwise, the holder is a token.
    pub(crate) fn has_owner(self) -> bool {
        self.spec().has_owner
    }

    pub(crate) fn is_reentrant(self) -> bool {
        self.has_owner() && !self.spec().has_slots
    }

    /// Returns whether attempts at the lock wait in the queues of the masters, each with a ticket.
    /// Exactly these locks have the companion [`DEADLINES`].
    pub(crate) fn has_queue(self) -> bool {
        let mut companions = self.spec().companions.iter();
        companions.any(|companion| ptr::eq(*companion, &DEADLINES))
    }

    /// Returns whether waiters ask masters to report changes of the key. The key of a lock with
    /// several holders changes too often for that, because each renewal changes it.
    pub(crate) fn is_watched(self) -> bool {
        !self.spec().has_readers && !self.spec().has_slots
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().shown)
    }
}

/// The particulars of a kind of lock. Each kind has one `Spec`: the static `SPEC` in its module.
pub(crate) struct Spec {
    /// The name of the kind in texts for people.
    pub(in crate::core) shown: &'static str,
    /// `true` if the holder of such a lock is an owner. Otherwise, the holder is a token, which is
    /// new for every attempt.
    has_owner: bool,
    /// The keys that the kind keeps in addition to the key of the lock, in the order that its
    /// scripts expect.
    pub(crate) companions: &'static [&'static Companion],
    /// The commands that acquire, extend and release a lock of this kind, separated by spaces.
    rights: &'static str,
    /// `true` if each attempt is made by a reader or by a writer. Readers share the lock.
    pub(crate) has_readers: bool,
    /// `true` if several clients can hold the lock, each in its own slot. Each grant of such a lock
    /// names a slot.
    pub(crate) has_slots: bool,
}

/// Whether a holder shares the lock. Readers of a [read-write lock](crate::LockKind::ReadWrite) and
/// holders of a [semaphore](crate::LockKind::Semaphore) share their lock. All other holders hold a
/// lock alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Exclusive,
    Shared,
}

/// Returns all companion keys, each of them once. The counter for fencing tokens is one of them,
/// because a lock of any kind may have it.
pub(crate) fn companion_keys() -> impl Iterator<Item = &'static Companion> {
    let of_kinds = LockKind::ALL
        .into_iter()
        .flat_map(|kind| kind.spec().companions);
    let mut known = BTreeSet::new();
    let all = of_kinds.copied().chain([&FENCE]);
    all.filter(move |companion| known.insert(companion.name))
}
