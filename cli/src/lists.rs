//! The lists of masters: there are several only while the masters are changed, and with groups.

use std::collections::BTreeSet;

use quorlock::{Coordinator, MasterHealth, MasterList, Membership, Tally, VoteRow, Votes};
use serde::{Serialize, Serializer};

use crate::{
    style::{Cell, Colour},
    words::{MOST_NAMED, in_short},
};

/// The groups that some names need. An outage of others does not matter to these names.
pub(crate) struct Scope<'a> {
    locks: &'a Coordinator,
    /// `None` for all groups. Without groups, the only one has no ID.
    groups: Option<BTreeSet<Option<&'a str>>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn all(locks: &'a Coordinator) -> Self {
        Self {
            locks,
            groups: None,
        }
    }

    pub(crate) fn of_names(locks: &'a Coordinator, names: &[impl AsRef<str>]) -> Self {
        let groups = names.iter().map(|name| locks.group_of(name));
        Self {
            locks,
            groups: Some(groups.collect()),
        }
    }

    fn has(&self, group: Option<&str>) -> bool {
        let groups = self.groups.as_ref();
        groups.is_none_or(|groups| groups.contains(&group))
    }

    /// Returns the state of each master.
    pub(crate) fn health(&self) -> Vec<MasterHealth> {
        let health = self.locks.health().into_iter();
        health
            .filter(|master| self.has(master.group.as_deref()))
            .collect()
    }

    /// Counts masters by their present state.
    pub(crate) fn tally(&self, count: impl Fn(&MasterHealth) -> bool) -> Tallies {
        let tallies = self.locks.tally(count).into_iter();
        Tallies(
            tallies
                .filter(|tally| self.has(tally.group.as_deref()))
                .collect(),
        )
    }

    /// Counts masters by an earlier look at their `health`.
    pub(crate) fn tally_of(
        &self,
        health: &[MasterHealth],
        count: impl Fn(&MasterHealth) -> bool,
    ) -> Tallies {
        let key = |master: &MasterHealth| (master.group.clone(), master.master.clone());
        let counted = health.iter().filter(|master| count(master)).map(key);
        let counted: BTreeSet<_> = counted.collect();
        self.tally(|master| counted.contains(&key(master)))
    }
}

/// How many masters of each list gave an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tallies(Vec<Tally>);

impl Tallies {
    /// Counts votes.
    pub(crate) fn of_votes(votes: &Votes, count: impl Fn(&VoteRow<'_>) -> bool) -> Self {
        Self(votes.tally(count))
    }

    /// Returns whether these are a majority of each list.
    pub(crate) fn has_quorum(&self) -> bool {
        self.0.iter().all(Tally::has_quorum)
    }

    /// Returns the only list, if there are no groups and the masters are not changed.
    fn only(&self) -> Option<&Tally> {
        match &self.0[..] {
            [only] if only.group.is_none() => Some(only),
            _ => None,
        }
    }

    /// Says which lists lack masters, such as `1 of 3 leaving masters (need 2)`. `None` if there is
    /// one list.
    pub(crate) fn lacking(&self) -> Option<String> {
        if self.only().is_some() {
            return None;
        }
        let is_shown = |tally: &&Tally| self.has_quorum() || !tally.has_quorum();
        let shown = self.0.iter().filter(is_shown);
        let texts: Vec<_> = shown.map(Tally::to_string).collect();
        in_short(&texts)
    }

    /// Says that too few masters `did` something.
    pub(crate) fn too_few(&self, did: &str) -> String {
        match self.only() {
            Some(only) => format!("{} {did}, and {} are needed", counted(only), only.quorum),
            None => format!("{} {did}", self.lacking().unwrap_or_default()),
        }
    }

    /// Says how many masters of each list these are.
    pub(crate) fn all(&self) -> String {
        match (self.only(), self.0.len()) {
            (Some(only), _) => counted(only),
            (None, ..=MOST_NAMED) => {
                let texts: Vec<_> = self.0.iter().map(Tally::to_string).collect();
                texts.join(", ")
            }
            (None, count) if self.has_quorum() => format!("a majority of each of {count} lists"),
            (None, _) => self.lacking().unwrap_or_default(),
        }
    }
}

fn counted(tally: &Tally) -> String {
    format!("{} of {} {}", tally.count, tally.masters, tally.list)
}

/// The group of a master, and its part in a change of the masters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    /// `None` if there are no groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    /// `None` if no masters are changed.
    #[serde(
        rename = "membership",
        skip_serializing_if = "Option::is_none",
        serialize_with = "word"
    )]
    pub(crate) change: Option<Membership>,
}

