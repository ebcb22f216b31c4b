//! What a client and a master say to each other about locks of any kind: names and identities,
//! commands and their words, scripts, and the votes in replies.

pub(crate) mod access;
pub(crate) mod client_name;
pub(crate) mod command;
pub(crate) mod companion;
pub(crate) mod connection_name;
pub(crate) mod identity;
pub(crate) mod kind;
pub(crate) mod name;
pub(in crate::core) mod refusal_text;
pub(in crate::core) mod reply;
pub(crate) mod script;
pub(crate) mod words;
