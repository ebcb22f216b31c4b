//! Encodes commands as bytes, usually without an allocation per command.

use smallvec::SmallVec;

use crate::{
    core::{
        kind::Script,
        protocol::{Command, NativeRelease, words::decimal},
    },
    machine::out::Encoded,
};

/// Encodes a command for masters that have the script of the command. A plain release is encoded as
/// `native` instead, if the masters have it. Uses the space after the contents of `scratch`, and
/// leaves the contents unchanged.
pub(super) fn encoded(
    command: &Command,
    native: Option<NativeRelease>,
    scratch: &mut Vec<u8>,
) -> Encoded {
    let start = scratch.len();
    let native = native.zip(command.plain_release());
    let script = if let Some((native, (key, token))) = native {
        encode_native(native, key, token.bytes(), scratch);
        None
    } else if command.tries.is_some() {
        // The text of a script that tries rights is sent each time, which is seldom.
        encode_command(command, ScriptAs::Text, scratch).and(None)
    } else {
        encode_command(command, ScriptAs::Hash, scratch)
    };
    let bytes = SmallVec::from_slice(&scratch[start..]);
    scratch.truncate(start);
    Encoded {
        native: native.map(|(native, _)| native),
        script,
        bytes,
    }
}

fn encode_native(native: NativeRelease, key: &[u8], token: &[u8], out: &mut Vec<u8>) {
    let [first, then]: [&[u8]; 2] = match native {
        NativeRelease::Delex => [b"*4\r\n$5\r\nDELEX\r\n", b"$4\r\nIFEQ\r\n"],
        NativeRelease::Delifeq => [b"*3\r\n$7\r\nDELIFEQ\r\n", b""],
    };
    out.extend_from_slice(first);
    push_word(out, key);
    out.extend_from_slice(then);
    push_word(out, token);
}

/// The form in which a script is sent.
#[derive(Clone, Copy)]
pub(crate) enum ScriptAs {
    /// The hash, for a server that has the script.
    Hash,
    Text,
}

/// Appends a command as an array of bulk strings.
pub(crate) fn encode(out: &mut Vec<u8>, words: &[&[u8]]) {
    push_length(out, b'*', words.len());
    words.iter().for_each(|word| push_word(out, word));
}

/// Appends a lock command. Returns its script, if it has one.
pub(crate) fn encode_command(
    command: &Command,
    script_as: ScriptAs,
    out: &mut Vec<u8>,
) -> Option<&'static Script> {
    let words = command.words();
    if let Some(script) = words.script {
        let (key_count, keys) = words.script_keys();
        push_length(out, b'*', 3 + key_count + words.argument_count());
        let tried;
        let head: [&[u8]; 2] = match (script_as, command.tries) {
            (ScriptAs::Hash, _) => [b"EVALSHA", script.hash(hash).as_bytes()],
            (ScriptAs::Text, None) => [b"EVAL", script.text().as_bytes()],
            (ScriptAs::Text, Some(rights)) => {
                tried = rights.check() + script.text();
                [b"EVAL", tried.as_bytes()]
            }
        };
        head.iter().for_each(|word| push_word(out, word));
        push_word(out, decimal(key_count as u64, &mut [0; 20]));
        keys.for_each(|key| push_word(out, key.as_bytes()));
    } else {
        push_length(out, b'*', words.argument_count());
    }
    words.arguments(|word| push_word(out, word));
    words.script
}

fn hash(text: &str) -> String {
    ::redis::Script::new(text).get_hash().to_owned()
}

/// Appends a bulk string.
pub(super) fn push_word(out: &mut Vec<u8>, word: &[u8]) {
    push_length(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn push_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(decimal(length as u64, &mut [0; 20]));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        kind::{LockKind, rights::Rights},
        protocol::command::fixture::{command, fenced, holding, lock_id, of as command_for},
        vote::Verb,
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

    #[test]
    fn a_command_encoded_once_has_the_bytes_of_one_encoded_for_each_master() {
        for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
            for length in [1, 99, 100, 1_000] {
                let lock_id = lock_id(LockKind::Mutex, &"n".repeat(length));
                let command = command_for(&lock_id, verb, holding(LockKind::Mutex, 1, None));
                let mut out = b"before ".to_vec();
                let encoded = encoded(&command, None, &mut out);
                assert_eq!(out, b"before ");
                encode_command(&command, ScriptAs::Hash, &mut out);
                assert_eq!(&out[7..], &*encoded.bytes, "{verb:?} {length}");
            }
        }
    }
    /// A server that is asked to try rights gets a text that it need not have, and the same words.
    #[test]
    fn the_text_that_tries_rights_comes_before_that_of_the_script() {
        for rights in Rights::all() {
            let kind = rights.kind;
            let mut acquire = match rights.is_fenced {
                true => fenced(kind, Verb::Acquire, 1),
                false => command(kind, Verb::Acquire, 1),
            };
            acquire.tries = Some(rights);
            let mut bytes = Vec::new();
            let encoded = encoded(&acquire, None, &mut bytes);
            assert!(encoded.script.is_none(), "{rights:?}");
            acquire.tries = None;
            acquire.watch = kind == LockKind::Mutex; // otherwise it may be a SET
            let script = encode_command(&acquire, ScriptAs::Text, &mut bytes).unwrap();
            let [plain, tried] = [&*bytes, &*encoded.bytes].map(String::from_utf8_lossy);
            let text = rights.check() + script.text();
            let [before, with] =
                [script.text(), &text].map(|text| format!("${}\r\n{text}\r\n", text.len()));
            assert_eq!(plain.replacen(&before, &with, 1), tried, "{rights:?}");
        }
    }
}
