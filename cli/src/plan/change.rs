//! A change of the masters, and the programs that use the old ones, both lists, or the new ones.

use std::sync::Arc;

use quorlock::{
    MasterSpec,
    tools::{ConnectionName, ListsId},
};

use serde::Serialize;

use crate::style::{Cell, Colour, Style};

/// The two lists.
pub(super) struct Change {
    pub(super) old: Vec<Arc<str>>,
    new: Vec<Arc<str>>,
    /// What the connections of programs show, and the part of these programs.
    parts: [(ListsId, Part); 4],
    /// What the connections of programs with our key template show.
    keys: u32,
}

/// The masters that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    Old,
    Both,
    New,
    /// Other lists than the old and the new one.
    Other,
    /// The connections say nothing of lists.
    Unknown,
}

impl Part {
    pub(super) const ALL: [Self; 5] =
        [Self::Old, Self::Both, Self::New, Self::Other, Self::Unknown];

    /// Returns the words for the masters that a program uses.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Old => "only the old masters",
            Self::Both => "both lists",
            Self::New => "only the new masters",
            Self::Other => "other lists",
            Self::Unknown => "connections that do not say",
        }
    }
}

impl Change {
    /// Returns the change from the `old` list to the `new` one. Both have been checked.
    pub(super) fn of(lists: &[Vec<MasterSpec>; 2], keys: u32) -> Self {
        let [new, old] = lists.each_ref().map(|list| {
            let addresses = list.iter().filter_map(|master| master.address().ok());
            addresses.collect::<Vec<_>>()
        });
        let id = |masters: &[Arc<str>], old_masters: &[Arc<str>]| {
            let [masters, old_masters] =
                [masters, old_masters].map(|list| list.iter().map(|one| &**one));
            ListsId::of(masters, old_masters)
        };
        Self {
            parts: [
                (id(&old, &[]), Part::Old),
                (id(&new, &[]), Part::New),
                (id(&new, &old), Part::Both),
                (id(&old, &new), Part::Both), // on the way back
            ],
            old,
            new,
            keys,
        }
    }

    /// Returns whether programs with the old list and with the new one use the same masters.
    pub(super) fn is_none(&self) -> bool {
        self.parts[0].0 == self.parts[1].0
    }

    /// Returns the part of a program. `None` if the change does not concern it: it has other lists,
    /// and other locks.
    pub(super) fn part(&self, name: &ConnectionName) -> Option<Part> {
        let known = self.parts.iter().find(|(id, _)| *id == name.lists);
        let other = (name.keys == self.keys).then_some(Part::Other);
        known.map(|(_, part)| *part).or(other)
    }

    /// Returns the old masters that are not among the new ones.
    pub(super) fn left(&self) -> Vec<Arc<str>> {
        let old = self.old.iter().cloned();
        old.filter(|master| !self.new.contains(master)).collect()
    }

    pub(super) fn text(&self, style: Style) -> String {
        let row = |word: &'static str, list: &[Arc<str>]| {
            vec![Cell::new(Colour::Dim, word), Cell::plain(list.join(", "))]
        };
        style.table(&[row("old", &self.old), row("new", &self.new)])
    }
}
