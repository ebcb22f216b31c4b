//! The choice of a group for a name, by rendezvous hashing.

use std::cmp::Reverse;

use super::group::Group;
use crate::core::hash::{hash, mix};

/// A choice among groups.
///
/// Each group has as many seeds as its weight. A name belongs to the group whose seed gives the
/// highest score with the name. A group that is added has seeds of its own, so it takes names from
/// all other groups, and no name moves between those groups. This is the rendezvous hashing of
/// Thaler and Ravishankar.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    groups: Vec<(String, Vec<u64>)>,
}

impl Choice {
    pub(crate) fn new(groups: &[Group]) -> Self {
        let groups = groups.iter().map(|Group { id, weight, .. }| {
            let seeds = (0..*weight).map(|number| seed(id, number));
            (id.clone(), seeds.collect())
        });
        Self {
            groups: groups.collect(),
        }
    }

    /// Returns the number of the group that has the name, or 0 if there are no groups. If two
    /// groups have the same score, the group whose ID comes first has the name. The choice does not
    /// depend on the order of the groups. This function must never change, because programs of
    /// several versions and languages share locks.
    pub(crate) fn of(&self, name: &str) -> usize {
        let name = hash(part(name).bytes());
        let groups = self.groups.iter().enumerate();
        let best = groups.max_by_key(|&(_, (id, seeds))| (score(seeds, name), Reverse(id)));
        best.map_or(0, |(number, _)| number)
    }
}

/// Returns seed `number` of the group `id`.
fn seed(id: &str, number: u32) -> u64 {
    let number = number.to_string();
    hash(id.bytes().chain([0]).chain(number.bytes()))
}

fn score(seeds: &[u64], name: u64) -> u64 {
    let scores = seeds.iter().map(|seed| mix(name ^ seed));
    scores.max().unwrap_or_default()
}

/// Returns the part of a name that decides the group: the text in its first braces, as in the hash
/// tags of a Redis Cluster, or else the whole name. So names with the same text in braces are in
/// one group.
fn part(name: &str) -> &str {
    let tag = name
        .split_once('{')
        .and_then(|(_, after)| after.split_once('}'));
    match tag {
        Some((tag, _)) if !tag.is_empty() => tag,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(groups: &[(&str, u32)]) -> Choice {
        let groups = groups.iter();
        let groups = groups.map(|(id, weight)| Group::new(*id, [""; 0]).weight(*weight));
        Choice::new(&groups.collect::<Vec<_>>())
    }

    fn equal(count: usize) -> Choice {
        let ids: Vec<_> = (0..count).map(|number| number.to_string()).collect();
        let groups: Vec<_> = ids.iter().map(|id| (&**id, 1)).collect();
        choice(&groups)
    }

    /// Returns how many of the names each group has.
    fn counts(choice: &Choice, groups: usize, names: usize) -> Vec<usize> {
        let mut counts = vec![0; groups];
        for name in 0..names {
            counts[choice.of(&format!("orders/{name}"))] += 1;
        }
        counts
    }

    /// The test vectors of `lua/README.md`.
    #[test]
    fn the_choice_never_changes() {
        let seeds = ["0", "1", "2"].map(|id| seed(id, 0));
        assert_eq!(
            seeds,
            [
                0x1c09_9aa4_55fd_0ae1,
                0x7e09_4adb_cd42_3425,
                0xf662_e7f0_9c41_6df5
            ]
        );
        let numbers = equal(3);
        let letters = choice(&[("c", 1), ("a", 1), ("b", 1)]);
        for (name, scores, number, letter) in [
            (
                "a",
                [
                    0xc30e_baea_19f7_c2b3,
                    0x78b8_0227_58d5_2119,
                    0x75ca_1255_5298_43f8,
                ],
                0,
                "b",
            ),
            (
                "orders/42",
                [
                    0x45d4_40db_4692_ff08,
                    0xb2fa_7a45_9b49_500c,
                    0x860b_5f93_998b_b145,
                ],
                1,
                "c",
            ),
            (
                "orders/43",
                [
                    0xd858_b298_0812_dda1,
                    0xa651_fc13_6738_93f4,
                    0x04db_bc6b_9c27_8092,
                ],
                0,
                "a",
            ),
            (
                "account/7",
                [
                    0xf67e_c587_bd39_c8f6,
                    0xed31_f986_0a7e_ead8,
                    0x5763_06ec_c524_0f94,
                ],
                0,
                "b",
            ),
            (
                "größe",
                [
                    0xf382_2770_7abc_2493,
                    0xfe9b_a1f9_15e6_86b3,
                    0xaffc_ea71_b2d4_0a4e,
                ],
                1,
                "c",
            ),
            (
                "cart:9",
                [
                    0x15e3_aebb_2e4d_1e3d,
                    0xa9f6_1ac9_0bce_f676,
                    0xc7de_808e_58f9_52f4,
                ],
                2,
                "a",
            ),
            (
                "{cart:9}/items",
                [
                    0x15e3_aebb_2e4d_1e3d,
                    0xa9f6_1ac9_0bce_f676,
                    0xc7de_808e_58f9_52f4,
                ],
                2,
                "a",
            ),
        ] {
            let hashed = hash(part(name).bytes());
            assert_eq!(seeds.map(|seed| mix(hashed ^ seed)), scores, "{name}");
            assert_eq!(numbers.of(name), number, "{name}");
            assert_eq!(letters.groups[letters.of(name)].0, letter, "{name}");
        }
    }

    #[test]
    fn braces_decide_as_in_a_cluster() {
        for (name, expected) in [
            ("a{b}c", "b"),
            ("{b}{c}", "b"),
            ("{{b}}", "{b"),
            ("a{}b{c}", "a{}b{c}"),
            ("a{b", "a{b"),
            ("}a{b}", "b"),
        ] {
            assert_eq!(part(name), expected);
        }
    }

    #[test]
    fn a_group_that_is_added_takes_its_share_and_no_other_name_moves() {
        const NAMES: usize = 30_000;
        for (before, off) in [(2, 0.01), (3, 0.0075), (63, 0.0025)] {
            let (old, new) = (equal(before), equal(before + 1));
            let mut moved = 0;
            for name in 0..NAMES {
                let name = format!("orders/{name}");
                let (was, is) = (old.of(&name), new.of(&name));
                assert!(was == is || is == before, "{name} moved to {is}");
                moved += usize::from(was != is);
            }
            let share = moved as f64 / NAMES as f64;
            let expected = 1.0 / (before as f64 + 1.0);
            assert!((share - expected).abs() < off, "{share}");
        }
    }

    #[test]
    fn names_are_spread_evenly_and_by_weight() {
        let fullest = counts(&equal(64), 64, 30_000).into_iter().max();
        assert!(
            fullest.unwrap() as f64 / (30_000.0 / 64.0) <= 1.15,
            "{fullest:?}"
        );
        let weighted = choice(&[("a", 1), ("b", 2), ("c", 1)]);
        let counts = counts(&weighted, 3, 20_000);
        for (count, expected) in counts.iter().zip([5_000, 10_000, 5_000]) {
            assert!(count.abs_diff(expected) < 300, "{counts:?}");
        }
    }
}
