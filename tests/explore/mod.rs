//! A search through all orders of steps of a few clients on a few masters. After each step, it
//! checks the guarantees. The same search must find the flaws of rules that are known to be wrong.
//!
//! The masters run the scripts of `lua/`, and the clients write the words of commands, read the
//! replies and count the votes, all as in production: see [`masters`]. A wrong rule is an edit of
//! the text of a script, or of what a client does.
//!
//! # How a model works
//!
//! - **Commands.** A command that was sent may be executed at any later time, any number of times,
//!   or never. So delays, losses, copies and reordering need no steps of their own. An answer is
//!   counted at once or never.
//! - **Time** stands still, but in a few searches of ballots. The lease of an entry that nobody
//!   counts on, and the deadline of any ticket, may end at any time. A holder may stop at any time:
//!   its lease ends, it releases, or its process ends.
//! - **Masters** may lose all their data. They then have no vote until no lease counts on them.
//! - **Breaks.** A holder that was broken does not count as a holder until a round that began after
//!   the break confirms it.
//!
//! Each model says what it leaves out. The tests have the number of states of each search, and the
//! number of steps to each flaw.
//!
//! # What the searches have shown
//!
//! - An entry that an earlier attempt has left must give no right. If it does, a waiter passes
//!   another one that is before it on a majority: see `OLD_ENTRY_PASSES`.
//! - A break does not last if commands are late. An acquisition or a heal that comes after it puts
//!   the broken holder back, which may then go on after another had the lock.
//! - A process that is barred on old masters stays barred only if the masters keep that over a
//!   restart: see `BarsVanish`.
#![allow(clippy::unwrap_used, reason = "a failed test ends")]
#![allow(
    clippy::single_range_in_vec_init,
    reason = "the masters of one set, in a list of sets"
)]

mod ballots;
mod change;
mod detached;
mod locks;
mod masters;
mod search;
