//! Masters and networks that misbehave, and the load that they are tested with.
//!
//! `tests/hostile` runs short forms and asserts. The bench `hostile` runs long forms and prints
//! figures. Masters and proxies run on threads of the standard library, so a stalled runtime does
//! not stall them.

pub mod all_calls;
pub mod answers;
pub mod close;
pub mod fake_server;
pub mod first_attempt;
pub mod floods;
pub mod load;
pub mod mutator;
pub mod process_stats;
pub mod releases;
pub mod resp;
pub mod short_lived;
pub mod slow_master;
