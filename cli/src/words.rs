//! Words for people: lists of names, and the texts of the library for people who write no code.

use std::{path::PathBuf, sync::OnceLock};

use quorlock::{MasterSpec, SharedSettings};

/// The places where a password can be.
const LOGIN: &str = "with --password-file, QUORLOCK_PASSWORD or password_file";

/// The same, as the library says it.
const ANY_LOGIN: &str = "in the URL, or with password_file, QUORLOCK_PASSWORD or MasterSpec::login";

/// The places of a password that is not in the URL, as the library says them.
const NOT_OF_URL: &str = "password_file, QUORLOCK_PASSWORD or MasterSpec::login";

/// What to do about an outage.
pub(crate) const ADVICE: &str = "run `quorlock doctor` with the same masters";

/// Returns a text of the library with the settings of the configuration file in place of methods.
pub(crate) fn in_words_of_the_file(text: &str) -> String {
    let text = without_errno(text)
        .replace(" or Builder::tls", "")
        .replace("give MasterSpec::list one text with", "put")
        .replace("a shorter TTL", "a shorter --ttl or ttl")
        .replace("a longer max_ttl", "a longer --max-ttl or max_ttl")
        .replace("Builder::", "")
        .replace(ANY_LOGIN, LOGIN)
        .replace("the origin key", "the key that shows the restart")
        .replace(" for this guard", "")
        .replace("; `quorlock doctor` shows all missing rights", "");
    let places = PLACES.get().into_iter().flatten();
    places.fold(text, |text, (word, place)| text.replace(word, place))
}

/// The words of the library for what the settings name, and what they name.
static PLACES: OnceLock<[(&str, String); 4]> = OnceLock::new();

/// Notes where the password and the authorities are, and the user, unless masters have different
/// ones.
pub(crate) fn note_places(settings: &SharedSettings) {
    let place = |file: &Option<PathBuf>, other: &str| match file {
        Some(file) => file.display().to_string(),
        None => other.to_owned(),
    };
    let password = place(&settings.password_file, "QUORLOCK_PASSWORD");
    let authorities = place(&settings.ca_file, "ca_file or QUORLOCK_CA_FILE");
    let masters = settings.masters.iter().chain(&settings.old_masters);
    let mut users = masters.map(MasterSpec::user);
    let first = users.next().flatten();
    let is_same = users.all(|other| other == first);
    let user = first.or(settings.user.as_deref()).unwrap_or("default");
    let _ = PLACES.set([
        (NOT_OF_URL, password),
        ("with ca_file", format!("with {authorities}")),
        ("is not in ca_file", format!("is not in {authorities}")),
        ("<user>", if is_same { user } else { "<user>" }.to_owned()),
    ]);
}

/// Returns a text without the numbers of the system after its errors, such as ` (os error 111)`.
fn without_errno(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    let rests = parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest));
    rests.fold(first, |text, rest| text + rest)
}

/// Returns names out of `count`, such as `web-3/812, web-4/77 and another`.
pub(crate) fn in_words(mut names: Vec<&str>, count: usize) -> Option<String> {
    let last = match count - names.len() {
        0 => names.pop()?.to_owned(),
        1 => "another".to_owned(),
        others => format!("{others} others"),
    };
    Some(match &*names {
        [] if count > 1 => return None,
        [] => last,
        names => format!("{} and {last}", names.join(", ")),
    })
}

/// Returns the first of these names, such as `a, b, c and 6 others`.
pub(crate) fn in_short(names: &[impl AsRef<str>]) -> Option<String> {
    let first = names.iter().take(MOST_NAMED).map(AsRef::as_ref);
    in_words(first.collect(), names.len())
}

pub(crate) const MOST_NAMED: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_the_first_ones() {
        for (names, count, expected) in [
            (&[][..], 0, None),
            (&[], 2, None),
            (&["a"], 1, Some("a")),
            (&["a", "b"], 2, Some("a and b")),
            (&["a"], 2, Some("a and another")),
            (&["a", "b", "c"], 9, Some("a, b, c and 6 others")),
        ] {
            let shown = in_words(names.to_vec(), count);
            assert_eq!(shown.as_deref(), expected);
        }
    }

    #[test]
    fn texts_name_settings_of_the_file() {
        for (text, expected) in [
            (
                "so give a shorter TTL, or first a longer max_ttl (QUORLOCK_MAX_TTL) in all programs",
                "so give a shorter --ttl or ttl, or first a longer --max-ttl or max_ttl \
                 (QUORLOCK_MAX_TTL) in all programs",
            ),
            (
                "trust the authority that signed it, with ca_file or Builder::tls",
                "trust the authority that signed it, with ca_file",
            ),
            (
                "a: Connection refused (os error 111), b: Broken pipe (os error 32)",
                "a: Connection refused, b: Broken pipe",
            ),
        ] {
            assert_eq!(in_words_of_the_file(text), expected);
        }
    }
}
