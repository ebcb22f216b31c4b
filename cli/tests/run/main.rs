//! Runs the real program against real masters.

#[path = "../../../examples/support/server.rs"]
mod server;

mod crowd;
mod exits;
mod killed;
mod lost;
mod output;
mod passwords;
mod recipes;
mod signals;
mod startup;
mod support;
