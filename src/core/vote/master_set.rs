//! Sets of masters.

use std::{
    iter::successors,
    ops::{BitOr, BitOrAssign, Sub},
};

/// A set of masters, by their numbers from 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MasterSet(u64);

impl MasterSet {
    /// The most masters that a set can hold.
    pub(crate) const MOST: usize = u64::BITS as usize;
    pub(crate) const NONE: Self = Self(0);
    /// All masters, for any number of masters.
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn only(master: usize) -> Self {
        Self(1 << master)
    }

    pub(crate) fn contains(self, master: usize) -> bool {
        self.0 >> master & 1 == 1
    }

    pub(crate) fn insert(&mut self, master: usize) {
        *self |= Self::only(master);
    }

    /// Returns the masters that are in both sets.
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
        let left = successors(Some(self), |left| {
            Some(Self(left.0 & left.0.wrapping_sub(1)))
        });
        left.take_while(|left| !left.is_empty())
            .map(|left| left.0.trailing_zeros() as usize)
    }
}

impl BitOr for MasterSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for MasterSet {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// The members of the first set that are not in the second.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
