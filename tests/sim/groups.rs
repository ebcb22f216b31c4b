//! Groups of masters in a run, and the names in them.

use std::collections::BTreeSet;

use testkit::random::Random;

use super::{
    change::Lists,
    plan::{LockPlan, Plan},
    setup::{GroupPlan, Setup},
};

/// The names in runs with groups. Those with the same part in braces are in one group.
const NAMES: [&str; 40] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
    "t", "u", "v", "w", "x", "y", "z", "a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "{a}1",
    "{b}1", "{c}1", "{a}2", "{b}2", "{c}2",
];

impl Plan {
    /// Gives the programs of some runs groups of masters, and changes the groups in most of these
    /// runs. Uses random numbers of its own, so that no other run changes. Returns whether there
    /// are groups.
    pub(super) fn draw_groups(&mut self) -> bool {
        let random = &mut Random::new(self.seed ^ 0x6772_6f75_7073);
        if !self.is_within() || !random.is_one_in(3) {
            return false;
        }
        self.old = self.draw_setup(random);
        let change = random.pick(&[None, Some(0), Some(1), Some(2), Some(3), Some(4)]);
        let Some(kind) = change else {
            self.draw_names(random);
            self.spread_faults(self.is_calm(), Lists::Old, random);
            return true;
        };
        let new = self.draw_new_setup(kind, random);
        self.change_to(new, random);
        self.draw_names(random);
        true
    }

    /// Draws two or three groups. The first one has the masters of a run without groups.
    fn draw_setup(&mut self, random: &mut Random) -> Setup {
        let mut groups = Vec::new();
        for id in ["a", "b", "c"].into_iter().take(random.pick(&[2, 2, 3])) {
            let masters = match groups.is_empty() {
                true => (0..self.masters).collect(),
                false => self.add_masters(random.pick(&[1, 2, 3, 3, 3]), random),
            };
            let weight = random.pick(&[1, 1, 1, 2]);
            groups.push(GroupPlan {
                id,
                weight,
                masters,
            });
        }
        Setup {
            has_groups: true,
            groups,
        }
    }

    /// Draws the masters after a change. Half of the changes go the other way.
    fn draw_new_setup(&mut self, kind: usize, random: &mut Random) -> Setup {
        let mut new = self.old.clone();
        let at = random.index(new.groups.len());
        match kind {
            0 => new.groups.push(self.draw_group("d", random)),
            // The masters of a group stay, and its ID changes, or both change.
            1 if random.is_one_in(2) => new.groups[at].id = "d",
            1 => new.groups[at] = self.draw_group("d", random),
            2 => new.groups[at].weight += 1 + random.below(3) as u32,
            3 => {
                let masters = self.old.groups[at].masters.clone();
                let [before, after] = self.draw_lists(&masters, random);
                (self.old.groups[at].masters, new.groups[at].masters) = (before, after);
            }
            _ => {
                new = Setup::list(match random.index(3) {
                    0 => new.groups.swap_remove(at).masters,
                    1 => self.add_masters(3, random),
                    _ => new.groups.iter().map(|group| group.masters[0]).collect(),
                });
                new.groups[0].id = random.pick(&["a", "all"]);
            }
        }
        if random.is_one_in(2) {
            std::mem::swap(&mut new, &mut self.old);
        }
        new
    }

    fn draw_group(&mut self, id: &'static str, random: &mut Random) -> GroupPlan {
        GroupPlan {
            id,
            weight: random.pick(&[1, 1, 2]),
            masters: self.add_masters(random.pick(&[1, 3, 3]), random),
        }
    }

    /// Gives the locks names of all groups. If groups change, one of the names moves.
    fn draw_names(&mut self, random: &mut Random) {
        let groups_of = |name: &str| {
            let new = self.new.as_ref().unwrap_or(&self.old);
            [&self.old, new].map(|setup| setup.group_of(name))
        };
        let moves = |name: &str| {
            let new = self.new.as_ref().unwrap_or(&self.old);
            let [from, to] = groups_of(name);
            self.old.groups[from].id != new.groups[to].id
        };
        let mut rest = NAMES.to_vec();
        let mut names: Vec<_> = (0..rest.len())
            .map(|_| rest.swap_remove(random.index(rest.len())))
            .collect();
        names.sort_by_key(|name| !moves(name));
        let mut seen = BTreeSet::new();
        let mut is_needed = |name: &&str| {
            let [from, to] = groups_of(name);
            seen.insert((Lists::Old, from)) | seen.insert((Lists::New, to))
        };
        let (mut chosen, mut rest): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| is_needed(name));
        while chosen.len() < self.locks.len() {
            chosen.push(rest.swap_remove(random.index(rest.len())));
        }
        let groups: Vec<_> = chosen.iter().map(|name| groups_of(name)).collect();
        for (number, (name, groups)) in chosen.into_iter().zip(groups).enumerate() {
            if number == self.locks.len() {
                self.locks.push(match self.has_sets {
                    true => LockPlan::draw_mutex(name, random),
                    false => LockPlan::draw(name, random),
                });
            }
            (self.locks[number].name, self.locks[number].groups) = (name, groups);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::plan::Model, *};

    #[test]
    fn every_group_has_a_name_and_some_names_move() {
        let mut moving = 0;
        let plans = (0..3_000).map(|seed| Plan::draw(seed, Model::Within));
        for plan in plans.filter(Plan::has_groups) {
            let new = plan.new.as_ref().unwrap_or(&plan.old);
            for (setup, side) in [(&plan.old, 0), (new, 1)] {
                let used: BTreeSet<_> = plan.locks.iter().map(|lock| lock.groups[side]).collect();
                assert_eq!(used.len(), setup.groups.len(), "{plan:#?}");
            }
            let moves = |lock: &LockPlan| {
                let [from, to] = lock.groups;
                plan.old.groups[from].id != new.groups[to].id
            };
            moving += u32::from(plan.locks.iter().any(moves));
        }
        assert!(moving > 400, "{moving}");
    }
}
