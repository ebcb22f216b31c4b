//! The rights of a user who looks at locks.

use quorlock::{Coordinator, tools::ServerError};

use crate::words::in_words_of_the_file;

/// Gives all rights that a look at the lock of a name needs, and more, in place of the one that an
/// error names. The name `*` stands for all locks. The doctor does not know these rights, and tries
/// another key.
pub(crate) fn with_all_rights(text: &str, locks: &Coordinator, of: [&str; 2]) -> Option<String> {
    let ([name, more], (before, after)) = (of, text.split_once(": answered ")?);
    let error = after.split("; ").next()?;
    // Other characters may mean something in a pattern or to a shell.
    let is_plain = |letter: char| letter.is_alphanumeric() || ":._-/".contains(letter);
    let key = locks.mutex(name).key()?.to_owned();
    let why = match ServerError::of(error) {
        _ if name != "*" && !key.chars().all(is_plain) => return None,
        ServerError::KeyDenied if key == "*" => ALL_KEYS,
        ServerError::KeyDenied | ServerError::CommandDenied | ServerError::ScriptsDenied => "",
        _ => return None,
    };
    // A server refuses any other pattern beside that of all keys.
    let others = if key == "*" { "" } else { " ~quorlock:*" };
    let text = format!("{before}: answered {error}; {why}{LOOK}{more} ~{key}{others}{NOT_READ}");
    Some(in_words_of_the_file(&text))
}

const LOOK: &str = "ACL SETUSER <user> +eval +evalsha +scan +type +getrange +get +hmget +hgetall \
    +hlen +pttl +zrange +time";
/// What a break needs beside that.
pub(crate) const BREAK: &str = " +del +hdel +zrem +zscore +publish";
const NOT_READ: &str = "; %R~ is not enough for scripts";
const ALL_KEYS: &str = "--all-keys reads each key of the database: give --key-template, such as \
    'app:{name}', or ";
