//! The semaphore: a lock with a number of slots. Each slot has one holder.
//!
//! Every attempt of a client has a token of its own, and asks for one slot at most: some masters
//! choose, and the others are asked for a slot that one of them has chosen. An attempt may have a
//! second round, with another candidate for the fencing token. A holder asks masters for its slot
//! again and again. Not modelled: the counter and the queue, which only refuse more, calls of
//! waiters, and where a master begins to look for a free slot. It may choose any.

mod late;
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
    /// A token that has asked for one slot asks for any in its next round. Masters refuse the slot
    /// of the first round by its older candidate, but still remove the entry from any other slot.
    ChoosesAgain,
    /// Grants of different slots count together.
    CountsGrants,
    /// A heal takes the slot of another holder.
    HealTakesHeld,
    /// A token asks again, and the grants of its earlier rounds still count.
    KeepsVotes,
    /// A master that lost its data votes again at once.
    NoQuarantine,
    /// No rule is broken.
    Not,
}
