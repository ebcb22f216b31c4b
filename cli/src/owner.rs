//! Those who hold locks or wait for them, as `status` shows them.

use serde::Serialize;

use crate::client_name::Program;

/// An owner, and the program that its client name shows. The fields are those of the JSON.
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct Owner {
    /// The ID. A mutex has none.
    owner: Option<String>,
    #[serde(flatten)]
    pub(crate) program: Program,
    /// The whole client name.
    #[serde(rename = "client_name")]
    name: Option<String>,
}

impl Owner {
    pub(crate) fn new(owner: Option<&str>, name: Option<&str>) -> Self {
        Self {
            owner: owner.map(str::to_owned),
            program: name.map(Program::parse).unwrap_or_default(),
            name: name.map(str::to_owned),
        }
    }

    /// Returns an owner in a queue, whose client follows its ID.
    pub(crate) fn waiting(owner: &str) -> Self {
        Self::new(Some(owner), owner.split_once('@').map(|(_, name)| name))
    }

    /// Returns what tells it from others. `None` for a mutex of a client without a name.
    pub(crate) fn id(&self) -> Option<&String> {
        self.owner.as_ref().or(self.name.as_ref())
    }

    /// Returns whether `who` is the client, or the ID in one of the forms in which `status` shows it.
    pub(crate) fn is_called(&self, who: &str) -> bool {
        let short = self.short_id();
        let names = [&self.program.client, &self.name, &self.owner, &short];
        self.text().as_deref() == Some(who) || names.map(Option::as_deref).contains(&Some(who))
    }

    /// Returns the client, and the ID without the client. `None` without both.
    pub(crate) fn text(&self) -> Option<String> {
        match self.name {
            None => self.owner.clone(),
            Some(_) => Some(self.program.shown(self.short_id())),
        }
    }

    /// Returns the client, or the beginning of the ID.
    pub(crate) fn short(&self) -> Option<String> {
        self.program.client.clone().or_else(|| self.short_id())
    }

    /// Returns the ID without the client, and with the first 8 digits of its UUID.
    fn short_id(&self) -> Option<String> {
        let (owner, name) = (self.owner.as_deref()?, self.name.as_deref());
        let id = owner.strip_suffix(name.unwrap_or_default());
        let id = id.unwrap_or(owner).trim_end_matches('@');
        Some(match (id.get(..8), id.rsplit_once(':')) {
            (Some(start), Some((uuid, number))) if uuid.len() == 36 => format!("{start}:{number}"),
            _ => id.to_owned(),
        })
    }
}
