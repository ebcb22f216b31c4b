//! A small Redis in this process, for tests without a server.
//!
//! [`MemoryMaster`] is the server: [`connect`](MemoryMaster::connect) opens a stream to it, over
//! which it speaks RESP2 and RESP3. It runs any Lua script, and fails in the ways that a test
//! [injects](MemoryMaster::inject). Its keys expire by tokio's clock, so a test that pauses time
//! covers hours in no time.
//!
//! [`heart`] is the same server without IO, tasks and clocks: bytes go in, and bytes come out.

pub mod heart;

mod fault;
mod link;
mod master;
mod state;

pub use self::{fault::Fault, heart::Version, master::MemoryMaster};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
