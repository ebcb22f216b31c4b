//! The identities by which masters tell attempts at a lock apart, and the name under which locks
//! are shown to people.

use std::{sync::Arc, time::Duration};

use super::name::Token;
use crate::core::{config_error::ConfigError, time::lease::CLOCK_WINDOW};

/// The identity of one attempt at a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    Owner(OwnerAttempt),
    /// The token of an attempt at a mutex.
    Token(Token),
}

impl Identity {
    /// Returns the token of an attempt at a mutex. `None` for an owner.
    pub(crate) fn token(&self) -> Option<&Token> {
        let Self::Token(token) = self else {
            return None;
        };
        Some(token)
    }

    pub(crate) fn ticket(&self) -> Option<&Ticket> {
        self.owner()?.ticket.as_ref()
    }

    /// Returns what identifies an attempt of an owner. `None` for a token.
    pub(crate) fn owner(&self) -> Option<&OwnerAttempt> {
        match self {
            Self::Token(_) => None,
            Self::Owner(owner) => Some(owner),
        }
    }
}

/// One attempt of an owner. A later attempt has a larger number. So a master recognises a late
/// command of an earlier attempt, and the command does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerAttempt {
    pub(crate) owner: Arc<str>,
    pub(crate) attempt: u64,
    /// The ticket for the position in the queues, if the lock has queues.
    pub(crate) ticket: Option<Ticket>,
}

/// The entry of a waiter in a queue: 16 digits, `:` and the owner. The digits are the time when the
/// waiter came, in microseconds. This crate and the masters compare tickets as strings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(Arc<str>);

impl Ticket {
    pub(crate) fn new(micros: u64, owner: &str) -> Self {
        Self(format!("{micros:016}:{owner}").into())
    }

