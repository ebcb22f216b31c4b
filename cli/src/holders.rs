//! The holders of a lock, as `status` shows them.

use std::time::Duration;

use quorlock::{Access, Holder, Kind};
use serde::{Serialize, Serializer};

use crate::{
    times::{brief, millis},
    words::{MOST_NAMED, in_words},
};

/// The holders of a lock. The field `others` is only there if there are several.
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct HoldersLook {
    pub(crate) holder: Option<HolderLook>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<HolderLook>,
}

#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct HolderLook {
    #[serde(serialize_with = "word")]
    pub(crate) kind: Option<Kind>,
    #[serde(serialize_with = "access_word")]
    pub(crate) access: Access,
    pub(crate) owner: Option<String>,
    pub(crate) client: Option<String>,
    pub(crate) depth: u64,
    #[serde(rename = "remaining_ms", serialize_with = "millis")]
    pub(crate) remaining: Option<Duration>,
}

impl HoldersLook {
    pub(crate) fn of(holders: &[Holder]) -> Self {
        let mut holders = holders.iter().map(HolderLook::of);
        Self {
            holder: holders.next(),
            others: holders.collect(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &HolderLook> {
        self.holder.iter().chain(&self.others)
    }

    /// Leaves out all holders but the one that a person calls `who`. Returns its ID; `None` if
    /// there is none, or more than one.
    pub(crate) fn choose(&mut self, who: &str) -> Option<String> {
        let holders = self.holder.take().into_iter().chain(self.others.drain(..));
        let mut chosen: Vec<_> = holders.filter(|holder| holder.is_called(who)).collect();
        let only = chosen.pop().filter(|_| chosen.is_empty())?;
        let owner = only.owner.clone();
        self.holder = Some(only);
        owner
    }

    pub(crate) fn sentence(&self) -> String {
        let sentences: Vec<_> = self.iter().map(HolderLook::sentence).collect();
        sentences.join("; ")
    }

    /// Returns the columns of the holders. `None` if there are none.
    pub(crate) fn columns(&self) -> Option<(String, String)> {
        let (who, left): (Vec<_>, Vec<_>) = self.iter().map(HolderLook::columns).unzip();
        (!who.is_empty()).then(|| (who.join(", "), left.join(", ")))
    }
}

impl HolderLook {
    fn of(holder: &Holder) -> Self {
        Self {
            kind: holder.kind,
            access: holder.access,
            owner: holder.owner.clone(),
            client: holder.client.clone(),
            depth: holder.depth,
            remaining: holder.remaining,
        }
    }

    /// Returns whether `who` is the client, or the ID of the owner in one of the forms in which
    /// `status` shows it.
    fn is_called(&self, who: &str) -> bool {
        let is_id = |owner: &String| owner == who || self.short_id(owner) == who;
        self.client.as_deref() == Some(who) || self.owner.as_ref().is_some_and(is_id)
    }

    /// Returns the ID of the owner without the client, and with the beginning of its UUID.
    fn short_id(&self, owner: &str) -> String {
        let client = self.client.as_deref().unwrap_or_default();
        let owner = owner.strip_suffix(client).unwrap_or(owner);
        short_owner(owner.trim_end_matches('@'))
    }

    /// Returns the time that is left. `None` if the lock has no TTL.
    pub(crate) fn left(&self) -> Option<String> {
        self.remaining.map(brief)
    }

    /// Returns whether the key looks like a lock, but has no TTL. All libraries give their locks a
    /// TTL, so it may be the data of an application.
    pub(crate) fn may_be_no_lock(&self) -> bool {
        self.kind.is_some() && self.remaining.is_none()
    }

    /// Returns whether it may be any text with a TTL. The mutexes of the command line have client
    /// names.
    fn may_be_foreign(&self) -> bool {
        self.kind == Some(Kind::Mutex) && self.client.is_none() && self.owner.is_none()
    }

    fn sentence(&self) -> String {
        let kind = match self.kind {
            Some(kind @ Kind::ReadWrite) => format!("as a {kind} by a {}", self.role()),
            Some(kind) => format!("as a {kind}"),
            None => "by a key that is not a lock".to_owned(),
        };
        let by = match self.kind {
            Some(Kind::ReadWrite) => "",
            _ => "by ",
        };
        let who = self
            .who()
            .map_or_else(String::new, |who| format!(" {by}{who}"));
        let depth = match self.depth {
            0 | 1 => String::new(),
            depth => format!(" ({depth} times)"),
        };
        let left = match self.left() {
            Some(left) if self.may_be_foreign() => format!(
                ", {left} left, without a client name, so it may be a lock of another library, or data"
            ),
            Some(left) => format!(", {left} left"),
            None if self.may_be_no_lock() => ", without a TTL, so it may be no lock".to_owned(),
            None => ", without a TTL".to_owned(),
        };
        format!("{kind}{who}{depth}{left}")
    }

    /// Returns what the holder of a read-write lock is.
    fn role(&self) -> &'static str {
        match self.access {
            Access::Exclusive => "writer",
            Access::Shared => "reader",
        }
    }

    /// Returns the client, and the ID of the owner without the client. `None` for a mutex of a
    /// client without a name.
    fn who(&self) -> Option<String> {
        match (&self.client, &self.owner) {
            (Some(client), Some(owner)) => Some(format!("{client} ({})", self.short_id(owner))),
            (client, owner) => client.clone().or_else(|| owner.clone()),
        }
    }

    /// Returns two narrow columns: the kind with the client or the beginning of the owner, and the
    /// time that is left.
    fn columns(&self) -> (String, String) {
        let kind = match self.kind {
            Some(Kind::ReadWrite) => self.role(),
            kind => kind.map_or("not a lock", Kind::word),
        };
        let who = match (&self.client, &self.owner) {
            (Some(client), _) => format!("{kind} {}", short_client(client)),
            (None, Some(owner)) => format!("{kind} {}", short_owner(owner)),
            (None, None) => kind.to_owned(),
        };
        (who, self.left().unwrap_or_else(|| "no TTL".to_owned()))
    }
}

/// Returns the client of a waiter with the beginning of the owner's ID, as of a holder.
pub(crate) fn waiter(owner: &str) -> String {
    match owner.split_once('@') {
        Some((id, client)) => format!("{client} ({})", short_owner(id)),
        None => short_owner(owner),
    }
}

/// Returns the names of the first clients that hold a lock. `None` if no holder has a name.
pub(crate) fn clients(holders: &[Holder]) -> Option<String> {
    let named = holders.iter().filter_map(|holder| holder.client.as_deref());
    in_words(named.take(MOST_NAMED).collect(), holders.len())
}

/// Shortens a long client in the middle. The process ID is at the end.
fn short_client(client: &str) -> String {
    match (client.get(..15), client.len().checked_sub(16)) {
        (Some(start), Some(rest)) if client.len() > 32 => format!("{start}…{}", &client[rest..]),
        _ => client.to_owned(),
    }
}

/// Shortens the UUID of an owner to its first 8 digits.
fn short_owner(owner: &str) -> String {
    match (owner.get(..8), owner.rsplit_once(':')) {
        (Some(start), Some((uuid, number))) if uuid.len() == 36 => format!("{start}:{number}"),
        _ => owner.to_owned(),
    }
}

/// Serializes the word for what a holder leaves to others.
fn access_word<S: Serializer>(access: &Access, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match access {
        Access::Exclusive => "exclusive",
        Access::Shared => "shared",
    })
}

/// Serializes the word for a kind.
fn word<S: Serializer>(kind: &Option<Kind>, to: S) -> Result<S::Ok, S::Error> {
    kind.map(Kind::word).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(kind: Kind, owner: Option<&str>, client: Option<&str>) -> HolderLook {
        HolderLook {
            kind: Some(kind),
            access: Access::Shared,
            owner: owner.map(str::to_owned),
            client: client.map(str::to_owned),
            depth: 1,
            remaining: None,
        }
    }

    #[test]
    fn a_holder_is_shown_as_its_client() {
        let ours = "01234567-89ab-cdef-0123-456789abcdef:1@web-3/812";
        for (holder, sentence, column) in [
            (holder(Kind::Mutex, None, None), "as a mutex", "mutex"),
            (
                holder(Kind::Mutex, None, Some("web-3/812")),
                "as a mutex by web-3/812",
                "mutex web-3/812",
            ),
            (
                holder(Kind::Fair, Some(ours), Some("web-3/812")),
                "as a fair lock by web-3/812 (01234567:1)",
                "fair web-3/812",
            ),
            (
                holder(Kind::Reentrant, Some("a:1"), None),
                "as a reentrant lock by a:1",
                "reentrant a:1",
            ),
            (
                holder(Kind::Semaphore, Some(ours), Some("web-3/812")),
                "as a semaphore by web-3/812 (01234567:1)",
                "semaphore web-3/812",
            ),
            (
                holder(Kind::ReadWrite, Some(ours), Some("web-3/812")),
                "as a read-write lock by a reader web-3/812 (01234567:1)",
                "reader web-3/812",
            ),
        ] {
            let sentence = format!("{sentence}, without a TTL, so it may be no lock");
            assert_eq!(holder.sentence(), sentence);
            assert_eq!(holder.columns().0, column);
        }
    }

    #[test]
    fn a_long_client_keeps_its_process_id_in_a_column() {
        assert_eq!(short_client("web-3/812"), "web-3/812");
        let long = format!("{}/812", "h".repeat(40));
        assert_eq!(short_client(&long), "hhhhhhhhhhhhhhh…hhhhhhhhhhhh/812");
    }

    #[test]
    fn owners_are_short_in_columns() {
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(short_owner(&format!("{uuid}:12")), "01234567:12");
        assert_eq!(short_owner("a client"), "a client");
    }
}
