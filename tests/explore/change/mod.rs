//! A change of the masters while processes use the lock.
//!
//! There are an old and a new set of masters, which may have masters in common. A process needs a
//! majority of the old set, of the new set, or of both, which is the joint configuration. It keeps
//! its configuration for life. A master that both sets have is asked once, and counts in each.
//!
//! - **Processes** start at any time, if the procedure lets them: a process of one set must have
//!   ended before one of the other set starts, and joint ones may run beside both. The rule is the
//!   same backwards. A process asks once. A later attempt, and a process that starts again, have
//!   tokens of their own, and are other processes here.
//! - **Late commands.** All that a process has sent may be executed after its end, except on
//!   masters that are closed to it.
//! - **Old processes that may still run** can be barred: so many old masters are closed to all of
//!   them that they have no majority. Then the longest lease must pass: no lease of an old process
//!   and none of its open rounds counts on a closed master any more.
//! - **Removed masters** may be destroyed for good instead. Then the longest lease must pass too,
//!   and the two sets are used side by side.
//! - **Sizes.** Some wrong rules are safe for some sizes: sets of which all majorities meet may be
//!   used side by side, and one more master may be needed instead of both sets.
//!
//! Not modelled: the fencing counter and the queue, which only refuse more, breaks, calls of
//! waiters, and two changes at a time. A process whose round is refused may ask again in it.

mod model;
mod rules;
mod state;
mod steps;
mod tests;

/// The way in which a rule is broken, to test that the search finds the flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// A master that lost its data lets barred processes in again.
    BarsVanish,
    /// Processes that hold and want nothing count as ended.
    BelievedGone,
    /// A process with both sets needs a majority of one of them.
    Either,
    /// A process with both sets extends by a majority of the old set.
    ExtendsOldSet,
    /// A master that lost its data votes again at once.
    NoQuarantine,
    /// Nobody waits for the end of leases after masters were closed.
    NoWait,
    /// No rule is broken.
    Not,
    /// The new set is used once some process has both, though a process with the old one runs.
    OldLives,
    /// A process with the old set starts though one with the new set runs.
    OldReturns,
    /// The new set is used beside the old one.
    StraightToNew,
    /// A process takes another configuration, and goes on to hold the lock.
    SwitchesHeld,
    /// Old processes are barred on one master too few.
    TooFewBars,
    /// A process with both sets needs a majority of all masters.
    Union,
}
