//! The lists of masters: there are two only while the masters are changed.

use std::collections::BTreeSet;

use quorlock::{
    Coordinator,
    health::MasterHealth,
    tools::{MasterList, Membership, Tally},
    votes::{VoteRow, Votes},
};
use serde::Serialize;

use crate::{
    style::{Cell, Colour},
    words::in_short,
};

/// How many masters of each list gave an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tallies(Vec<Tally>);

impl Tallies {
    /// Counts these masters.
    pub(crate) fn of<'a>(locks: &Coordinator, these: impl Iterator<Item = &'a str>) -> Self {
        let these: BTreeSet<_> = these.collect();
        Self(locks.tally(|master| these.contains(&*master.master)))
    }

    /// Counts masters by an earlier look at their `health`.
    pub(crate) fn of_health(
        locks: &Coordinator,
        health: &[MasterHealth],
        count: impl Fn(&MasterHealth) -> bool,
    ) -> Self {
        let counted = health.iter().filter(|master| count(master));
        Self::of(locks, counted.map(|master| &*master.master))
    }

    /// Counts votes.
    pub(crate) fn of_votes(votes: &Votes, count: impl Fn(&VoteRow<'_>) -> bool) -> Self {
        Self(votes.tally(count))
    }

    /// Returns whether these are a majority of each list.
    pub(crate) fn has_quorum(&self) -> bool {
        self.0.iter().all(Tally::has_quorum)
    }

    /// Says which lists lack masters, such as `1 of 3 old masters (need 2)`. `None` if there is
    /// one list.
    pub(crate) fn lacking(&self) -> Option<String> {
        if self.0.len() == 1 {
            return None;
        }
        let is_shown = |tally: &&Tally| self.has_quorum() || !tally.has_quorum();
        let shown = self.0.iter().filter(is_shown);
        let texts: Vec<_> = shown.map(Tally::to_string).collect();
        in_short(&texts)
    }

    /// Says that too few masters `did` something.
    pub(crate) fn too_few(&self, did: &str) -> String {
        match &self.0[..] {
            [only] => {
                let are = if only.quorum == 1 { "is" } else { "are" };
                let Tally {
                    count,
                    masters,
                    list,
                    quorum,
                    ..
                } = only;
                format!("{count} of {masters} {list} {did}, and {quorum} {are} needed")
            }
            _ => format!("{} {did}", self.lacking().unwrap_or_default()),
        }
    }
}

/// The part of a master in a change of the masters. `None` if no masters are changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    #[serde(skip_serializing_if = "Option::is_none")]
    membership: Option<&'static str>,
}

impl Part {
    /// Returns each master with its part.
    pub(crate) fn of_masters(locks: &Coordinator) -> Vec<(MasterHealth, Self)> {
        let lists = locks.tally(|_| true);
        let is_change = lists.iter().any(|tally| tally.list == MasterList::Old);
        let health = locks.health().into_iter();
        let parts = health.map(|health| {
            let membership = is_change.then_some(health.membership.as_str());
            (health, Self { membership })
        });
        parts.collect()
    }

    /// Returns the first cells of a row: the name of the master, and its part.
    pub(crate) fn cells(&self, master: &str) -> Vec<Cell> {
        let part = self.membership.map(Cell::plain);
        [Cell::plain(master)].into_iter().chain(part).collect()
    }

    /// Returns the heading above such cells.
    pub(crate) fn heading(&self) -> Vec<Cell> {
        let change = self.membership.map(|_| "CHANGE");
        let words = ["MASTER"].into_iter().chain(change);
        words.map(|word| Cell::new(Colour::Dim, word)).collect()
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
    pub(crate) fn all(locks: &Coordinator) -> Vec<Self> {
        let lists = locks.tally(|_| true);
        if lists.len() == 1 {
            return Vec::new();
        }
        let health = locks.health();
        let report = |tally: &Tally| {
            let masters = health.iter();
            let masters = masters.filter(|master| match tally.list {
                MasterList::Masters => master.membership != Membership::Leaves,
                MasterList::Old => master.membership != Membership::Joins,
            });
            Self {
                list: tally.list.as_str(),
                quorum: tally.quorum,
                masters: masters.map(|master| master.master.to_string()).collect(),
            }
        };
        lists.iter().map(report).collect()
    }
}
