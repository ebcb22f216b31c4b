//! The commands with which some servers release a mutex without a script.

use super::command::Reply;

/// A command that deletes a key if the key holds a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeRelease {
    /// `DELEX key IFEQ token`, in Redis since version 8.4.
    Delex,
    /// `DELIFEQ key token`, in Valkey since version 9.0.
    Delifeq,
}

impl NativeRelease {
    pub(crate) const ALL: [Self; 2] = [Self::Delex, Self::Delifeq];

    /// Returns the name of the command. If only the name is sent, without arguments, the reply
    /// shows whether the server has the command.
    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            Self::Delex => b"DELEX",
            Self::Delifeq => b"DELIFEQ",
        }
    }

    /// Returns whether `reply` can be the reply to this command. Other replies do not prove a
    /// release.
    pub(crate) fn has(self, reply: &Reply<'_>) -> bool {
        match (self, reply) {
            (_, Reply::Int(0 | 1)) => true,
            // Each command has its own error for a key of another type.
            (Self::Delex, Reply::Error(error)) => !error.starts_with("WRONGTYPE"),
            (Self::Delifeq, Reply::Error(error)) => !error.starts_with("ERR Key should be"),
            (_, Reply::Int(_) | Reply::Nil | Reply::Ok | Reply::Other | Reply::Text(_)) => false,
        }
    }
}
