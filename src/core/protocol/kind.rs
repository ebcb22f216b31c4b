//! The table of the kinds of locks.
//!
//! A kind is a row of this table. The module in `src/core/kind/` that the row names holds
//! everything that is particular to the kind, and the folder of the same name in `lua/` holds its
//! scripts. Whatever else has to know the kinds iterates over `Kind::ALL`, and asks `Kind::spec`.

/// Calls the macro `$make` with all rows of the table. A row has the name of the kind, then its
/// module.
macro_rules! kinds {
    ($make:ident) => {
        $make! {
            /// A lock that can be held only once at a time, as in most Redlock libraries.
            Mutex => mutex,
            /// A lock that its owner can acquire again while it holds the lock. It has the layout
            /// of Redisson's plain lock.
            Reentrant => reentrant,
            /// A reentrant lock that serves its waiters in the order in which they came.
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
        pub enum Kind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl Kind {
            /// All kinds.
            pub(crate) const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];
        }
    };
}
kinds!(enumerate);
