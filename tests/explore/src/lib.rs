//! A search through all orders of steps of a few clients on three masters, for kinds of locks that
//! several clients can hold, and on up to ten for a change of the masters. After each step, it
//! checks the guarantees. The same search must find the flaws of rules that are known to be wrong.
//!
//! # How a model works
//!
//! - **Commands.** A command that was sent may be executed at any later time, any number of times,
//!   or never. So delays, losses, copies and reordering need no steps of their own. An answer is
//!   counted at once or never.
//! - **Time.** There is none. An entry of a master that a lease counts on stays; any other entry,
//!   and any ticket, may vanish at any time. A holder may stop at any time: its lease ends, it
//!   releases, or its process ends.
//! - **Masters** may lose all their data. They then have no vote until no lease counts on them.
//! - **Breaks.** A holder that was broken does not count as a holder until a round that began after
//!   the break confirms it.
//!
//! Each model says what it leaves out. The tests have the number of states of each search, and the
//! number of steps to each flaw. A search of 1,000,000 states takes about 5 s.
//!
//! # What the searches have shown
//!
//! - An entry that an earlier attempt has left must give no right. If it does, a waiter passes
//!   another one that is before it on a majority: see `OldEntryPasses`.
//! - A break does not last if commands are late. An acquisition or a heal that comes after it puts
//!   the broken holder back, which may then go on after another had the lock.
//! - A process that is barred on old masters stays barred only if the masters keep that over a
//!   restart: see `BarsVanish`.
#![cfg_attr(not(test), allow(dead_code, reason = "the tests use it"))]

mod change;
mod read_write;
mod search;
mod semaphore;

const MASTERS: usize = 3;
const MAJORITY: usize = 2;
