//! The name under which the locks of this process are shown.

use std::time::{Duration, SystemTime};

use nix::unistd::gethostname;
use serde::Serialize;

use crate::times::age;

/// The length of the longest client name.
const MOST: usize = 64;
/// The length of the longest host in a name. It leaves room for what follows.
const MOST_HOST: usize = 28;
const MARK: char = '+';
/// Stands for a space of a label, because no client name has a space. A label has no such letter.
const SPACE: char = '~';
/// Follows the TTL of a program with a minimum hold.
const STAY: &str = "m";

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
/// `web-3/812+1764252180+10000+backup`, or `10000m` if its locks may stay when it has ended.
pub(crate) fn holder_name(ttl: Duration, may_stay: bool, label: &str) -> Option<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let (started, program) = (now.unwrap_or_default().as_secs(), client_name()?);
    let millis = ttl.as_millis().min(u32::MAX.into());
    let label = label.replace(SPACE, "-").replace(' ', &SPACE.to_string());
    let label: String = printable(&label).collect();
    let stay = if may_stay { STAY } else { "" };
    let name = format!("{program}{MARK}{started}{MARK}{millis}{stay}{MARK}{label}");
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
    #[serde(skip)]
    pub(crate) ttl: Option<Duration>,
    /// Whether its locks may stay when it has ended.
    #[serde(skip)]
    pub(crate) may_stay: bool,
}

impl Program {
    pub(crate) fn parse(client: &str) -> Self {
        let parts: Vec<_> = client.splitn(4, MARK).collect();
        let number = |at: usize| parts.get(at)?.trim_end_matches(STAY).parse::<u32>().ok();
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
            may_stay: parts.get(2).is_some_and(|ttl| ttl.ends_with(STAY)),
        }
    }

    /// Returns the text for people, such as `web-3/812 (backup, started 14:02 UTC, 3h 12m ago)`.
    /// `id` tells owners of one client apart.
    pub(crate) fn shown(&self, id: Option<String>) -> String {
        let client = self.client.clone().unwrap_or_default();
        let details = [self.label.clone(), self.started_ms.map(age), id];
        let details: Vec<_> = details.into_iter().flatten().collect();
        match &*details {
            [] => client,
            _ => format!("{client} ({})", details.join(", ")),
        }
    }
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
        let name = holder_name(Duration::MAX, true, &label).unwrap();
        assert_eq!(name.len(), MOST);
        let parsed = Program::parse(&name);
        assert_eq!(parsed.ttl, Some(Duration::from_millis(u32::MAX.into())));
        assert!(parsed.may_stay, "{name}");
        assert!(parsed.label.unwrap().starts_with("n-chtlicher"), "{name}");
        assert_eq!(parsed.client, client_name());

        let name =
            holder_name(Duration::from_secs(10), false, "nightly back-up of ~/a\tb").unwrap();
        assert!(
            !name.contains(' ') && name.ends_with("+nightly~back-up~of~-/a-b"),
            "{name}"
        );
        let label = Program::parse(&name).label.unwrap();
        assert_eq!(label, "nightly back-up of -/a-b");

        let name = holder_name(Duration::from_secs(10), false, "").unwrap();
        let parsed = Program::parse(&name);
        assert_eq!(
            (&parsed.label, parsed.ttl, parsed.may_stay),
            (&None, Some(Duration::from_secs(10)), false)
        );
        assert!(parsed.shown(None).contains(" (started "), "{name}");
    }

    #[test]
    fn names_of_other_programs_are_shown_as_they_are() {
        for other in ["web-3/812", "a/b+c", "a/1+-1+2", "a/1+1+4294967296", ""] {
            assert_eq!(Program::parse(other).shown(None), other);
        }
        let id = || Some("d:1".to_owned());
        assert_eq!(Program::parse("web-3/812").shown(id()), "web-3/812 (d:1)");
        let named = Program::parse("a/1+5+10000+b+c").shown(id());
        assert!(
            named.starts_with("a/1 (b+c, started 00:00 UTC, "),
            "{named}"
        );
        assert!(named.ends_with(" ago, d:1)"), "{named}");
    }
}
