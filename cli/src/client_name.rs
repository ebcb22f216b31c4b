//! The name under which the locks of this process are shown.

use std::time::Duration;

use nix::unistd::gethostname;
use serde::Serialize;

use crate::{
    holders::Renewal,
    times::{age, millis, passed},
};

/// The length of the longest client name.
const MOST: usize = 64;
/// The length of the longest host in a name. It leaves room for what follows.
const MOST_HOST: usize = 28;
const MARK: char = '+';
/// Stands for a space of a label, because no client name has a space. A label has no such letter.
const SPACE: char = '~';
/// What follows the TTL of a program whose lock may stay when it has ended.
const STAYS: [(&str, Renewal); 2] = [("m", Renewal::MinHold), ("d", Renewal::Detached)];

/// Returns the host and the process ID, such as `web-3/812`. `None` if the host has no name.
pub(crate) fn client_name() -> Option<String> {
    client_name_of(std::process::id())
}

/// Returns the client name of a process on this host.
pub(crate) fn client_name_of(process: u32) -> Option<String> {
    let host = gethostname().ok()?;
    name(&host.to_string_lossy(), process)
}

/// Returns the name of a program that holds locks: its start, its TTL and its label follow, such as
/// `web-3/812+1764252180+10000+backup`. If its lock `stays` when it has ended, a letter follows the
/// TTL.
pub(crate) fn holder_name(ttl: Duration, stays: Option<Renewal>, label: &str) -> Option<String> {
    let (started, program) = (passed(0).as_secs(), client_name()?);
    let millis = ttl.as_millis().min(u32::MAX.into());
    let label = label.replace(SPACE, "-").replace(' ', &SPACE.to_string());
    let label: String = printable(&label).collect();
    let letter = STAYS.into_iter().find(|(_, why)| Some(*why) == stays);
    let letter = letter.map_or("", |(letter, _)| letter);
    let name = format!("{program}{MARK}{started}{MARK}{millis}{letter}{MARK}{label}");
    let name = name.get(..MOST).unwrap_or(&name);
    Some(name.trim_end_matches(MARK).to_owned())
}

/// Returns the name for a host and a process. A long host is cut, and the process ID is kept.
fn name(host: &str, process: u32) -> Option<String> {
    let host: String = printable(host).collect();
    (!host.is_empty()).then(|| format!("{}/{process}", shortened(&host, MOST_HOST)))
}

/// Returns a text in letters that a coordinator accepts.
fn printable(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|letter| match letter {
        '!'..='~' => letter,
        _ => '-',
    })
}

/// Shortens a text of ASCII in the middle: pods differ at the end, and hosts at the beginning.
fn shortened(text: &str, most: usize) -> String {
    let half = most / 2 - 1;
    match (text.get(..half), text.len().checked_sub(half)) {
        (Some(start), Some(rest)) if text.len() > most => format!("{start}..{}", &text[rest..]),
        _ => text.to_owned(),
    }
}

/// What a client name says. The fields are those of the JSON.
#[derive(Default, PartialEq, Eq, Serialize)]
pub(crate) struct Program {
    /// The host and the process ID of a client of the command line, or another name as it is.
    pub(crate) client: Option<String>,
    label: Option<String>,
    /// The start of the program. It may have waited for the lock since then.
    started_ms: Option<u64>,
    #[serde(rename = "ttl_ms", serialize_with = "millis")]
    pub(crate) ttl: Option<Duration>,
    /// Why its lock may stay when it has ended.
    #[serde(skip)]
    pub(crate) stays: Option<Renewal>,
}

impl Program {
    pub(crate) fn parse(client: &str) -> Self {
        let parts: Vec<_> = client.splitn(4, MARK).collect();
        let number = |at: usize| {
            let text = parts.get(at)?.trim_end_matches(['d', 'm']);
            text.parse::<u32>().ok()
        };
        let (Some(started), Some(ttl)) = (number(1), number(2)) else {
            let client = Some(client.to_owned());
            return Self {
                client,
                ..Self::default()
            };
        };
        Self {
            client: parts.first().map(ToString::to_string),
            label: parts.get(3).map(|label| label.replace(SPACE, " ")),
            started_ms: Some(u64::from(started) * 1_000),
            ttl: Some(Duration::from_millis(ttl.into())),
            stays: STAYS
                .into_iter()
                .find_map(|(letter, why)| parts[2].ends_with(letter).then_some(why)),
        }
    }