impl Place {
    /// Returns each master of the scope with its place.
    pub(crate) fn of_masters(scope: &Scope<'_>) -> Vec<(MasterHealth, Self)> {
        let is_change = has_leaving(scope.locks);
        let health = scope.health().into_iter();
        let places = health.map(|health| {
            let place = Self {
                group: health.group.as_deref().map(str::to_owned),
                change: is_change.then_some(health.membership),
            };
            (health, place)
        });
        places.collect()
    }

    /// Returns each master once, with all its groups and its part in the whole change.
    pub(crate) fn of_servers(locks: &Coordinator) -> Vec<(String, Self)> {
        let mut servers = Vec::<(String, Vec<Self>)>::new();
        for (health, place) in Self::of_masters(&Scope::all(locks)) {
            match servers.iter_mut().find(|(one, _)| *one == *health.master) {
                Some((_, places)) => places.push(place),
                None => servers.push((health.master.to_string(), vec![place])),
            }
        }
        let joined = servers.into_iter().map(|(master, places)| {
            let groups: Vec<_> = places
                .iter()
                .filter_map(|one| one.group.as_deref())
                .collect();
            let place = Self {
                group: in_short(&groups),
                change: places.iter().filter_map(|one| one.change).reduce(both),
            };
            (master, place)
        });
        joined.collect()
    }

    /// Returns whether there is nothing to show.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the first cells of a row: the name of the master, and its place.
    pub(crate) fn cells(&self, master: &str) -> Vec<Cell> {
        let group = self.group.as_ref().map(Cell::plain);
        let change = self.change.map(|part| Cell::plain(part.to_string()));
        [Cell::plain(master)]
            .into_iter()
            .chain(group)
            .chain(change)
            .collect()
    }

    /// Returns the heading above such cells.
    pub(crate) fn heading(&self) -> Vec<Cell> {
        let group = self.group.as_ref().map(|_| "GROUP");
        let words = ["MASTER"].into_iter().chain(group);
        let words = words.chain(self.change.map(|_| "CHANGE"));
        words.map(|word| Cell::new(Colour::Dim, word)).collect()
    }
}

/// Returns the part of a master that has both parts, in different groups.
fn both(one: Membership, other: Membership) -> Membership {
    if one == other { one } else { Membership::Stays }
}

#[expect(clippy::ref_option, reason = "serde passes the field like this")]
fn word<S: Serializer>(change: &Option<Membership>, to: S) -> Result<S::Ok, S::Error> {
    change.map(Membership::word).serialize(to)
}

/// One list, in the JSON.
#[derive(Serialize)]
pub(crate) struct ListReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    list: &'static str,
    /// The number of its masters that make a majority.
    quorum: usize,
    masters: Vec<String>,
}

impl ListReport {
    /// Returns all lists. Empty if there is one without a group.
    pub(crate) fn all(scope: &Scope<'_>) -> Vec<Self> {
        let lists = scope.tally(|_| true);
        if lists.only().is_some() {
            return Vec::new();
        }
        let health = scope.health();
        let report = |tally: &Tally| {
            let masters = health.iter().filter(|master| {
                master.group == tally.group && is_in(master.membership, tally.list)
            });
            Self {
                group: tally.group.as_deref().map(str::to_owned),
                list: tally.list.word(),
                quorum: tally.quorum,
                masters: masters.map(|master| master.master.to_string()).collect(),
            }
        };
        lists.0.iter().map(report).collect()
    }
}

/// Returns whether the masters are changed.
fn has_leaving(locks: &Coordinator) -> bool {
    let lists = locks.tally(|_| true);
    lists.iter().any(|tally| tally.list == MasterList::Leaving)
}

fn is_in(part: Membership, list: MasterList) -> bool {
    match list {
        MasterList::Masters => part != Membership::Leaves,
        MasterList::Leaving => part != Membership::Joins,
    }
}
