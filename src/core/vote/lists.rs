//! The two lists of masters, with their names and their ID: the masters that a coordinator uses,
//! and the masters that it leaves.

use std::{collections::BTreeSet, fmt, sync::Arc};

use super::{MasterSet, quorum::Quorum};
use crate::core::hash::hash;

/// A list of masters. Every decision needs a majority of each list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the two are all; a match on them should be complete"
)]
pub enum MasterList {
    // The lists have the same order as the sets of a `Quorum`.
    /// The masters of the coordinator: see [`Builder::masters`](crate::Builder::masters).
    Masters,
    /// The masters that the coordinator leaves: see [`Builder::leaving`](crate::Builder::leaving).
    Leaving,
}

impl MasterList {
    const ALL: [Self; 2] = [Self::Masters, Self::Leaving];

    /// Returns the word that settings and the labels of metrics use for the list.
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

/// The role of a master while the masters of a coordinator are changed.
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
    /// Returns the word that the label of a metric uses for this role.
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

/// How many masters of one list gave a certain answer in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// The list.
    pub list: MasterList,
    /// The number of masters of the list that gave the answer.
    pub count: usize,
    /// The number of masters of the list.
    pub masters: usize,
    /// The number of masters that make a majority of the list.
    pub quorum: usize,
}

impl Tally {
    /// Returns whether the masters that gave the answer are a majority of the list.
    pub fn has_quorum(&self) -> bool {
        self.count >= self.quorum
    }

    /// Returns the numbers in words. `did` says what the masters did.
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
    /// Returns the quorum of the masters from 0 to `masters` - 1. `leaving` has the numbers of the
    /// masters that the coordinator leaves.
    pub(crate) fn of_lists(masters: usize, leaving: MasterSet) -> Self {
        let masters = (0..masters).collect();
        if leaving.is_empty() || leaving == masters {
            return Self::of_sets(&[masters]);
        }
        Self::of_sets(&[masters, leaving])
    }

    /// Returns whether there are two lists. This is so while the masters are changed.
    pub(crate) fn is_of_lists(&self) -> bool {
        self.sets().len() > 1
    }

    /// Returns the lists, each with its masters.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (MasterList, MasterSet)> {
        let sets = self.sets().iter().map(|(set, _)| *set);
        MasterList::ALL.into_iter().zip(sets)
    }

    pub(crate) fn membership(&self, master: usize) -> Membership {
        let is_in = |set: &MasterSet| set.contains(master);
        match self.sets() {
            [(masters, _), (leaving, _)] if !is_in(leaving) && is_in(masters) => Membership::Joins,
            [(masters, _), (leaving, _)] if is_in(leaving) && !is_in(masters) => Membership::Leaves,
            _ => Membership::Stays,
        }
    }

    /// Returns for each list how many of its masters are among `masters`.
    pub(crate) fn tallies(&self, masters: MasterSet) -> impl Iterator<Item = Tally> {
        let lists = MasterList::ALL.into_iter().zip(self.sets());
        lists.map(move |(list, (set, need))| Tally {
            list,
            count: set.and(masters).len(),
            masters: set.len(),
            quorum: *need,
        })
    }
}

/// The addresses of the masters of a coordinator, and the quorum of these masters.
#[derive(Debug)]
pub(crate) struct Roster {
    pub(crate) masters: Box<[Arc<str>]>,
    pub(crate) quorum: Quorum,
}

impl Roster {
    pub(crate) fn new(masters: impl IntoIterator<Item = Arc<str>>, quorum: Quorum) -> Arc<Self> {
        Arc::new(Self {
            masters: masters.into_iter().collect(),
            quorum,
        })
    }

    /// Returns the address of each master, and its role while the masters are changed.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Arc<str>, Membership)> {
        let masters = self.masters.iter().enumerate();
        masters.map(|(number, address)| (address, self.quorum.membership(number)))
    }
}

/// The ID of the lists of masters that a program uses. The name of every connection to a Redis
/// master contains this ID. So a master shows which programs still use which lists.
///
/// Programs that list the same masters under the same addresses have the same ID. The order of the
/// masters does not matter. The ID is shown as 16 hexadecimal digits. See
/// [`ConnectionName`](crate::tools::ConnectionName).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListsId(u64);

impl ListsId {
    /// The number of digits.
    const DIGITS: usize = 16;

