//! The name of each connection to a Redis master, as `CLIENT LIST` shows it.

use super::client_name::ClientName;
use crate::core::vote::lists_id::ListsId;

/// What the name of a connection says about its program. The text is
/// `quorlock:<lists>:<client name>`, with `-` for a program without a client name. It has only
/// graphic ASCII characters, as `CLIENT SETNAME` demands.
///
/// The programs of several versions read the text, so its form must never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionName {
    pub(crate) lists: ListsId,
    pub(crate) client: Option<ClientName>,
}

impl ConnectionName {
    const PREFIX: &str = "quorlock:";
    const NO_CLIENT: &str = "-";

    /// Returns the name of a program without masters.
    #[cfg(test)]
    pub(crate) fn fixture() -> Self {
        Self {
            lists: ListsId::of([], []),
            client: None,
        }
    }

    pub(crate) fn text(&self) -> String {
        let client = self.client.as_ref().map(ClientName::as_str);
        let (prefix, client) = (Self::PREFIX, client.unwrap_or(Self::NO_CLIENT));
        format!("{prefix}{}:{client}", self.lists)
    }

    /// Reads the name of any connection. `None` if it is not of this form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (lists, client) = text.strip_prefix(Self::PREFIX)?.split_once(':')?;
        let client = (client != Self::NO_CLIENT).then(|| ClientName::parse(client.to_owned()));
        Some(Self {
            lists: ListsId::parse(lists)?,
            client: client.transpose().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_lists_and_the_client() {
        let lists = ListsId::of(["10.0.0.1:6379"], []);
        for (client, expected) in [(None, "-"), (Some("web-3/812"), "web-3/812")] {
            let client = client.map(|client| ClientName::parse(client.to_owned()).unwrap());
            let name = ConnectionName { lists, client };
            assert_eq!(name.text(), format!("quorlock:{lists}:{expected}"));
            assert_eq!(ConnectionName::parse(&name.text()), Some(name));
        }
        for other in [
            "",
            "quorlock",
            "quorlock:x:-",
            "quorlock:f1bb702098bb38aa",
            "quorlock:f1bb702098bb38aa:",
            "Quorlock:f1bb702098bb38aa:-",
        ] {
            assert_eq!(ConnectionName::parse(other), None, "{other}");
        }
    }
}
