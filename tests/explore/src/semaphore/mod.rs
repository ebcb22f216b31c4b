//! The semaphore: a lock with a number of slots. Each slot has one holder.
//!
//! Every round of a client has a token of its own. Not modelled: the queue, which only refuses
//! more, calls of waiters, and where a master begins to look for a free slot. It may choose any.

mod master;
mod model;
mod state;
#[cfg(test)]
mod tests;

/// The way in which a rule is broken, to test that the search finds the flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A break deletes the key, with all holders.
    BreakDeletesKey,
    /// A token that did not win one slot asks for another one.
    ChangesSlot,
    /// Grants of different slots count together.
    CountsGrants,
    /// A token asks again, and the grants of its earlier rounds still count.
    KeepsVotes,
    /// A master that lost its data votes again at once.
    NoQuarantine,
    /// No rule is broken.
    Not,
}
