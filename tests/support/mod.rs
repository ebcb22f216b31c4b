//! Helpers shared by the tests.

#![allow(
    unreachable_pub,
    reason = "a test crate exports nothing, yet its modules use these items"
)]

#[path = "../../examples/support/server.rs"]
pub mod server;
