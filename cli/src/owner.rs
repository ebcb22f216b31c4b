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
    #[serde(skip)]
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
        let is_id = |owner: &String| owner == who || self.short_id(owner) == who;
        let names = [&self.program.client, &self.name];
        names.map(Option::as_deref).contains(&Some(who)) || self.owner.as_ref().is_some_and(is_id)
    }

    /// Returns the client, and the ID without the client. `None` without both.
    pub(crate) fn text(&self) -> Option<String> {
        match &self.name {
            None => self.owner.clone(),
            Some(_) => {
                let id = self.owner.as_deref().map(|owner| self.short_id(owner));
                Some(self.program.shown(id))
            }
        }
    }

    /// Returns the client, or the beginning of the ID.
    pub(crate) fn short(&self) -> Option<String> {
        let client = self.program.client.clone();
        client.or_else(|| self.owner.as_deref().map(short_owner))
    }

    /// Returns the ID without the client, and with the beginning of its UUID.
    fn short_id(&self, owner: &str) -> String {
        let name = self.name.as_deref().unwrap_or_default();
        let owner = owner.strip_suffix(name).unwrap_or(owner);
        short_owner(owner.trim_end_matches('@'))
    }
}

/// Shortens the UUID of an owner to its first 8 digits.
fn short_owner(owner: &str) -> String {
    match (owner.get(..8), owner.rsplit_once(':')) {
        (Some(start), Some((uuid, number))) if uuid.len() == 36 => format!("{start}:{number}"),
        _ => owner.to_owned(),
    }
}
