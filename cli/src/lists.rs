//! The lists of masters: there are two only while the masters are changed.

use std::collections::BTreeSet;

use quorlock::{Coordinator, MasterHealth, MasterList, Membership, Tally, VoteRow, Votes};
use serde::{Serialize, Serializer};

use crate::style::{Cell, Colour};

/// How many masters of each list gave an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tallies(Vec<Tally>);

impl Tallies {
    /// Counts the masters with these addresses.
    pub(crate) fn of_masters<'a>(
        locks: &Coordinator,
        masters: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let masters: BTreeSet<_> = masters.into_iter().collect();
        Self(locks.tally(|health| masters.contains(&*health.master)))
    }

    /// Counts votes.
    pub(crate) fn of_votes(votes: &Votes, count: impl Fn(&VoteRow<'_>) -> bool) -> Self {
        Self(votes.tally(count))
    }

    /// Returns whether these are a majority of each list.
    pub(crate) fn has_quorum(&self) -> bool {
        self.0.iter().all(Tally::has_quorum)
    }

    /// Says which lists lack masters, such as `1 of 3 leaving masters (need 2)`. `None` if there is
    /// one list.
    pub(crate) fn lacking(&self) -> Option<String> {
        if self.0.len() == 1 {
            return None;
        }
        let lacking: Vec<_> = self.0.iter().filter(|tally| !tally.has_quorum()).collect();
        let all = || self.0.iter().collect();
        let shown = if lacking.is_empty() { all() } else { lacking };
        Some(joined(shown, " and "))
    }

    /// Says that too few masters `did` something.
    pub(crate) fn too_few(&self, did: &str) -> String {
        match (self.lacking(), &self.0[..]) {
            (None, [only]) => format!("{} {did}, and {} are needed", counted(only), only.quorum),
            (lacking, _) => format!("{} {did}", lacking.unwrap_or_default()),
        }
    }

    /// Says how many masters of each list these are.
    pub(crate) fn all(&self) -> String {
        match &self.0[..] {
            [only] => counted(only),
            lists => joined(lists, ", "),
        }
    }
}

fn counted(tally: &Tally) -> String {
    format!("{} of {} {}", tally.count, tally.masters, tally.list)
}

fn joined<'a>(tallies: impl IntoIterator<Item = &'a Tally>, between: &str) -> String {
    let texts: Vec<_> = tallies.into_iter().map(Tally::to_string).collect();
    texts.join(between)
}

/// The part that a master has in a change of the masters. `None` if there is one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change(Option<Membership>);

impl Change {
    pub(crate) const NONE: Self = Self(None);

    /// Returns the part of each master.
    pub(crate) fn of_masters(locks: &Coordinator) -> Vec<Self> {
        let has_two_lists = has_two_lists(locks);
        let part = |health: MasterHealth| Self(has_two_lists.then_some(health.membership));
        locks.health().into_iter().map(part).collect()
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the first cells of a row: the name of the master, and its part.
    pub(crate) fn cells(self, master: &str) -> Vec<Cell> {
        let part = self.0.map(|part| Cell::plain(part.to_string()));
        [Cell::plain(master)].into_iter().chain(part).collect()
    }

    /// Returns the heading above such cells.
    pub(crate) fn heading(self) -> Vec<Cell> {
        let words = ["MASTER"].into_iter().chain(self.0.map(|_| "CHANGE"));
        words.map(|word| Cell::new(Colour::Dim, word)).collect()
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.map_or_else(String::new, |part| part.to_string()))
    }
}

/// One list, in the JSON.
#[derive(Serialize)]
pub(crate) struct ListReport {
    list: &'static str,
    /// The number of its masters that make a majority.
    quorum: usize,
    masters: Vec<String>,
}

impl ListReport {
    /// Returns both lists. Empty if there is one.
    pub(crate) fn both(locks: &Coordinator) -> Vec<Self> {
        let lists = locks.tally(|_| true);
        let health = locks.health();
        let report = |tally: &Tally| Self {
            list: tally.list.word(),
            quorum: tally.quorum,
            masters: health
                .iter()
                .filter(|master| is_in(master.membership, tally.list))
                .map(|master| master.master.to_string())
                .collect(),
        };
        let lists = lists.iter().filter(|_| has_two_lists(locks));
        lists.map(report).collect()
    }
}

fn has_two_lists(locks: &Coordinator) -> bool {
    locks.tally(|_| true).len() > 1
}

fn is_in(part: Membership, list: MasterList) -> bool {
    match list {
        MasterList::Masters => part != Membership::Leaves,
        MasterList::Leaving => part != Membership::Joins,
    }
}
