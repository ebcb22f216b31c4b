//! The commands with which newer servers release a mutex without a script.

use super::{encode::encode, resp::reply};
use crate::core::protocol::command::Reply;

/// A command that deletes a key if the key holds a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NativeRelease {
    /// `DELEX key IFEQ token`, in Redis since version 8.4.
    Delex,
    /// `DELIFEQ key token`, in Valkey since version 9.0.
    Delifeq,
}

impl NativeRelease {
    pub(super) const ALL: [Self; 2] = [Self::Delex, Self::Delifeq];

    /// Returns the name, which is also the question whether a server has the command.
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::Delex => b"DELEX",
            Self::Delifeq => b"DELIFEQ",
        }
    }

    /// Returns whether the command can have this reply. Any other reply proves no release.
    pub(super) fn has(self, reply: &Reply<'_>) -> bool {
        match (self, reply) {
            (_, Reply::Int(0 | 1)) => true,
            // Each has a text of its own for a key of another type.
            (Self::Delex, Reply::Error(error)) => !error.starts_with("WRONGTYPE"),
            (Self::Delifeq, Reply::Error(error)) => !error.starts_with("ERR Key should be"),
            _ => false,
        }
    }

    /// Appends the command.
    pub(super) fn encode(self, key: &[u8], token: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Delex => encode(out, &[b"DELEX", key, b"IFEQ", token]),
            Self::Delifeq => encode(out, &[b"DELIFEQ", key, token]),
        }
    }
}

/// Returns whether the reply to the bare name of a command shows that the server has the command.
///
/// A server first looks for the command, then counts its arguments, and then checks the user's
/// rights. So the question needs no right and touches no key.
pub(super) fn is_known(frame: &[u8]) -> bool {
    let reply = reply(frame);
    matches!(reply, Reply::Error(error) if error.starts_with("ERR wrong number of arguments"))
}
