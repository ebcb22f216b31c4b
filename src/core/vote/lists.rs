//! The lists of masters: those that a coordinator uses, and those that it leaves.

use std::fmt;

use super::{master_set::MasterSet, quorum::Quorum};

/// A list of masters. Every decision needs a majority of each list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "masters are changed from one list to another"
)]
pub enum MasterList {
    /// The masters of the coordinator: see [`Builder::masters`](crate::Builder::masters).
    Masters,
    /// The masters that it leaves: see [`Builder::leaving`](crate::Builder::leaving).
    Leaving,
}

impl MasterList {
    const ALL: [Self; 2] = [Self::Masters, Self::Leaving];

    /// Returns the word for the list, as in settings and labels of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Masters => "masters",
            Self::Leaving => "leaving",
        }
    }
}

/// Shows `masters` or `leaving masters`.
impl fmt::Display for MasterList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Masters => "masters",
            Self::Leaving => "leaving masters",
        })
    }
}

/// The part that a master has in a change of the masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a master is in one of two lists, or in both"
)]
pub enum Membership {
    /// The master is only among the new masters.
    Joins,
    /// The master is only among those that the coordinator [leaves](crate::Builder::leaving).
    Leaves,
    /// The masters do not change, or the master is in both lists.
    Stays,
}

impl Membership {
    /// Returns the word for it, as in the label of a metric.
    pub fn word(self) -> &'static str {
        match self {
            Self::Joins => "joins",
            Self::Leaves => "leaves",
            Self::Stays => "stays",
        }
    }
}

/// Shows `joins`, `leaves` or `stays`.
impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How many masters of one list gave an answer, in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// The list.
    pub list: MasterList,
    /// The number of its masters that gave the answer.
    pub count: usize,
    /// The number of its masters.
    pub masters: usize,
    /// The number of its masters that make a majority.
    pub quorum: usize,
}

impl Tally {
    /// Returns whether the masters that gave the answer are a majority of the list.
    pub fn has_quorum(&self) -> bool {
        self.count >= self.quorum
    }

    /// Returns the numbers in words, with what the masters `did`.
    pub(crate) fn text(&self, did: &str) -> String {
        let Self { count, list, .. } = self;
        let (masters, quorum) = (self.masters, self.quorum);
        format!("{count} of {masters} {list}{did} (need {quorum})")
    }
}

/// Shows, for example, `2 of 5 leaving masters (need 3)`.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(""))
    }
}

impl Quorum {
    /// Returns the quorum of the first `masters` masters. If the coordinator leaves other masters,
    /// their numbers are in `leaving`.
    pub(crate) fn of_lists(masters: usize, leaving: MasterSet) -> Self {
        let masters = (0..masters).collect();
        if leaving.is_empty() || leaving == masters {
            return Self::of_sets(&[masters]);
        }
        Self::of_sets(&[masters, leaving])
    }

    /// Returns whether there are two lists, because the masters are changed.
    pub(crate) fn is_of_lists(&self) -> bool {
        self.sets().len() > 1
    }

    /// Returns the lists, each with its masters.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (MasterList, MasterSet)> {
        MasterList::ALL.into_iter().zip(self.sets().iter().copied())
    }

    pub(crate) fn membership(&self, master: usize) -> Membership {
        let is_in = |set: &MasterSet| set.contains(master);
        match self.sets() {
            [masters, leaving] if !is_in(leaving) && is_in(masters) => Membership::Joins,
            [masters, leaving] if is_in(leaving) && !is_in(masters) => Membership::Leaves,
            _ => Membership::Stays,
        }
    }

    /// Returns for each list how many of its masters are among `masters`.
    pub(crate) fn tallies(&self, masters: MasterSet) -> impl Iterator<Item = Tally> {
        self.lists().map(move |(list, set)| Tally {
            list,
            count: set.and(masters).len(),
            masters: set.len(),
            quorum: Self::needed(set),
        })
    }
}