    pub(crate) fn of(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the channel on which masters call the waiter: `quorlock:turn:` and the UUID of its
    /// coordinator.
    pub(crate) fn channel(&self) -> String {
        let owner = Self::owner_of(&self.0);
        let process = owner.split_once(':').map_or(owner, |(process, _)| process);
        format!("quorlock:turn:{process}")
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn owner_of(ticket: &str) -> &str {
        ticket.split_once(':').map_or(ticket, |(_, owner)| owner)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueOptions {
    /// The time after which a waiter that has not asked again counts as dead.
    pub(crate) silent_waiter_timeout: Duration,
    /// `true` if no majority has seen the ticket before. Masters check the time in a fresh ticket.
    pub(crate) is_fresh: bool,
}

impl QueueOptions {
    /// Returns the silent-waiter timeout in milliseconds, and the [`CLOCK_WINDOW`] in microseconds.
    /// 0 in place of the window means that masters do not check the time in the ticket.
    pub(in crate::core) fn in_words(self) -> [u64; 2] {
        let window = CLOCK_WINDOW * u32::from(self.is_fresh);
        [
            whole_millis(self.silent_waiter_timeout),
            window.as_micros() as u64,
        ]
    }
}

pub(in crate::core) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The client name of a coordinator. Masters store it with every lock: in the token of a mutex, and
/// in the ID of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientName(Arc<str>);

impl ClientName {
    /// The maximum length of a name in bytes. It is small, because every command that takes or
    /// keeps a lock repeats the name.
    pub(crate) const MOST: usize = 64;
    /// The mark before the name, in a token or in the ID of an owner, and before the time in a
    /// token.
    pub(crate) const MARK: char = '@';
    /// The number of digits of the time in a token. They are enough until the year 2286.
    pub(crate) const TIME: usize = 13;

    pub(crate) fn parse(name: String) -> Result<Self, ConfigError> {
        if is_name(&name) {
            Ok(Self(name.into()))
        } else {
            let most = Self::MOST;
            Err(ConfigError::BadClientName { given: name, most })
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the client name in the ID of an owner. `None` if another library or a coordinator
    /// without a name made the ID.
    pub(crate) fn of_owner(id: &str) -> Option<&str> {
        let (_, rest) = id.split_at_checked(UUID)?;
        let (number, name) = rest.strip_prefix(':')?.split_once(Self::MARK)?;
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        (is_number && is_name(name)).then_some(name)
    }

    /// Returns the time of an attempt as a token has it. `millis` are milliseconds since 1970.
    pub(crate) fn digits(mut millis: u64) -> [u8; Self::TIME] {
        let mut digits = [b'0'; Self::TIME];
        for digit in digits.iter_mut().rev() {
            *digit += (millis % 10) as u8;
            millis /= 10;
        }
        digits
    }

    /// Returns the time of the attempt and the client name in a token. `text` follows the first
    /// mark. It is empty if the token has no name. Tokens of earlier versions have no time.
    pub(crate) fn of_token(text: &str) -> (Option<u64>, Option<&str>) {
        let (millis, name) = match timed(text) {
            Some((millis, name)) => (Some(millis), name),
            None => (None, text),
        };
        match is_name(name) {
            true => (millis, Some(name)),
            false => (None, None),
        }
    }
}

fn timed(text: &str) -> Option<(u64, &str)> {
    let (digits, name) = text.split_once(ClientName::MARK)?;
    let is_time =
        digits.len() == ClientName::TIME && digits.bytes().all(|one| one.is_ascii_digit());
    Some((digits.parse().ok().filter(|_| is_time)?, name))
}

/// The length of a UUID.
const UUID: usize = 36;

/// Returns whether `text` can be a client name.
pub(super) fn is_name(text: &str) -> bool {
    let is_length = (1..=ClientName::MOST).contains(&text.len());
    is_length && text.bytes().all(|letter| letter.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_a_token_or_an_owner() {
        let owner = OwnerAttempt {
            owner: "u:1".into(),
            attempt: 7,
            ticket: None,
        };
        let token = Token::new([1; 20], None);
        for (identity, expected) in [
            (Identity::Token(token.clone()), (Some(&token), None)),
            (Identity::Owner(owner.clone()), (None, Some(&owner))),
        ] {
            assert_eq!((identity.token(), identity.owner()), expected);
        }
    }

    #[test]
    fn a_ticket_is_its_text() {
        let ticket = Ticket::new(5, "u:1");
        let text = "0000000000000005:u:1";
        assert_eq!((ticket.as_str(), &ticket), (text, &Ticket::of(text)));
        assert_eq!(ticket.channel(), "quorlock:turn:u");
        assert_eq!(Ticket::owner_of(text), "u:1");
        assert_eq!(Ticket::owner_of("no ticket"), "no ticket");
    }

    #[test]
    fn masters_check_the_time_in_a_fresh_ticket_only() {
        for (is_fresh, window) in [(true, 1_000_000), (false, 0)] {
            let options = QueueOptions {
                silent_waiter_timeout: Duration::from_micros(3_000_999),
                is_fresh,
            };
            assert_eq!(options.in_words(), [3_000, window]);
        }
        assert_eq!(whole_millis(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_name_is_1_to_64_graphic_ascii_characters() {
        let longest = "n".repeat(64);
        for name in ["a", "web-3/812", "!", "~", "a@b:c", &longest] {
            let parsed = ClientName::parse(name.to_owned()).unwrap();
            assert_eq!(parsed.as_str(), name);
        }
        for name in ["", " ", "a b", "a\n", "\x7f", "é", &"n".repeat(65)] {
            let given = name.to_owned();
            let error = ConfigError::BadClientName { given, most: 64 };
            assert_eq!(ClientName::parse(name.to_owned()), Err(error), "{name:?}");
        }
    }

    #[test]
    fn a_token_has_the_time_of_its_attempt_and_a_name() {
        let longest = "n".repeat(64);
        let all = |name: &str| format!("1764252180042@{name}");
        for (text, millis, name) in [
            (
                &*all("web-3/812"),
                Some(1_764_252_180_042),
                Some("web-3/812"),
            ),
            (&all(&longest), Some(1_764_252_180_042), Some(&*longest)),
            ("0000000000007@a", Some(7), Some("a")),
            (&all("a@b"), Some(1_764_252_180_042), Some("a@b")),
            // Tokens of earlier versions.
            ("web-3/812", None, Some("web-3/812")),
            ("812@web-3", None, Some("812@web-3")),
            ("+764252180042@web", None, Some("+764252180042@web")),
            (&longest, None, Some(&longest)),
            // Those of other libraries.
            ("", None, None),
            ("1764252180042@", None, None),
            ("1764252180042@a\x1b[2J", None, None),
            (&all(&"n".repeat(65)), None, None),
            (&"n".repeat(65), None, None),
        ] {
            assert_eq!(ClientName::of_token(text), (millis, name), "{text}");
        }
        assert_eq!(ClientName::digits(1_764_252_180_042), *b"1764252180042");
        assert_eq!(ClientName::digits(7), *b"0000000000007");
    }

    #[test]
    fn an_owner_has_a_name_only_if_its_id_is_of_our_form() {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        for (id, name) in [
            (format!("{uuid}:12@web-3/812"), Some("web-3/812")),
            (format!("{uuid}:1@a@b:c"), Some("a@b:c")),
            (format!("{uuid}:12"), None),
            (format!("{uuid}:@a"), None),
            (format!("{uuid}:x@a"), None),
            (format!("{uuid}:1@"), None),
            (format!("{uuid}:1@a b"), None),
            (format!("{uuid}:1@{}", "n".repeat(65)), None),
            (format!("{uuid}1@a"), None),
            ("é".repeat(40), None),
            ("someone@example.com".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(ClientName::of_owner(&id), name, "{id}");
        }
    }
}
