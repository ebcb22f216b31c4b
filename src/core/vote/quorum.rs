//! The sets of masters whose majorities decide, and what a majority is. The sets are the two lists
//! of masters: those that a coordinator uses, and the old ones.

use std::{
    fmt,
    ops::{BitOr, Sub},
    sync::Arc,
};

/// The sets of masters whose majorities decide. All code that counts masters is here.
///
/// A majority is more than half of all masters of a set, whether they can be reached or not. If
/// only the masters that can be reached were counted, two disjoint "majorities" could win.
///
/// A decision needs a majority of *every* set. So any two decisions share a master in each set, and
/// two programs that have a set in common exclude each other, even if their other sets differ. To
/// rule a decision out, a majority of *one* set is enough. Each method says whether it asks for
/// every set, or for at least one. A master that is in several sets votes once, and counts in each
/// of them.
#[derive(Clone, Debug)]
pub(crate) struct Quorum {
    /// Each set, and the size of a majority of it.
    sets: Arc<[(MasterSet, usize)]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is no longer possible that a majority of every set says yes.
    NoMajority,
    Pending,
    /// A majority of every set said yes, but after the limit of the round. The grants are useless.
    TooLate,
    /// A majority of every set said yes in time.
    Won,
}

impl Quorum {
    /// Returns the quorum of one set, with the masters from 0 to `masters` - 1.
    #[cfg(test)]
    pub(crate) fn of(masters: usize) -> Self {
        Self::of_sets(&[(0..masters).collect()])
    }

    pub(crate) fn of_sets(sets: &[MasterSet]) -> Self {
        let sets = sets.iter().map(|set| (*set, majority(set.len())));
        Self {
            sets: sets.collect(),
        }
    }

    /// Returns the quorum of the masters from 0 to `masters` - 1. `old` has the numbers of the old
    /// masters.
    pub(crate) fn of_lists(masters: usize, old: MasterSet) -> Self {
        let masters = (0..masters).collect();
        if old.is_empty() || old == masters {
            return Self::of_sets(&[masters]);
        }
        Self::of_sets(&[masters, old])
    }

    /// Returns the masters of each list. There are two lists while the masters are changed.
    pub(crate) fn lists(&self) -> impl Iterator<Item = MasterSet> {
        self.sets.iter().map(|(set, _)| *set)
    }

    pub(crate) fn membership(&self, master: usize) -> Membership {
        let is_in = |set: &MasterSet| set.contains(master);
        match &*self.sets {
            [(masters, _), (old, _)] if !is_in(old) && is_in(masters) => Membership::Joins,
            [(masters, _), (old, _)] if is_in(old) && !is_in(masters) => Membership::Leaves,
            _ => Membership::Stays,
        }
    }

    /// Returns for each list how many of its masters are among `masters`.
    pub(crate) fn tallies(&self, masters: MasterSet) -> impl Iterator<Item = Tally> {
        let lists = MasterList::ALL.into_iter().zip(&*self.sets);
        lists.map(move |(list, (set, need))| Tally {
            list,
            count: set.and(masters).len(),
            masters: set.len(),
            quorum: *need,
        })
    }

    pub(crate) fn masters(&self) -> MasterSet {
        self.lists().fold(MasterSet::NONE, MasterSet::bitor)
    }

    /// Returns the size of a majority, for texts only. If there are several sets, this is the size
    /// for the largest set, and does not decide who wins.
    pub(crate) fn size(&self) -> usize {
        let sizes = self.sets.iter().map(|(_, need)| *need);
        sizes.max().unwrap_or(0)
    }

    pub(crate) fn has_majority_of_every_set(&self, masters: MasterSet) -> bool {
        self.sets.iter().all(|set| has_majority(*set, masters))
    }

    pub(crate) fn has_majority_of_any_set(&self, masters: MasterSet) -> bool {
        self.sets.iter().any(|set| has_majority(*set, masters))
    }

    /// Returns the outcome of a count without a time limit. Each item of `yes` has the masters that
    /// said yes to one slot. The masters in `open` have not answered, and may say yes to any slot.
    /// A slot wins the count with a majority of every set. The count is lost when no slot can win
    /// any more.
    pub(crate) fn verdict(
        &self,
        mut yes: impl Iterator<Item = MasterSet> + Clone,
        open: MasterSet,
    ) -> Outcome {
        let is_won = |yes| self.has_majority_of_every_set(yes);
        if yes.clone().any(is_won) {
            Outcome::Won
        } else if is_won(open) || yes.any(|yes| is_won(yes | open)) {
            Outcome::Pending
        } else {
            Outcome::NoMajority
        }
    }

    /// Returns the smallest `x` for which a majority of every set has values of at most `x`. `None`
    /// if too few masters have a value.
    pub(crate) fn least_of_every<T: Ord>(&self, value: impl Fn(usize) -> Option<T>) -> Option<T> {
        let mut most = None;
        for set in &*self.sets {
            most = most.max(Some(least(*set, &value)?));
        }
        most
    }

