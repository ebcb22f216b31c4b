//! The groups in the settings of a coordinator.

use std::collections::BTreeMap;

use super::listed::Listed;
use crate::{
    core::{
        group::{
            choice::{Choice, GroupId},
            table::{Pair, Table},
        },
        vote::lists_id::ListsId,
    },
    face::{error::ConfigError, group::Group},
    master::MasterSpec,
};

/// The masters of each pair of groups. A coordinator without groups has one pair.
pub(super) struct ListedGroups {
    pub(super) table: Table,
    pub(super) lists: Vec<Listed>,
    pub(super) lists_id: ListsId,
}

impl ListedGroups {
    /// The greatest number of groups.
    const MOST: usize = 64;
    /// The greatest number of pairs of groups. Each pair has connections of its own.
    const MOST_PAIRS: usize = 256;
    const MOST_ID: usize = 64;

    /// Returns the masters of a coordinator without groups.
    pub(super) fn only(listed: Listed) -> Self {
        Self {
            table: Table::new(&[GroupId::only()], &[]),
            lists_id: listed.lists_id(),
            lists: vec![listed],
        }
    }

    /// Checks the groups and their masters.
    pub(super) fn parse(groups: &[Group], leaving: &[Group]) -> Result<Self, ConfigError> {
        if groups.is_empty() {
            return Err(ConfigError::NoMasters);
        }
        let (new, new_lists) = check(groups)?;
        let (old, old_lists) = check(leaving)?;
        let table = Table::new(&new, &old);
        let given = table.pairs.len();
        if given > Self::MOST_PAIRS {
            return Err(ConfigError::TooManyGroups {
                what: "pairs of groups between which names move",
                given,
                most: Self::MOST_PAIRS,
            });
        }
        let lists = table.pairs.iter().map(|pair| {
            let (new, old) = (&groups[pair.group].masters, old_masters(pair, leaving));
            let listed = Listed::parse(Some(&pair.id), new.clone(), old);
            listed.map_err(|error| in_group(&pair.id, error))
        });
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        let lists_id = match &lists[..] {
            [only] => only.lists_id(), // as without groups
            _ => {
                let lists = [(new, new_lists), (old, old_lists)];
                ListsId::of_groups(lists.map(|(ids, lists)| ids.into_iter().zip(lists).collect()))
            }
        };
        Ok(Self {
            table,
            lists,
            lists_id,
        })
    }
}

/// Returns the masters that names of this pair leave.
fn old_masters(pair: &Pair, leaving: &[Group]) -> Vec<MasterSpec> {
    mutant!(IgnoresOldGroup => return Vec::new());
    let old = pair.old.map(|old| leaving[old].masters.clone());
    old.unwrap_or_default()
}

/// Checks the groups of one list. Returns their IDs, and the IDs of their lists of masters.
fn check(groups: &[Group]) -> Result<(Vec<GroupId>, Vec<ListsId>), ConfigError> {
    let (given, most) = (groups.len(), ListedGroups::MOST);
    if given > most {
        return Err(ConfigError::TooManyGroups {
            what: "groups",
            given,
            most,
        });
    }
    let mut owners = BTreeMap::new();
    let (mut ids, mut lists) = (Vec::<GroupId>::new(), Vec::new());
    for group in groups {
        let id = check_id(group)?;
        if ids.iter().any(|other| other.id == id.id) {
            return Err(ConfigError::DuplicateGroup {
                group: group.id.clone(),
            });
        }
        let listed = Listed::parse(None, group.masters.clone(), Vec::new());
        let listed = listed.map_err(|error| in_group(&group.id, error))?;
        for address in &listed.roster.masters {
            if let Some(first) = owners.insert(address.clone(), &group.id) {
                return Err(ConfigError::GroupsShareMaster {
                    first: first.clone(),
                    second: group.id.clone(),
                    address: address.to_string(),
                });
            }
        }
        ids.push(id);
        lists.push(listed.lists_id());
    }
    Ok((ids, lists))
}

fn check_id(group: &Group) -> Result<GroupId, ConfigError> {
    let Group { id, weight, .. } = group;
    let is_fit = |letter: u8| letter.is_ascii_alphanumeric() || b".-_".contains(&letter);
    if id.is_empty() || id.len() > ListedGroups::MOST_ID || !id.bytes().all(is_fit) {
        return Err(ConfigError::GroupId {
            given: id.clone(),
            most: ListedGroups::MOST_ID,
        });
    }
    let most = Choice::MOST_WEIGHT;
    let fit = u8::try_from(*weight)
        .ok()
        .filter(|fit| (1..=most).contains(fit));
    let weight = fit.ok_or_else(|| {
        let (given, most) = (*weight, most.into());
        in_group(id, ConfigError::GroupWeight { given, most })
    })?;
    Ok(GroupId::new(id, weight))
}

fn in_group(id: &str, error: ConfigError) -> ConfigError {
    ConfigError::Group {
        group: id.to_owned(),
        error: Box::new(error),
    }
}
