//! The commands that a master gets, as the checker reads them.

use std::{borrow::Cow, fmt, sync::LazyLock};

use quorlock_memory::heart::{self, Reply};

use crate::{
    LockKind,
    core::{
        kind::script::{ORIGIN, Script},
        protocol::words::fixture::scripts,
        restart::ORIGIN_KEY,
        vote::{Slot, Verb},
    },
};

/// The words of a command, with its name.
pub(super) type Words<'a> = [&'a [u8]];

/// The scripts of the crate, with their hashes.
static SCRIPTS: LazyLock<Vec<(Vec<u8>, &'static Script)>> = LazyLock::new(|| {
    let all = scripts().chain([&ORIGIN]);
    all.map(|script| (hash(script), script)).collect()
});

fn hash(script: &Script) -> Vec<u8> {
    let hash = |text: &str| heart::Script::new(text).hash().to_owned();
    script.hash(hash).into()
}

/// Takes the first command from `input`. Returns `None` if it is incomplete.
pub(super) fn take<'a>(input: &mut &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let mut rest = *input;
    let count = number(&mut rest, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number(&mut rest, b'$')?;
        words.push(rest.get(..length)?);
        rest = rest.get(length + 2..)?;
    }
    *input = rest;
    Some(words)
}

/// Takes a line with a number.
fn number(input: &mut &[u8], kind: u8) -> Option<usize> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let line = input[..end].strip_suffix(b"\r")?;
    *input = &input[end + 1..];
    let digits = line.strip_prefix(&[kind]);
    let digits = digits.unwrap_or_else(|| panic!("{} is no length", line.escape_ascii()));
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns whether a command is about a lock.
pub(super) fn is_of_lock(words: &Words<'_>) -> bool {
    match words {
        [b"EVAL" | b"EVALSHA", _, _, key, ..] => *key != ORIGIN_KEY.as_bytes(),
        [b"DELEX" | b"DELIFEQ" | b"SET", _, ..] => true,
        _ => false,
    }
}

/// Returns the script of a command, if it has one. The text that tries rights may come before that
/// of the script.
pub(super) fn script_of(words: &Words<'_>) -> Option<&'static Script> {
    let [b"EVAL" | b"EVALSHA", named, ..] = words else {
        return None;
    };
    let is_it = |(hash, script): &&(Vec<u8>, &Script)| {
        *named == hash || named.ends_with(script.text().as_bytes())
    };
    SCRIPTS.iter().find(is_it).map(|(_, script)| *script)
}

/// Returns whether a command asks for the origin record, as the last command of a dial does.
pub(super) fn asks_for_origin(words: &Words<'_>) -> bool {
    matches!(words, [b"EVAL", _, _, key, ..] if *key == ORIGIN_KEY.as_bytes())
}

/// Returns whether a command asks for the origin record for a program that has known no master.
/// Such a program takes a master without the record for new.
pub(super) fn takes_for_new(words: &Words<'_>) -> bool {
    matches!(words, [b"EVAL", _, _, key, b"observed", _name] if *key == ORIGIN_KEY.as_bytes())
}

/// A command about a lock.
pub(super) struct LockCommand<'a> {
    pub(super) verb: Verb,
    pub(super) kind: LockKind,
    pub(super) key: &'a str,
    pub(super) by: Option<By<'a>>,
    /// The slot that the sender has or wants.
    pub(super) slot: Option<Slot>,
    /// The ticket of a waiter. Each waiter of an owner has one of its own.
    pub(super) ticket: Option<&'a [u8]>,
    /// Whether the words say that the command puts the key of a held lock back. Those of a
    /// reentrant lock do not say so, and those of a fair lock are the same.
    pub(super) ignores_waiters: bool,
}

/// The sender of a command.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum By<'a> {
    /// An owner, with the number of the attempt.
    Owner(&'a [u8], &'a [u8]),
    Token(&'a [u8]),
}

/// What a reply says about the sender of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    /// It has the lock, or this slot of it.
    Granted(Option<Slot>),
    /// Another client has the lock.
    Held,
    Other,
}

