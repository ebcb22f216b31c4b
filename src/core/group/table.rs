//! The groups of a coordinator, and those that it leaves.

use std::sync::Arc;

use super::choice::{Choice, GroupId};

/// A group, and the group that it takes names from. Both are the same group if its names stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The number of the group.
    pub(crate) group: usize,
    /// The number of the old group. `None` if no groups are left.
    pub(crate) old: Option<usize>,
    /// `a`, or `a->b` for names that move from `a` to `b`.
    pub(crate) id: Arc<str>,
}

/// Says for each name which group has it, and which old group had it.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    groups: Choice,
    /// For each group, the old groups that its names may come from, and the number of the first
    /// pair.
    sources: Vec<(Choice, usize)>,
    pub(crate) pairs: Vec<Pair>,
}

impl Table {
    /// Returns the table for `groups`. If other groups were used before, they are in `leaving`.
    ///
    /// A name moves only to a group that is new or has more weight, or from one that is gone or has
    /// less. Only such pairs are in the table.
    pub(crate) fn new(groups: &[GroupId], leaving: &[GroupId]) -> Self {
        let weight = |among: &[GroupId], id: &GroupId| {
            let same = among.iter().find(|other| other.id == id.id);
            same.map_or(0, |same| same.weight)
        };
        let mut pairs = Vec::new();
        let mut sources = Vec::new();
        for (group, new) in groups.iter().enumerate() {
            let grows = new.weight > weight(leaving, new);
            let may_come_from = |(_, old): &(usize, &GroupId)| {
                old.id == new.id || grows || old.weight > weight(groups, old)
            };
            let from: Vec<_> = leaving.iter().enumerate().filter(may_come_from).collect();
            sources.push((Choice::new(from.iter().map(|(_, old)| *old)), pairs.len()));
            if from.is_empty() {
                pairs.push(Pair {
                    group,
                    old: None,
                    id: new.id.clone(),
                });
            }
            pairs.extend(from.into_iter().map(|(number, old)| Pair {
                group,
                old: Some(number),
                id: match old.id == new.id {
                    true => new.id.clone(),
                    false => format!("{}->{}", old.id, new.id).into(),
                },
            }));
        }
        Self {
            groups: Choice::new(groups),
            sources,
            pairs,
        }
    }

    /// Returns the number of the pair for a name.
    pub(crate) fn of(&self, name: &str) -> usize {
        if self.pairs.len() < 2 {
            return 0;
        }
        let (old, first) = &self.sources[self.groups.of(name)];
        // Among the old groups that may be the source, the choice is the same as among all.
        first + old.of(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(groups: &[(&str, u8)]) -> Vec<GroupId> {
        let groups = groups.iter();
        groups
            .map(|(id, weight)| GroupId::new(id, *weight))
            .collect()
    }

    #[test]
    fn each_name_is_in_the_pair_of_its_old_and_its_new_group() {
        for (new, old, pairs) in [
            (&[("a", 1)][..], &[][..], &["a"][..]),
            (&[("a", 1), ("b", 2)], &[], &["a", "b"]),
            (&[("a", 1), ("b", 1)], &[("b", 1), ("a", 1)], &["a", "b"]),
            (
                &[("a", 1), ("b", 1), ("c", 1)],
                &[("a", 1), ("b", 1)],
                &["a", "b", "a->c", "b->c"],
            ),
            (&[("a", 1)], &[("a", 1), ("b", 1)], &["a", "b->a"]),
            (
                &[("a", 1), ("b", 3)],
                &[("a", 1), ("b", 1)],
                &["a", "a->b", "b"],
            ),
            (
                &[("a", 1), ("b", 1), ("c", 1)],
                &[("all", 1)],
                &["all->a", "all->b", "all->c"],
            ),
            (
                &[("a", 1), ("c", 1)],
                &[("a", 1), ("b", 1)],
                &["a", "b->a", "a->c", "b->c"],
            ),
        ] {
            let (new, old) = (groups(new), groups(old));
            let table = Table::new(&new, &old);
            let ids: Vec<_> = table.pairs.iter().map(|pair| &*pair.id).collect();
            assert_eq!(ids, pairs);
            let (choice, old_choice) = (Choice::new(&new), Choice::new(&old));
            for name in 0..2_000 {
                let name = format!("orders/{name}");
                let pair = &table.pairs[table.of(&name)];
                assert_eq!(pair.group, choice.of(&name), "{name}");
                assert_eq!(
                    pair.old,
                    (!old.is_empty()).then(|| old_choice.of(&name)),
                    "{name}"
                );
            }
        }
    }
}
