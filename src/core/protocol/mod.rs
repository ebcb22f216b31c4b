//! What a client and a master say to each other about locks of any kind: names and identities,
//! commands and their words, and the votes in replies.

pub(crate) mod command;
pub(crate) mod connection_name;
pub(crate) mod detached;
pub(crate) mod identity;
pub(crate) mod name;
pub(crate) mod reply;
pub(crate) mod words;

pub(crate) use command::{Action, Command, Holding, Reply};
pub(crate) use identity::{Identity, QueueOptions, Ticket};
pub(crate) use name::LockId;
pub(crate) use words::NativeRelease;
