//! Masters and networks that misbehave, and the load that they are tested with.
//!
//! `tests/hostile` asserts, and the bench `hostile` prints figures. Masters and proxies run on threads
//! of the standard library, so a stalled runtime does not stall them.

pub mod answers;
pub mod fake_server;
pub mod load;
pub mod process_stats;
pub mod resp;
pub mod short_lived;
