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
    let text = str::from_utf8(word).ok();
    let number: Option<i64> = text.and_then(|text| text.parse().ok());
    // As on a server, each number is written in one way: not as +1, 01 or -0.
    let number = number.filter(|number| number.to_string().as_bytes() == word);
    number.ok_or(NOT_INTEGER)
}

pub(super) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Returns a pattern. Fails if it has a set of bytes in brackets, which [`matches()`] would take
/// literally.
pub(super) fn pattern_of(word: &[u8]) -> Answer<&[u8]> {
    let mut is_escaped = false;
    let has_set = word.iter().any(|byte| {
        let is_set = *byte == b'[' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_set
    });
    match has_set {
        true => Err("ERR quorlock-memory knows no [ in patterns".into()),
        false => Ok(word),
    }
}

/// Returns whether `text` matches a pattern with `*`, `?` and `\`.
pub(super) fn matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    // What follows the last star, and the text that the star has not taken.
    let mut star = None;
    loop {
        let met = match (pattern, text) {
            ([], []) => return true,
            ([b'*', rest @ ..], _) => {
                star = Some((rest, text));
                star
            }
            ([b'?', rest @ ..], [_, left @ ..]) => Some((rest, left)),
            ([b'\\', literal, rest @ ..], [byte, left @ ..])
            | ([literal, rest @ ..], [byte, left @ ..]) => {
                (literal == byte).then_some((rest, left))
            }
            _ => None,
        };
        if met.is_none() {
            // The star takes one byte more. What came before the star stays as it is.
            star = star.and_then(|(rest, left)| Some((rest, left.get(1..)?)));
        }
        let Some(next) = met.or(star) else {
            return false;
        };
        (pattern, text) = next;
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
            (r"\[a]", "[a]", true),
            (r"\*", r"\", false),
            ("a*b*c", "abcbc", true),
            ("a*b*cd", "abcbc", false),
            ("********************b", &"a".repeat(60), false),
            (&"a*".repeat(30), &"a".repeat(29), false),
            ("quorlock:fence:*", "quorlock:fence:{a}", true),
        ] {
            let found = matches(pattern_of(pattern.as_bytes()).unwrap(), text.as_bytes());
            assert_eq!(found, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_with_brackets_is_refused() {
        for pattern in ["[ab]", "a*[", r"\\["] {
            assert!(pattern_of(pattern.as_bytes()).is_err(), "{pattern}");
        }
    }
}