impl<'a> LockCommand<'a> {
    pub(super) fn read(words: &[&'a [u8]]) -> Option<Self> {
        if !is_of_lock(words) {
            return None;
        }
        let (mut kind, mut slot) = (LockKind::Mutex, None);
        let (mut ticket, mut ignores_waiters) = (None, false);
        let (verb, key, by) = match *words {
            [b"SET", key, token, ..] => (Verb::Acquire, key, Some(By::Token(token))),
            [b"DELEX", key, _, token] | [b"DELIFEQ", key, token] => {
                (Verb::Release, key, Some(By::Token(token)))
            }
            [_, _, _, _, b"probe", ..] => return None,
            [_, _, keys, key, ..] => {
                let script = script_of(words).expect("the crate has sent a script of its own");
                let arguments = &words[3 + parsed(keys)?..];
                let (of, what) = script.name.split_once('/')?;
                kind = LockKind::of_word(of).unwrap_or(kind);
                let verb = verb(kind, what, arguments)?;
                if kind == LockKind::Semaphore && verb != Verb::Release {
                    let at = if verb == Verb::Acquire { 4 } else { 3 };
                    slot = arguments.get(at).and_then(|slot| parsed(slot));
                }
                let by = match *arguments {
                    _ if of == "shared" => None,
                    [token, ..] if kind == LockKind::Mutex => Some(By::Token(token)),
                    [owner, attempt, ref rest @ ..] => {
                        ticket = rest.iter().copied().find(|word| word.ends_with(owner));
                        ignores_waiters = rest.contains(&b"-1".as_slice());
                        Some(By::Owner(owner, attempt))
                    }
                    _ => None,
                };
                (verb, key, by)
            }
            _ => return None,
        };
        Some(Self {
            verb,
            kind,
            key: str::from_utf8(key).ok()?,
            by,
            slot: slot.and_then(|slot| Slot::new(slot as u16)),
            ticket,
            ignores_waiters,
        })
    }

    /// Returns what a reply to the command says.
    pub(super) fn answer(&self, reply: &Reply) -> Answer {
        let chooses_slot = self.kind == LockKind::Semaphore && self.verb == Verb::Acquire;
        match reply {
            Reply::Int(slot @ 1..) if chooses_slot => Answer::Granted(Slot::new(*slot as u16)),
            Reply::Int(1) => Answer::Granted(self.slot),
            Reply::Status(_) => Answer::Granted(None),
            Reply::Int(..=-1) | Reply::Nil => Answer::Held,
            Reply::Bulk(text) if text.starts_with(b"held ") => Answer::Held,
            _ => Answer::Other,
        }
    }
}

/// Returns the verb of a script. A release that leaves a level of a read-write lock runs the script
/// that extends, with the TTL 0.
fn verb(kind: LockKind, what: &str, arguments: &Words<'_>) -> Option<Verb> {
    let is_level = kind == LockKind::ReadWrite && arguments.get(3) == Some(&&b"0"[..]);
    match what {
        "acquire" | "acquire_watched" => Some(Verb::Acquire),
        "extend" if is_level => Some(Verb::Release),
        "extend" => Some(Verb::Extend),
        "release" | "release_fenced" => Some(Verb::Release),
        "yield" => Some(Verb::Yield),
        "inspect" => Some(Verb::Inspect),
        "break" => Some(Verb::Break),
        _ => None,
    }
}

fn parsed(word: &[u8]) -> Option<usize> {
    str::from_utf8(word).ok()?.parse().ok()
}

/// The words of a command for people. A script has its name.
pub(super) struct Shown<'a>(pub(super) &'a Words<'a>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let script = script_of(self.0);
        let name = script.map(|script| Cow::Borrowed(script.name));
        let words = self.0.iter().enumerate().map(|(at, word)| match &name {
            Some(name) if at == 1 => name.clone(),
            _ => String::from_utf8_lossy(word),
        });
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::protocol::{
        command::{
            Command,
            fixture::{command, fenced},
        },
        words::fixture::verbs,
    };

    /// Returns the words of a command as a server gets them.
    fn sent(command: &Command) -> Vec<Vec<u8>> {
        let (words, mut sent) = (command.words(), Vec::new());
        if let Some(script) = words.script {
            let (count, keys) = words.script_keys();
            let head = [b"EVALSHA".to_vec(), hash(script), count.to_string().into()];
            sent.extend(head.into_iter().chain(keys.map(Into::into)));
        }
        words.arguments(|word| sent.push(word.to_vec()));
        sent
    }

    #[test]
    fn each_command_about_a_lock_is_read() {
        for (kind, verb) in verbs().filter(|(_, verb)| *verb != Verb::Probe) {
            let by = match verb {
                Verb::Break | Verb::Inspect => None,
                _ if kind.has_owner() => Some(By::Owner(b"u:1", b"7")),
                _ => Some(By::Token(&[b'0'; 40])),
            };
            // The words of some heals are those of an acquisition.
            let expected = if verb == Verb::Heal {
                Verb::Acquire
            } else {
                verb
            };
            for command in [command(kind, verb, 0), fenced(kind, verb, 0)] {
                let words = sent(&command);
                let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
                let read = LockCommand::read(&words).unwrap();
                let shown = format!("{kind} {}", Shown(&words));
                assert_eq!((read.verb, read.key), (expected, "r"), "{shown}");
                assert!(read.by == by, "{shown}");
                let ignores = matches!(kind, LockKind::ReadWrite | LockKind::Semaphore);
                assert_eq!(
                    read.ignores_waiters,
                    ignores && verb == Verb::Heal,
                    "{shown}"
                );
                let waits = kind.has_queue() && verb == Verb::Acquire;
                assert!(read.ticket.is_some() || !waits, "{shown}");
            }
        }
    }
}
