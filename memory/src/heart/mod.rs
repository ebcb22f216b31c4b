//! The server as a state machine: bytes go in, and replies and pushes come out.
//!
//! Nothing here does IO, spawns tasks, or reads a clock. Each call takes the time: `now` is the
//! time in microseconds since 1970. [`Server`] adds the error of its clock to it (see
//! [`Server::set_clock`]); [`Keyspace`] takes the time that a server would show.
//!
//! [`Keyspace`] is the data alone. It can be cloned, compared and hashed, so a search can walk
//! through the states that commands and scripts lead to.

mod about;
mod clock;
mod commands;
mod connections;
mod database;
mod effect;
mod keyspace;
mod lua;
mod reply;
mod run;
mod script;
mod server;

pub use self::{
    about::Version,
    keyspace::{Keyspace, Score, Value},
    reply::Reply,
    run::Ran,
    script::Script,
    server::{Data, Server},
};

#[cfg(test)]
mod tests;
