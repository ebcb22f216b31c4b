//! Masters and networks that misbehave, and the load that they are tested with.
//!
//! `tests/hostile` runs short forms and asserts. The bench `hostile` runs long forms and prints
//! figures. Masters and proxies run on threads of the standard library, so a stalled runtime does
//! not stall them.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "included with #[path] in two crates, neither of which uses everything"
)]

pub mod all_calls;
pub mod answers;
pub mod close;
pub mod fake_server;
pub mod first_attempt;
pub mod floods;
pub mod load;
pub mod mutator;
#[path = "../on_event.rs"]
pub mod on_event;
pub mod process_stats;
#[path = "../proxy.rs"]
pub mod proxy;
#[path = "../random.rs"]
pub mod random;
pub mod releases;
pub mod resp;
pub mod short_lived;
pub mod slow_master;