    /// Returns the smallest `x` for which a majority of at least one set has values of at most `x`.
    pub(crate) fn least_of_any<T: Ord>(&self, value: impl Fn(usize) -> Option<T>) -> Option<T> {
        let values = self.sets.iter().filter_map(|set| least(*set, &value));
        values.min()
    }
}

/// The addresses of the masters of a coordinator, and the quorum of these masters.
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
    /// The old masters: see [`Builder::old_masters`](crate::Builder::old_masters).
    Old,
}

impl MasterList {
    const ALL: [Self; 2] = [Self::Masters, Self::Old];

    /// Returns the word that settings and the labels of metrics use for the list.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Masters => "masters",
            Self::Old => "old_masters",
        }
    }
}

/// Shows `masters` or `old masters`.
impl fmt::Display for MasterList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Masters => "masters",
            Self::Old => "old masters",
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
    /// The master is only among the [old masters](crate::Builder::old_masters).
    Leaves,
    /// The masters do not change, or the master is in both lists.
    Stays,
}

impl Membership {
    /// Returns the word that the label of a metric uses for this role.
    pub fn as_str(self) -> &'static str {
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
        f.write_str(self.as_str())
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

/// Shows, for example, `2 of 5 old masters (need 3)`.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(""))
    }
}

/// A set of masters, by their numbers from 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MasterSet(u64);

impl MasterSet {
    /// The most masters that a set can hold.
    pub(crate) const MOST: usize = u64::BITS as usize;
    pub(crate) const NONE: Self = Self(0);
    /// All masters, however many there are.
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn only(master: usize) -> Self {
        Self(1 << master)
    }

    pub(crate) fn contains(self, master: usize) -> bool {
        self.0 >> master & 1 == 1
    }

    pub(crate) fn insert(&mut self, master: usize) {
        *self = *self | Self::only(master);
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..Self::MOST).filter(move |master| self.contains(*master))
    }
}

