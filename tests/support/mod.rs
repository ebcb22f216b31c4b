//! What the tests share.

#![allow(
    unreachable_pub,
    reason = "a test crate exports nothing, yet its modules use these items"
)]

pub mod proxy;
pub mod server;