    /// Returns the ID of two lists: the `masters` of a program, and those that it is
    /// [`leaving`](crate::Builder::leaving). Both lists contain addresses, as
    /// [`MasterSpec::address`](crate::MasterSpec::address) returns them. If `leaving` is empty or
    /// equal to `masters`, the program uses one list.
    ///
    /// ```
    /// use quorlock::tools::ListsId;
    ///
    /// let (old, new) = (["10.0.0.1:6379"], ["10.0.0.2:6379"]);
    /// let during_a_change = ListsId::of(new, old);
    /// assert_ne!(during_a_change, ListsId::of(old, []));
    /// assert_ne!(during_a_change, ListsId::of(new, []));
    /// assert_eq!(ListsId::of(old, []).to_string(), "f1bb702098bb38aa");
    /// ```
    // The ID is the hash of the sorted addresses of both lists. A zero byte comes after each
    // address, and another one after each list. This format must never change: for the same lists,
    // programs of all versions must show the same ID.
    pub fn of<'a>(
        masters: impl IntoIterator<Item = &'a str>,
        leaving: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let masters: BTreeSet<_> = masters.into_iter().collect();
        let mut leaving: BTreeSet<_> = leaving.into_iter().collect();
        if leaving == masters {
            leaving.clear();
        }
        let bytes = [masters, leaving].into_iter().flat_map(|list| {
            let addresses = list.into_iter();
            let addresses = addresses.flat_map(|address| address.bytes().chain([0]));
            addresses.chain([0])
        });
        Self::of_bytes(bytes)
    }

    /// Returns the ID that is the hash of these bytes.
    pub(crate) fn of_bytes(bytes: impl Iterator<Item = u8>) -> Self {
        Self(hash(bytes))
    }

    /// Reads the text of an ID.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_digit = |letter: u8| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
        let is_id = text.len() == Self::DIGITS && text.bytes().all(is_digit);
        let id = is_id.then(|| u64::from_str_radix(text, 16).ok())?;
        id.map(Self)
    }
}

/// Shows the 16 digits.
impl fmt::Display for ListsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0digits$x}", self.0, digits = Self::DIGITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "10.0.0.1:6379";
    const B: &str = "10.0.0.2:6379";
    const C: &str = "10.0.0.3:6379";

    #[test]
    fn ids_never_change() {
        for (masters, leaving, expected) in [
            (&[A][..], &[][..], "f1bb702098bb38aa"),
            (&[A, B, C], &[], "380f0cf4a1f8149b"),
            (&[A, B, C], &[A, B], "ea2d000cecb5efd8"),
            (&[A, B], &[A, B, C], "c731ad090038938b"),
            (&["unix:/run/r.sock", "[::1]:6379"], &[], "4f5f328840172cf2"),
        ] {
            let of = |masters: &[&'static str], leaving: &[&'static str]| {
                ListsId::of(masters.iter().copied(), leaving.iter().copied()).to_string()
            };
            assert_eq!(of(masters, leaving), expected, "{masters:?} {leaving:?}");
            let [mut masters, mut leaving] = [masters, leaving].map(<[_]>::to_vec);
            masters.reverse();
            leaving.reverse();
            assert_eq!(of(&masters, &leaving), expected, "in another order");
        }
    }

    #[test]
    fn each_pair_of_lists_has_an_id_of_its_own() {
        let id = |masters: &[&'static str], leaving: &[&'static str]| {
            ListsId::of(masters.iter().copied(), leaving.iter().copied())
        };
        let lists = [
            (&[A][..], &[][..]),
            (&[A, B], &[]),
            (&[A], &[B]),
            (&[B], &[A]),
            (&[A, B], &[C]),
            (&[A], &[B, C]),
            (&["10.0.0.1:637910.0.0.2:6379"], &[]),
        ];
        for (first, (masters, leaving)) in lists.iter().enumerate() {
            for (other_masters, other_leaving) in &lists[first + 1..] {
                assert_ne!(id(masters, leaving), id(other_masters, other_leaving));
            }
        }
        assert_eq!(id(&[A, B], &[B, A]), id(&[A, B], &[]), "nothing changes");
    }

    #[test]
    fn the_text_of_an_id_is_read_back() {
        for id in [0, 1, u64::MAX] {
            assert_eq!(ListsId::parse(&ListsId(id).to_string()), Some(ListsId(id)));
        }
        for text in [
            "",
            "0",
            "000000000000000A",
            "+00000000000000a",
            "00000000000000000",
        ] {
            assert_eq!(ListsId::parse(text), None, "{text}");
        }
    }
}
