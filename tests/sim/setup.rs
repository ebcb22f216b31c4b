//! The masters of a program: one list, or groups.

use super::{
    change::Lists,
    plan::{LockPlan, Plan},
};
use crate::{Builder, Group, Groups, MasterSpec, face::groups::choice::Choice};

/// The masters of a program before or after a change.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// Whether the program gives groups, and not one list.
    pub(super) has_groups: bool,
    /// A list is one group. It has an ID for programs that go from the list to groups, or back.
    pub(super) groups: Vec<GroupPlan>,
}

#[derive(Clone, Debug)]
pub(super) struct GroupPlan {
    pub(super) id: &'static str,
    pub(super) weight: u32,
    /// The numbers of the masters.
    pub(super) masters: Vec<usize>,
}

impl Setup {
    pub(super) fn list(masters: Vec<usize>) -> Self {
        Self {
            has_groups: false,
            groups: vec![GroupPlan {
                id: "all",
                weight: 1,
                masters,
            }],
        }
    }

    /// Returns the number of the group that has the name.
    pub(super) fn group_of(&self, name: &str) -> usize {
        let groups = self.groups.iter();
        let groups = groups.map(|group| Group::new(group.id, [""; 0]).weight(group.weight));
        Choice::new(&groups.collect::<Vec<_>>()).of(name)
    }

    /// Returns the groups for a program. Each place gives them in another order.
    fn given(&self, place: usize, endpoint: &impl Fn(usize) -> MasterSpec) -> Vec<Group> {
        let (count, groups) = (self.groups.len(), self.groups.iter().cycle());
        let groups = groups.skip(place % count).take(count);
        let groups = groups.map(
            |GroupPlan {
                 id,
                 masters,
                 weight,
             }| {
                let masters = masters.iter().copied().map(endpoint);
                Group::new(*id, masters).weight(*weight)
            },
        );
        groups.collect()
    }
}

/// Returns the groups of a program with the masters of one setup, or of two during a change. A list
/// is one group: its coordinator is as without groups.
pub(super) fn open(
    settings: Builder,
    setups: &[&Setup],
    place: usize,
    endpoint: impl Fn(usize) -> MasterSpec,
) -> Groups {
    let mut setups = setups.to_vec();
    if place.is_multiple_of(2) {
        setups.reverse(); // in the other places, the change goes the other way
    }
    let mut groups = setups.iter().map(|setup| setup.given(place, &endpoint));
    let (groups, old) = (groups.next(), groups.next());
    let opened = Groups::with_old_groups(
        settings,
        groups.unwrap_or_default(),
        old.unwrap_or_default(),
    );
    opened.expect("the plan's settings are valid")
}

impl Plan {
    /// Returns what a program has: the old masters, the new ones, or first the old and then the
    /// new.
    pub(super) fn setups(&self, lists: Lists) -> Vec<&Setup> {
        match (&self.new, lists) {
            (None, _) | (_, Lists::Old) => vec![&self.old],
            (Some(new), Lists::Both) => vec![&self.old, new],
            (Some(new), Lists::New) => vec![new],
        }
    }

    /// Returns the lists of masters that decide about a lock. A decision needs a majority of each.
    pub(super) fn lists_of(&self, lists: Lists, lock: &LockPlan) -> Vec<&[usize]> {
        let setups = self.setups(lists).into_iter();
        let groups = match lists {
            Lists::New if self.new.is_some() => &lock.groups[1..],
            _ => &lock.groups[..],
        };
        let lists = setups.zip(groups);
        let lists = lists.map(|(setup, group)| &*setup.groups[*group].masters);
        lists.collect()
    }

    /// Returns the lists of masters of all groups of a program.
    pub(super) fn all_lists(&self, lists: Lists) -> Vec<&[usize]> {
        let groups = self
            .setups(lists)
            .into_iter()
            .flat_map(|setup| &setup.groups);
        groups.map(|group| &*group.masters).collect()
    }

    /// Returns whether a program gives groups, before or after a change.
    pub(super) fn has_groups(&self) -> bool {
        let mut setups = self.setups(Lists::Both).into_iter();
        setups.any(|setup| setup.has_groups)
    }
}
