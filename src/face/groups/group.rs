//! A group of masters, and the checks of a list of groups.

use std::collections::BTreeMap;

use crate::{
    core::{config_error::ConfigError, protocol::connection_name::ListsId},
    face::builder::open::Listed,
    master::MasterSpec,
};

/// A group of masters, for [`Groups`](crate::Groups).
///
/// ```
/// use quorlock::Group;
///
/// let group = Group::new("a", ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]);
/// let twice_the_size = Group::new("b", ["redis://10.0.1.1"]).weight(2);
/// # let _ = (group, twice_the_size);
/// ```
///
/// The shared settings have no groups. But a group's masters can take their login and certificates
/// from these settings, and the builder can take all others: see
/// [`SharedSettings::read_files`](crate::SharedSettings::read_files).
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) id: String,
    pub(super) weight: u32,
    masters: Vec<MasterSpec>,
}

impl Group {
    /// The greatest number of groups.
    const MOST: usize = 64;
    const MOST_ID: usize = 64;
    const MOST_WEIGHT: u32 = 16;

    /// Returns a group with the weight 1. The ID is 1 to 64 ASCII letters, digits, dots, hyphens
    /// and underscores.
    ///
    /// **The IDs and the weights decide which names a group has.** All programs must use the same
    /// IDs and weights. The masters of a group may [change](crate::Groups::with_old_groups) while its ID
    /// stays.
    pub fn new(
        id: impl Into<String>,
        masters: impl IntoIterator<Item = impl Into<MasterSpec>>,
    ) -> Self {
        Self {
            id: id.into(),
            weight: 1,
            masters: masters.into_iter().map(Into::into).collect(),
        }
    }

    /// Sets the weight, from 1 to 16. A group of twice the weight has twice the names.
    #[must_use]
    pub fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    /// Checks the groups of one list. Returns an entry for each group. `lists_id` makes an ID from
    /// the entries.
    pub(super) fn check_all(groups: &[Self]) -> Result<Vec<Entry>, ConfigError> {
        if groups.len() > Self::MOST {
            let given = format!("{} groups", groups.len());
            let range = format!("at most {}", Self::MOST);
            return Err(ConfigError::out_of_range("list", given, range));
        }
        let (mut entries, mut owners) = (Vec::new(), BTreeMap::new());
        for (number, group) in groups.iter().enumerate() {
            group.check()?;
            if groups[..number].iter().any(|other| other.id == group.id) {
                let id = group.id.clone();
                return Err(ConfigError::DuplicateGroup { id });
            }
            let (id, listed) = (group.id.clone(), group.listed(None));
            let listed = listed.map_err(|error| ConfigError::of_group(id, error))?;
            for address in &listed.roster.masters {
                if let Some(first) = owners.insert(address.clone(), &group.id) {
                    return Err(ConfigError::SharedMaster {
                        first: first.clone(),
                        second: group.id.clone(),
                        address: address.to_string(),
                    });
                }
            }
            entries.push((group.id.clone(), group.weight, listed.lists_id()));
        }
        Ok(entries)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let is_fit = |letter: u8| letter.is_ascii_alphanumeric() || b".-_".contains(&letter);
        if self.id.is_empty() || self.id.len() > Self::MOST_ID || !self.id.bytes().all(is_fit) {
            return Err(ConfigError::BadGroupId {
                given: self.id.clone(),
                most: Self::MOST_ID,
            });
        }
        if !(1..=Self::MOST_WEIGHT).contains(&self.weight) {
            let range = format!("from 1 to {}", Self::MOST_WEIGHT);
            let error = ConfigError::out_of_range("weight", self.weight, range);
            return Err(ConfigError::of_group(self.id.clone(), error));
        }
        Ok(())
    }

    /// Returns the masters of this group, and the masters of `old` as old masters, for names
    /// that move from `old` to this group.
    pub(super) fn listed(&self, old: Option<&Self>) -> Result<Listed, ConfigError> {
        let old = old.map_or_else(Vec::new, |old| old.masters.clone());
        Listed::parse(self.masters.clone(), old)
    }
}

/// The ID of a group, its weight, and the ID of its masters.
type Entry = (String, u32, ListsId);

/// Returns one ID for two lists: the groups that a program uses, and the old groups.
// The ID is that of both lists, each sorted by the IDs of the groups. A zero byte ends each text.
// This function must never change.
pub(super) fn lists_id(lists: [Vec<Entry>; 2]) -> ListsId {
    let bytes = lists.map(|mut groups| {
        groups.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        if let [(id, weight, _)] = &mut groups[..] {
            (*id, *weight) = (String::new(), 1); // the only group has all names
        }
        let texts = groups.into_iter();
        let texts = texts.flat_map(|(id, weight, list)| [id, weight.to_string(), list.to_string()]);
        let bytes = texts.flat_map(|text| text.into_bytes().into_iter().chain([0]));
        bytes.collect()
    });
    ListsId::of_bytes(bytes, true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const A: &str = "10.0.0.1:6379";
    const B: &str = "10.0.0.2:6379";
    const C: &str = "10.0.0.3:6379";

    #[test]
    fn ids_of_groups_never_change() {
        let group = |(id, weight, master): (&str, _, _)| {
            let list = ListsId::of([master], []);
            (id.to_owned(), weight, list)
        };
        let id = |groups: &[(&'static str, u32, &'static str)], old: &[_]| {
            let lists = [groups, old].map(|groups| groups.iter().copied().map(group).collect());
            lists_id(lists).to_string()
        };
        let (a, b) = (("a", 1, A), ("b", 1, B));
        assert_eq!(id(&[a, b], &[]), "2e984d1f00000000");
        assert_eq!(id(&[a, b], &[b, a]), id(&[b, a], &[]), "nothing changes");
        assert_eq!(id(&[a, b], &[a]), id(&[a, b], &[("all", 2, A)]), "only one");
        let other = [
            id(&[a, b], &[]),
            id(&[a, b], &[a]),
            id(&[a], &[a, b]),
            id(&[a, ("b", 2, B)], &[]),
            id(&[a, ("b", 1, C)], &[]),
            id(&[("b", 1, A), ("a", 1, B)], &[]),
        ];
        assert_eq!(BTreeSet::from(other).len(), 6);
        let lists = |groups: &[_]| lists_id([groups.iter().copied().map(group).collect(), vec![]]);
        assert!(lists(&[a, b]).is_apart_from(lists(&[a])));
        assert!(
            !lists(&[a, b]).is_apart_from(ListsId::of([A], [])),
            "unknown"
        );
    }
}
