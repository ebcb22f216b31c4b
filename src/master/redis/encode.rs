//! Encodes commands as bytes, usually without an allocation per command.

use std::ops::Range;

use crate::core::{
    command::{Call, Command},
    script::Script,
    words::decimal,
};

/// The bytes of a lock command, for all masters. A master that must wake no one gets an empty word
/// in place of the channel.
pub(in crate::master) struct Encoded {
    bytes: Bytes,
    /// The range of the channel's word in `bytes`. Only masters that wake waiters get this word.
    channel: Option<Range<usize>>,
}

/// The bytes of a command. They need an allocation only if they are many, as for a lock with a long
/// name.
#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one, and exists to avoid an allocation"
)]
enum Bytes {
    Few([u8; Self::FEW], usize),
    Many(Box<[u8]>),
}

impl Bytes {
    const FEW: usize = 240;

    fn of(bytes: &[u8]) -> Self {
        let mut few = [0; Self::FEW];
        match few.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                Self::Few(few, bytes.len())
            }
            None => Self::Many(bytes.into()),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Few(bytes, length) => &bytes[..*length],
            Self::Many(bytes) => bytes,
        }
    }
}

impl Encoded {
    /// Encodes a command. Uses the space after the contents of `scratch`, and leaves the contents
    /// unchanged.
    pub(in crate::master) fn new(
        command: &Command,
        scripts: &ScriptHeads,
        scratch: &mut Vec<u8>,
    ) -> Self {
        let start = scratch.len();
        let channel = encode_command(command, scripts, scratch);
        let bytes = Bytes::of(&scratch[start..]);
        scratch.truncate(start);
        Self {
            bytes,
            channel: channel
                .filter(|_| command.wakes())
                .map(|channel| channel.start - start..channel.end - start),
        }
    }

    /// Appends the command to `out`. `wakes` is set if the master wakes waiters.
    pub(in crate::master) fn append_to(&self, out: &mut Vec<u8>, wakes: bool) {
        let bytes = self.bytes.as_slice();
        match &self.channel {
            Some(channel) if !wakes => {
                out.extend_from_slice(&bytes[..channel.start]);
                push_word(out, b"");
                out.extend_from_slice(&bytes[channel.end..]);
            }
            _ => out.extend_from_slice(bytes),
        }
    }
}

/// The encoded words of a script call before the number of keys: `EVALSHA` and a hash, or `EVAL`
/// and a text.
pub(in crate::master) struct ScriptHead(Vec<u8>);

/// The heads of all scripts.
pub(in crate::master) type ScriptHeads = [ScriptHead; Script::ALL.len()];

impl ScriptHead {
    pub(in crate::master) fn new(verb: &[u8], script: &str) -> Self {
        let mut bytes = Vec::new();
        push_word(&mut bytes, verb);
        push_word(&mut bytes, script.as_bytes());
        Self(bytes)
    }
}

/// Appends a command as an array of bulk strings.
pub(in crate::master) fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    push_length(out, b'*', words.len());
    words.iter().for_each(|word| push_word(out, word));
}

/// Appends a lock command. Takes the heads of scripts from `scripts`. Returns the range of the
/// channel's word, if the command has one.
pub(in crate::master) fn encode_command(
    command: &Command,
    scripts: &ScriptHeads,
    out: &mut Vec<u8>,
) -> Option<Range<usize>> {
    command.call(|call| match call {
        Call::Plain(words) => {
            encode(out, words);
            None
        }
        Call::Script {
            script,
            keys,
            arguments,
        } => {
            push_length(out, b'*', 3 + keys.len() + arguments.len());
            out.extend_from_slice(&scripts[script as usize].0);
            push_word(out, decimal(keys.len() as u64, &mut [0; 20]));
            keys.iter().for_each(|key| push_word(out, key));
            let mut channel = None;
            for (at, word) in arguments.iter().enumerate() {
                let start = out.len();
                push_word(out, word);
                if script.channel() == Some(at) {
                    channel = Some(start..out.len());
                }
            }
            channel
        }
    })
}

fn push_word(out: &mut Vec<u8>, word: &[u8]) {
    push_length(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn push_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    // Nearly all words are shorter than this.
    if length < 100 {
        let (tens, ones) = (b'0' + (length / 10) as u8, b'0' + (length % 10) as u8);
        return match tens {
            b'0' => out.extend_from_slice(&[kind, ones, b'\r', b'\n']),
            _ => out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']),
        };
    }
    out.push(kind);
    out.extend_from_slice(decimal(length as u64, &mut [0; 20]));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        command::{
            Verb,
            fixture::{of as command_for, resource},
        },
        name::Kind,
    };

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        encode(&mut out, &[b"SET", b"a key of 14 b.", b"", &[b'x'; 100]]);
        let expected = format!(
            "*4\r\n$3\r\nSET\r\n$14\r\na key of 14 b.\r\n$0\r\n\r\n$100\r\n{}\r\n",
            "x".repeat(100)
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// Compares the bytes with and without a wake-up, and for short and long names.
    #[test]
    fn a_command_encoded_once_has_the_bytes_of_one_encoded_for_each_master() {
        let scripts = Script::ALL.map(|script| ScriptHead::new(b"EVALSHA", script.text()));
        for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
            for (length, wakes, on_this) in [
                (1, true, true),
                (1, true, false),
                (1, false, false),
                (99, true, false),
                (100, true, true),
                (1_000, true, true),
                (1_000, true, false),
            ] {
                let resource = resource(Kind::Mutex, &"n".repeat(length));
                let command = command_for(&resource, verb, 1, None);
                let command = if wakes {
                    command
                } else {
                    command.without_wakeup()
                };
                let mut out = b"before ".to_vec();
                let encoded = Encoded::new(&command, &scripts, &mut out);
                encoded.append_to(&mut out, on_this);
                let mut expected = b"before ".to_vec();
                let command = if on_this {
                    command
                } else {
                    command.without_wakeup()
                };
                encode_command(&command, &scripts, &mut expected);
                assert_eq!(out, expected, "{verb:?} {length} {wakes} {on_this}");
            }
        }
    }
}