impl BitOr for MasterSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Sub for MasterSet {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl FromIterator<usize> for MasterSet {
    fn from_iter<I: IntoIterator<Item = usize>>(masters: I) -> Self {
        let mut set = Self::NONE;
        masters.into_iter().for_each(|master| set.insert(master));
        set
    }
}

/// Returns the size of a majority of `masters`. Any two majorities share a master.
pub(crate) fn majority(masters: usize) -> usize {
    masters / 2 + 1
}

fn has_majority((set, need): (MasterSet, usize), masters: MasterSet) -> bool {
    set.and(masters).len() >= need
}

fn least<T: Ord>((set, need): (MasterSet, usize), value: impl Fn(usize) -> Option<T>) -> Option<T> {
    let mut values: Vec<_> = set.iter().filter_map(value).collect();
    values.sort_unstable();
    values.into_iter().nth(need - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(masters: &[usize]) -> MasterSet {
        masters.iter().copied().collect()
    }

    /// Returns the outcome of a count with one letter for the answer of each master: `n` is no, `y`
    /// is yes, and `-` is no answer yet.
    fn verdict_of(quorum: &Quorum, answers: &str) -> Outcome {
        let at = |wanted: char| {
            let answers = answers.chars().enumerate();
            let wanted = answers.filter(|(_, answer)| *answer == wanted);
            wanted.map(|(master, _)| master).collect::<MasterSet>()
        };
        quorum.verdict([at('y')].into_iter(), at('-'))
    }

    #[test]
    fn sets_have_members() {
        let mut set: MasterSet = [0, 2, 63].into_iter().collect();
        assert!(set.contains(63) && !set.contains(1));
        assert_eq!(set.len(), 3);
        set.insert(1);
        assert_eq!(set - MasterSet::only(0), [1, 2, 63].into_iter().collect());
        assert_eq!(set | MasterSet::ALL, MasterSet::ALL);
        set.insert(1);
        assert!(set.contains(1));
        assert_eq!(
            set.and([1, 2, 5].into_iter().collect()),
            [1, 2].into_iter().collect()
        );
        assert!((set - set).is_empty() && !set.is_empty());
        assert!(set.iter().eq([0, 1, 2, 63]));
    }

    #[test]
    fn two_sets_win_together_and_lose_alone() {
        use Outcome::{NoMajority, Pending, Won};
        let disjoint = Quorum::of_sets(&[set(&[0, 1, 2]), set(&[3, 4, 5])]);
        // The first three masters are kept, and two are replaced.
        let shared = Quorum::of_sets(&[set(&[0, 1, 2, 3, 4]), set(&[0, 1, 2, 5, 6])]);
        for (quorum, answers, verdict) in [
            (&disjoint, "yyyy--", Pending), // four of six, but only one of the new masters
            (&disjoint, "yy-yy-", Won),
            (&disjoint, "yyynn-", NoMajority),
            (&disjoint, "nn----", NoMajority),
            (&disjoint, "yynynn", NoMajority),
            (&shared, "yyy----", Won), // those in both sets are enough
            (&shared, "---yyyy", Pending),
            (&shared, "y--yyyy", Won),
            (&shared, "nnn----", NoMajority),
            (&shared, "---nn--", Pending),
            (&shared, "n--nnyy", NoMajority),
        ] {
            assert_eq!(verdict_of(quorum, answers), verdict, "{answers}");
        }
        assert_eq!((disjoint.masters().len(), disjoint.size()), (6, 2));
        assert_eq!((shared.masters().len(), shared.size()), (7, 3));
    }

    fn any_masters() -> impl Strategy<Value = MasterSet> {
        prop::collection::vec(0..12usize, 0..=12).prop_map(|masters| set(&masters))
    }

    fn any_quorum() -> impl Strategy<Value = Quorum> {
        let sets = any_masters().prop_filter("a set has masters", |set| !set.is_empty());
        prop::collection::vec(sets, 1..=3).prop_map(|sets| Quorum::of_sets(&sets))
    }

    proptest! {
        #[test]
        fn one_set_counts_as_a_plain_majority(
            answers in prop::collection::vec(any::<Option<bool>>(), 1..=MasterSet::MOST),
        ) {
            let all = answers.len();
            let quorum = Quorum::of(all);
            let who = |answer| (0..all).filter(|at| answers[*at] == answer).collect::<MasterSet>();
            let count = |answer| answers.iter().filter(|other| **other == answer).count();
            let (yes, no) = (count(Some(true)), count(Some(false)));
            let verdict = if 2 * yes > all {
                Outcome::Won
            } else if 2 * (all - no) > all {
                Outcome::Pending
            } else {
                Outcome::NoMajority
            };
            let found = quorum.verdict([who(Some(true))].into_iter(), who(None));
            prop_assert_eq!(found, verdict);
            let said = who(Some(true));
            prop_assert_eq!(quorum.has_majority_of_every_set(said), 2 * yes > all);
            prop_assert_eq!(quorum.has_majority_of_any_set(said), 2 * yes > all);
            prop_assert_eq!((quorum.masters().len(), quorum.size()), (all, all / 2 + 1));
        }

        #[test]
        fn two_decisions_meet_in_every_set(
            quorum in any_quorum(), one in any_masters(), other in any_masters(),
        ) {
            let is_won = |masters| quorum.has_majority_of_every_set(masters);
            for (one, other) in [(one, other), (one, MasterSet::ALL - one)] {
                let meet = |(set, _): &(MasterSet, _)| !set.and(one).and(other).is_empty();
                prop_assert!(!(is_won(one) && is_won(other)) || quorum.sets.iter().all(meet));
            }
            prop_assert!(!is_won(one) || quorum.has_majority_of_any_set(one));
        }

        #[test]
        fn programs_that_share_a_set_exclude_each_other(
            shared in any_quorum(), ours in any_quorum(), theirs in any_quorum(),
            masters in any_masters(),
        ) {
            let with = |quorum: Quorum| Quorum {
                sets: [&*quorum.sets, &shared.sets].concat().into(),
            };
            let is_won = with(ours).has_majority_of_every_set(masters);
            let is_won_too = with(theirs).has_majority_of_every_set(MasterSet::ALL - masters);
            prop_assert!(!(is_won && is_won_too));
        }

        #[test]
        fn a_value_is_reached_when_the_masters_that_have_it_are_a_majority(
            quorum in any_quorum(), values in prop::collection::vec(any::<Option<u8>>(), 12),
        ) {
            let reached = |at: u8| (0..12).filter(|m| values[*m].is_some_and(|v| v <= at)).collect();
            let every = quorum.least_of_every(|master| values[master]);
            let any = quorum.least_of_any(|master| values[master]);
            for at in 0..=u8::MAX {
                let is_reached = |least: Option<u8>| least.is_some_and(|least| least <= at);
                prop_assert_eq!(quorum.has_majority_of_every_set(reached(at)), is_reached(every));
                prop_assert_eq!(quorum.has_majority_of_any_set(reached(at)), is_reached(any));
            }
        }

        #[test]
        fn one_slot_wins_if_every_set_grants_it_and_none_if_none_can(
            quorum in any_quorum(), order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
            answers in prop::collection::vec(0..=SLOTS, 12),
        ) {
            let (mut yes, mut open) = ([MasterSet::NONE; SLOTS], MasterSet::ALL);
            let mut decided = Outcome::Pending;
            let is_won = |masters| quorum.has_majority_of_every_set(masters);
            for master in order {
                open = open - MasterSet::only(master);
                if let Some(slot) = answers[master].checked_sub(1) {
                    yes[slot].insert(master);
                }
                let verdict = quorum.verdict(yes.into_iter(), open);
                let winners = yes.iter().filter(|yes| is_won(**yes)).count();
                prop_assert_eq!(winners, usize::from(verdict == Outcome::Won));
                let may_win = is_won(open) || yes.iter().any(|yes| is_won(*yes | open));
                prop_assert_eq!(may_win, verdict != Outcome::NoMajority);
                prop_assert!(decided == Outcome::Pending || verdict == decided);
                decided = verdict;
            }
            prop_assert!(decided != Outcome::Pending);
        }
    }

    const SLOTS: usize = 3;
}
