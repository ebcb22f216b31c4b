//! What the tests, benches, drills and examples of this repository have in common: private servers,
//! networks that misbehave, captured logs.

pub mod captured_log;
#[cfg(feature = "certificates")]
pub mod certificates;
pub mod child_output;
#[cfg(feature = "hostile")]
pub mod hostile;
pub mod on_event;
pub mod polled;
pub mod proxy;
pub mod random;
pub mod sentinels;
pub mod server;
pub mod times;