    /// Returns the text for people, such as `web-3/812 (backup)`. `id` tells owners of one client
    /// apart.
    pub(crate) fn shown(&self, id: Option<String>) -> String {
        let client = self.client.clone().unwrap_or_default();
        let details: Vec<_> = [self.label.clone(), id].into_iter().flatten().collect();
        match &*details {
            [] => client,
            _ => format!("{client} ({})", details.join(", ")),
        }
    }

    /// Says when the program started. It may have waited for a lock since then.
    pub(crate) fn start(&self) -> Option<String> {
        Some(format!("program started {}", age(self.started_ms?)))
    }
}

/// Puts the text for people in place of each client name of a holder.
pub(crate) fn in_words_for_people(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let name = word.trim_end_matches([',', ':']);
        Program::parse(name).shown(None) + &word[name.len()..]
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_only_letters_that_a_coordinator_accepts() {
        for (host, expected) in [
            ("web-3", Some("web-3/812")),
            ("web 3\n", Some("web-3-/812")),
            ("büro", Some("b-ro/812")),
            ("", None),
        ] {
            assert_eq!(name(host, 812).as_deref(), expected, "{host:?}");
        }
        let long = name("report-of-the-night-28374650-x7k2p", u32::MAX).unwrap();
        assert_eq!(long, "report-of-the..8374650-x7k2p/4294967295");
    }

    #[test]
    fn the_name_of_a_holder_says_when_it_started_and_what_it_is() {
        let label = "nächtlicher Bericht".repeat(9);
        let name = holder_name(Duration::MAX, Some(Renewal::MinHold), &label).unwrap();
        assert_eq!(name.len(), MOST);
        let parsed = Program::parse(&name);
        assert_eq!(parsed.ttl, Some(Duration::from_millis(u32::MAX.into())));
        assert_eq!(parsed.stays, Some(Renewal::MinHold), "{name}");
        assert!(parsed.label.unwrap().starts_with("n-chtlicher"), "{name}");
        assert_eq!(parsed.client, client_name());

        let name = holder_name(
            Duration::from_secs(10),
            Some(Renewal::Detached),
            "nightly back-up of ~/a\tb",
        )
        .unwrap();
        assert!(
            !name.contains(' ') && name.ends_with("+nightly~back-up~of~-/a-b"),
            "{name}"
        );
        let parsed = Program::parse(&name);
        assert_eq!(parsed.label.as_deref(), Some("nightly back-up of -/a-b"));
        assert_eq!(parsed.stays, Some(Renewal::Detached));

        let name = holder_name(Duration::from_secs(10), None, "").unwrap();
        let parsed = Program::parse(&name);
        assert_eq!(
            (&parsed.label, parsed.ttl, parsed.stays),
            (&None, Some(Duration::from_secs(10)), None)
        );
        assert_eq!(Some(parsed.shown(None)), client_name());
        let start = parsed.start().unwrap();
        assert!(
            start.starts_with("program started ") && start.ends_with(" UTC, 0s ago"),
            "{start}"
        );
    }

    #[test]
    fn names_of_other_programs_are_shown_as_they_are() {
        for other in ["web-3/812", "a/b+c", "a/1+-1+2", "a/1+1+4294967296", ""] {
            assert_eq!(Program::parse(other).shown(None), other);
        }
        let id = || Some("d:1".to_owned());
        assert_eq!(Program::parse("web-3/812").shown(id()), "web-3/812 (d:1)");
        let named = Program::parse("a/1+5+10000+b+c").shown(id());
        assert_eq!(named, "a/1 (b+c, d:1)");
    }

    #[test]
    fn a_text_has_each_name_in_the_form_for_people() {
        for (text, expected) in [
            (
                "a/1+5+10000+b~c, web and a/2+5+9d: both",
                "a/1 (b c), web and a/2: both",
            ),
            ("no  name, here", "no  name, here"),
        ] {
            assert_eq!(in_words_for_people(text), expected);
        }
    }
}
