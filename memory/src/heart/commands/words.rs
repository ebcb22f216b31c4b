//! The words of commands, and the errors about them.

use crate::heart::database::{Answer, Error, NOT_INTEGER};

pub(super) fn arity(name: &str) -> Error {
    let name = name.to_lowercase();
    format!("ERR wrong number of arguments for '{name}' command").into()
}

pub(super) fn unknown_subcommand(name: &str, sub: &[u8]) -> Error {
    let sub = String::from_utf8_lossy(sub);
    format!("ERR unknown subcommand '{sub}'. Try {name} HELP.").into()
}

/// Returns a whole number.
pub(super) fn whole(word: &[u8]) -> Answer<i64> {
    let text = str::from_utf8(word)
        .ok()
        .filter(|text| !text.starts_with('+'));
    text.and_then(|text| text.parse().ok()).ok_or(NOT_INTEGER)
}

pub(super) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Returns whether `text` matches a pattern with `*`, `?` and `\`.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
        (_, []) => false,
        ([b'?', rest @ ..], [_, text @ ..]) => matches(rest, text),
        ([b'\\', literal, rest @ ..], [byte, text @ ..])
        | ([literal, rest @ ..], [byte, text @ ..]) => literal == byte && matches(rest, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_on_a_server() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("quorlock:fence:*", "quorlock:fence:{a}", true),
        ] {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern} {text}");
        }
    }
}
