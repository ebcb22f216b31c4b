//! The name under which the locks of a coordinator are shown to people.

use std::sync::Arc;

use crate::core::config_error::ConfigError;

/// The client name of a coordinator. Masters store it with every lock: after the token of a mutex,
/// and in the ID of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientName(Arc<str>);

impl ClientName {
    /// The maximum length of a name in bytes. It is small, because every command that takes or
    /// keeps a lock repeats the name.
    pub(crate) const MOST: usize = 64;
    /// The mark before the name, in a token or in the ID of an owner.
    pub(crate) const MARK: char = '@';

    /// Returns the name, if it can be used.
    pub(crate) fn parse(name: String) -> Result<Self, ConfigError> {
        if is_name(&name) {
            Ok(Self(name.into()))
        } else {
            let most = Self::MOST;
            Err(ConfigError::ClientName { given: name, most })
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

    /// Returns the client name that a master reports for a mutex. `reported` is empty if the mutex
    /// has none.
    pub(crate) fn of_mutex(reported: &str) -> Option<&str> {
        is_name(reported).then_some(reported)
    }
}

/// The length of a UUID.
const UUID: usize = 36;

fn is_name(text: &str) -> bool {
    let is_length = (1..=ClientName::MOST).contains(&text.len());
    is_length && text.bytes().all(|letter| letter.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_1_to_64_graphic_ascii_characters() {
        let longest = "n".repeat(64);
        for name in ["a", "web-3/812", "!", "~", "a@b:c", &longest] {
            let parsed = ClientName::parse(name.to_owned()).unwrap();
            assert_eq!(parsed.as_str(), name);
        }
        for name in ["", " ", "a b", "a\n", "\x7f", "é", &"n".repeat(65)] {
            let given = name.to_owned();
            let error = ConfigError::ClientName { given, most: 64 };
            assert_eq!(ClientName::parse(name.to_owned()), Err(error), "{name:?}");
        }
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

    #[test]
    fn a_master_may_report_no_name_of_a_mutex() {
        for (reported, name) in [("web-3/812", Some("web-3/812")), ("", None), ("a b", None)] {
            assert_eq!(ClientName::of_mutex(reported), name, "{reported}");
        }
    }
}
