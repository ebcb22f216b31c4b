//! The kinds of locks: their names, commands and replies.
//!
//! A kind is a row of the table below. Its module holds everything that is particular to it, and
//! the folder of the same name in `lua/` holds its scripts. Whatever else has to know the kinds
//! iterates over `Kind::ALL`, and asks `Kind::spec`.

/// The table of the kinds. Calls the macro `$make` with all rows. A row has the name of the kind,
/// then its module.
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
        }
    };
}

#[cfg(test)]
pub(crate) use kinds;

pub(crate) mod client_name;
pub(crate) mod command;
pub(crate) mod companion;
pub(crate) mod fair;
pub(crate) mod held_report;
pub(crate) mod identity;
mod mutex;
pub(crate) mod name;
mod reentrant;
pub(in crate::core) mod refusal_text;
mod reply;
pub(crate) mod script;
pub(crate) mod spec;
pub(crate) mod table;
pub(crate) mod words;
