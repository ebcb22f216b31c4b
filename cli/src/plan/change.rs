//! A change of the masters, and the programs that use the old ones, both lists, or the new ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use quorlock::{ConfigError, Coordinator, ListsId};

use crate::{
    listed::{Listed, undialled},
    style::{Cell, Colour, Style},
};

/// The two lists.
pub(super) struct Change {
    old: Listed,
    new: Listed,
    /// What the connections of programs show, and the part of these programs.
    parts: Vec<(ListsId, Part)>,
    /// The share of the names that get other masters, if there are groups.
    moving: Option<f64>,
}

/// The masters that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
}

impl Change {
    /// Returns the change from the `old` list to the `new` one. Must be called inside a runtime.
    /// Dials nobody.
    pub(super) fn of([new, old]: [Listed; 2]) -> Result<Self, ConfigError> {
        let none = Listed::default();
        let (before, after) = (undialled(&old, &none)?, undialled(&new, &none)?);
        let joint = |new, old| undialled(new, old).map(|locks| locks.lists_id());
        let has_groups = old.has_groups() || new.has_groups();
        Ok(Self {
            parts: vec![
                (before.lists_id(), Part::Old),
                (after.lists_id(), Part::New),
                (joint(&new, &old)?, Part::Both),
                (joint(&old, &new)?, Part::Both), // on the way back
            ],
            moving: has_groups.then(|| moving([&before, &after], [&old, &new])),
            old,
            new,
        })
    }

    /// Returns whether programs with the old list and with the new one use the same masters.
    pub(super) fn is_none(&self) -> bool {
        self.parts[0].0 == self.parts[1].0
    }

    /// Returns the part of programs with these lists.
    pub(super) fn part(&self, lists: ListsId) -> Part {
        let known = self.parts.iter().find(|(id, _)| *id == lists);
        known.map_or(Part::Other, |(_, part)| *part)
    }

    /// Returns the words for the masters that a program uses.
    pub(super) fn word(&self, part: Part) -> String {
        match part {
            Part::Old => format!("only the old {}", noun(&self.old)),
            Part::Both => "both lists".to_owned(),
            Part::New => format!("only the new {}", noun(&self.new)),
            Part::Other => "other lists".to_owned(),
            Part::Unknown => "connections that do not say".to_owned(),
        }
    }

    /// Returns the settings of programs with both lists.
    pub(super) fn both_settings(&self) -> String {
        if !(self.old.has_groups() || self.new.has_groups()) {
            return "masters to the new list and leaving to the old list".to_owned();
        }
        let groups = |list: &Listed, age| match list.has_groups() {
            true => format!("the {age} groups"),
            false => format!("the {age} masters as one group"),
        };
        let (new, old) = (groups(&self.new, "new"), groups(&self.old, "old"));
        format!("groups to {new}, and leaving_groups to {old}")
    }

    /// Returns the setting of programs with the new list, and the word for the one that they drop.
    pub(super) fn new_settings(&self) -> (&'static str, &'static str) {
        let dropped = match self.old.has_groups() || self.new.has_groups() {
            true => "leaving_groups",
            false => "leaving",
        };
        match self.new.has_groups() {
            true => ("groups to the new groups", dropped),
            false => ("masters to the new list", dropped),
        }
    }

    /// Says on how many old masters a user must be deleted, so that the others are no majority.
    pub(super) fn barred(&self) -> String {
        let sizes = self.old.addresses();
        let sizes: Vec<_> = sizes
            .iter()
            .map(|(group, masters)| (group, masters.len()))
            .collect();
        let barred = |size: usize| format!("{} of the {size}", size - size / 2);
        match &sizes[..] {
            [(_, only)] => barred(*only),
            [(_, first), others @ ..] if others.iter().all(|(_, size)| size == first) => {
                format!("{} of each group", barred(*first))
            }
            _ => {
                let texts = sizes.iter().map(|(group, size)| {
                    format!("{} of group {}", barred(*size), group.unwrap_or_default())
                });
                texts.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// Returns the old masters that are not among the new ones.
    pub(super) fn left(&self) -> Vec<Arc<str>> {
        let all = |list: &Listed| {
            let groups = list.addresses().into_iter();
            groups.flat_map(|(_, masters)| masters).collect::<Vec<_>>()
        };
        let new = all(&self.new);
        let old = all(&self.old).into_iter();
        old.filter(|master| !new.contains(master)).collect()
    }

    pub(super) fn text(&self, style: Style) -> String {
        let rows = |word: &'static str, list: &Listed| {
            let words = [word].into_iter().chain(std::iter::repeat(""));
            let rows = words.zip(list.lines());
            rows.map(|(word, line)| vec![Cell::new(Colour::Dim, word), Cell::plain(line)])
                .collect::<Vec<_>>()
        };
        let mut table = rows("old", &self.old);
        table.extend(rows("new", &self.new));
        if let Some(share) = self.moving {
            let text = format!("{} of all names get other masters", percent(share));
            table.push(vec![Cell::new(Colour::Dim, "moves"), Cell::plain(text)]);
        }
        style.table(&table)
    }
}

fn noun(list: &Listed) -> &'static str {
    if list.has_groups() {
        "groups"
    } else {
        "masters"
    }
}

/// Returns the share of the names that have other masters after the change.
fn moving([before, after]: [&Coordinator; 2], [old, new]: [&Listed; 2]) -> f64 {
    const NAMES: u32 = 10_000;
    let sets = |list| -> BTreeMap<Option<&str>, BTreeSet<Arc<str>>> {
        let groups = Listed::addresses(list).into_iter();
        groups
            .map(|(group, masters)| (group, masters.into_iter().collect()))
            .collect()
    };
    let (old, new) = (sets(old), sets(new));
    let moves = |name: String| {
        let (was, is) = (before.group_of(&name), after.group_of(&name));
        old.get(&was) != new.get(&is)
    };
    let moved = (0..NAMES).filter(|number| moves(format!("orders/{number}")));
    moved.count() as f64 / f64::from(NAMES)
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "none".to_owned(),
        percent if percent < 1.0 => "less than 1 %".to_owned(),
        percent => format!("about {percent:.0} %"),
    }
}
