//! The kinds of locks: their names, commands and replies.

pub(crate) mod client_name;
pub(crate) mod command;
pub(crate) mod held_report;
pub(crate) mod identity;
pub(crate) mod name;
pub(in crate::core) mod refusal_text;
pub(in crate::core) mod reply;
pub(crate) mod script;
pub(crate) mod words;
