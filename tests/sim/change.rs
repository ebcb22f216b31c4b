//! Changes of the masters in a run: every program ends and starts again with other masters.

use std::time::Duration;

use testkit::random::Random;

use super::{
    plan::{Breach, Fault, Plan, Planned},
    setup::Setup,
};
use crate::{Quarantine, core::vote::quorum::majority};

/// The masters that a program has: those before a change, those after it, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lists {
    Both,
    New,
    Old,
}

/// Draws the programs that run in each place, one after the other. All times are in milliseconds.
struct Rollout<'a> {
    random: &'a mut Random,
    faults: Vec<Planned>,
    /// The lists of the program that runs in each place, and the time from which on it runs.
    programs: Vec<(Lists, u64)>,
    /// The time at which the last program without both lists has ended.
    gone: u64,
}

impl Rollout<'_> {
    /// The time of the first restart.
    const BEGIN: u64 = 1_200;
    /// The wait after the last old program has ended: the longest TTL with its drift, and no less
    /// than the tokens need.
    const WAIT: u64 = 3_000;

    fn new(random: &mut Random, places: usize) -> Rollout<'_> {
        Rollout {
            random,
            faults: Vec::new(),
            programs: vec![(Lists::Old, Self::BEGIN); places],
            gone: Self::BEGIN,
        }
    }

    /// Restarts all programs with both lists, some of them several times and some of them with the
    /// lists of `side` again. In the end, all of them have the lists in `last`.
    fn mix(&mut self, begin: u64, side: Lists, last: Lists) {
        let time = 300 + self.random.below(2_500);
        for place in 0..self.programs.len() {
            let mut at = begin + self.random.below(time);
            if side != Lists::Old && self.random.is_one_in(4) {
                at = begin; // at the first moment that is allowed
            }
            for _ in 0..self.random.pick(&[0, 0, 1, 2]) {
                let lists = self.random.pick(&[side, Lists::Both]);
                self.restart(place, begin, at, lists);
                at = self.programs[place].1 + self.random.below(800);
            }
            if self.programs[place].0 != last || self.random.is_one_in(2) {
                self.restart(place, begin, at, last);
            }
        }
    }

    /// Starts the next program at `at` or later, but not before `begin`. The program before it may
    /// end earlier.
    fn restart(&mut self, place: usize, begin: u64, at: u64, lists: Lists) {
        let (had, since) = self.programs[place];
        let at = at.max(since);
        let most = self.random.pick(&[2, 50, 1_000]);
        let early = self.random.pick(&[0, 0, 500]);
        let end = at - self.random.below(early + 1).min(at - since);
        if self.random.is_one_in(3) {
            let most = self.random.pick(&[5, 100, 1_000]);
            let before = self.random.below(most).min(end - since);
            self.add(end - before, 1, Fault::Close(place));
        }
        let start = begin.max(at).max(end + 1) + self.random.below(most);
        let process = place;
        self.add(end, start - end, Fault::Replace(process, lists));
        if had != Lists::Both {
            self.gone = self.gone.max(end);
        }
        self.programs[place] = (lists, start + 1);
    }

    fn add(&mut self, at: u64, lasts: u64, fault: Fault) {
        let (at, lasts) = (Duration::from_millis(at), Duration::from_millis(lasts));
        self.faults.push(Planned { at, lasts, fault });
    }

    /// Follows the rules of a change. Returns the lists that all programs have in the end.
    fn follow_the_rules(&mut self) -> Lists {
        let mut begin = Self::BEGIN;
        // The third phase goes back to the old masters.
        let phases = self.random.pick(&[1, 2, 2, 2, 2, 3]);
        for (phase, side) in [Lists::Old, Lists::New, Lists::Old].into_iter().enumerate() {
            let last = if phase + 1 < phases {
                Lists::Both
            } else {
                self.random.pick(&[side, side, Lists::Both])
            };
            self.mix(begin, side, last);
            begin = self.gone + Self::WAIT;
            if phase + 1 == phases {
                return last;
            }
        }
        Lists::Old
    }

    /// Skips a step of a change.
    fn skip(&mut self, breach: Breach) {
        for place in 0..self.programs.len() {
            let mut at = Self::BEGIN + self.random.below(2_000);
            if breach == Breach::OldProgram && place == 0 {
                continue; // it lives on
            }
            if breach == Breach::OldProgram {
                self.restart(place, at, at, Lists::Both);
                at += 300;
            }
            self.restart(place, at, at, Lists::New);
        }
    }

    fn end(&self) -> u64 {
        let ends = self.programs.iter().map(|(_, since)| *since);
        ends.max().unwrap_or(0)
    }
}

impl Plan {
    /// Changes the masters in some runs. Uses random numbers of its own, so that the other faults
    /// of a seed stay the same, and no other run changes.
    pub(super) fn draw_change(&mut self) {
        let random = &mut Random::new(self.seed ^ 0x6368_616e_6765);
        if !self.is_within() || !random.is_one_in(4) {
            return;
        }
        let new = self.draw_new_list(random);
        self.change_to(new, random);
    }

    /// Lets the programs change to the masters in `new`.
    pub(super) fn change_to(&mut self, new: Setup, random: &mut Random) {
        let is_calm = self.is_calm();
        self.new = Some(new);
        let mut rollout = Rollout::new(random, self.places);
        let last = rollout.follow_the_rules();
        self.roll_out(rollout.end(), rollout.faults, random);
        self.spread_faults(is_calm, last, random);
        self.limit_clock_steps();
    }

    /// Spreads the faults over all masters. In the end, all programs have the masters in `last`.
    pub(super) fn spread_faults(&mut self, is_calm: bool, last: Lists, random: &mut Random) {
        if !is_calm {
            self.repeat_faults(random);
            self.draw_splits(random);
        }
        if !self.lasting.is_empty() {
            self.lasting.clear();
            let lists = self.all_lists(last);
            let (mut list, mut near) = (lists[lists.len() - 1], lists.clone());
            if self.has_groups() {
                list = random.pick(&lists);
                near.retain(|other| other.iter().any(|master| list.contains(master)));
            }
            let (list, sick) = (list.to_vec(), near.iter().map(|list| (list.len() - 1) / 2));
            let sick = sick.min().unwrap_or(0);
            self.draw_lasting(random, &list, sick);
        }
        // A program that starts, or that opens a coordinator late, does not know which masters lost
        // locks.
        let loses = self.faults.iter().any(|planned| planned.fault.loses());
        if loses && self.new.is_some() {
            self.quarantine = Quarantine::Strict;
        }
        self.faults.sort_by_key(|planned| planned.at);
    }

    /// Draws a change that skips a step.
    pub(super) fn draw_wrong_change(&mut self, breach: Breach, random: &mut Random) {
        self.new = Some(self.draw_new_list(random));
        let mut rollout = Rollout::new(random, self.places);
        rollout.skip(breach);
        self.roll_out(rollout.end(), rollout.faults, random);
    }

    fn roll_out(&mut self, end: u64, restarts: Vec<Planned>, random: &mut Random) {
        let end = Duration::from_millis(end + 300 + random.below(1_500));
        self.faults_end = self.faults_end.max(end);
        self.faults.extend(restarts);
    }

    /// Draws a change from one list to another. Returns the new one.
    fn draw_new_list(&mut self, random: &mut Random) -> Setup {
        let masters: Vec<_> = (0..self.masters).collect();
        let [old, new] = self.draw_lists(&masters, random);
        self.old = Setup::list(old);
        Setup::list(new)
    }

    /// Draws the masters of two lists: `masters` and others. The old list is as long as `masters`.
    pub(super) fn draw_lists(&mut self, masters: &[usize], random: &mut Random) -> [Vec<usize>; 2] {
        let (old, new) = (masters.len(), random.pick(&[1, 3, 3, 3, 4, 5, 5]));
        let least = old.min(new);
        let some = random.index(least + 1);
        let mut kept = random.pick(&[0, least - 1, least, some]);
        if kept == old && kept == new {
            kept -= 1;
        }
        let mut numbers = masters.to_vec();
        numbers.extend(self.add_masters(new - kept, random));
        let mut order = || numbers.swap_remove(random.index(numbers.len()));
        let order: Vec<_> = (0..old + new - kept).map(|_| order()).collect();
        [order[..old].to_vec(), order[old - kept..].to_vec()]
    }

    /// Adds masters. Returns their numbers.
    pub(super) fn add_masters(&mut self, count: usize, random: &mut Random) -> Vec<usize> {
        let first = self.masters;
        for _ in 0..count {
            self.server_ppm.push(random.below(9_000) as i64 - 4_500);
            self.server_offsets.push(0);
            self.reports_changes.push(!random.is_one_in(8));
        }
        self.masters += count;
        (first..self.masters).collect()
    }

    /// Repeats some of the faults later, also on the masters that only a change needs.
    fn repeat_faults(&mut self, random: &mut Random) {
        let (begin, end) = (1_200, self.faults_end.as_millis() as u64);
        for mut planned in self.faults.clone() {
            let is_restart = matches!(planned.fault, Fault::Close(_) | Fault::Replace(..));
            if is_restart || random.is_one_in(2) {
                continue;
            }
            let to = random.index(self.masters);
            if let Some(master) = planned.fault.master_mut() {
                *master = to;
            }
            // A master that reports no changes does not report a demotion either.
            let demotes = matches!(planned.fault, Fault::Demote(_));
            if demotes && !self.reports_changes[to] {
                continue;
            }
            planned.at = Duration::from_millis(begin + random.below(end - begin));
            self.faults.push(planned);
        }
    }

    /// Keeps some programs from a majority of one list for a while. Meanwhile, another program
    /// starts with that list. Most of these programs have both lists.
    fn draw_splits(&mut self, random: &mut Random) {
        let starts = self
            .faults
            .iter()
            .filter_map(|planned| match planned.fault {
                Fault::Replace(process, lists) => {
                    Some((planned.at + planned.lasts, process, lists))
                }
                _ => None,
            });
        let starts: Vec<_> = starts.collect();
        if starts.is_empty() {
            return;
        }
        for _ in 0..random.pick(&[0, 0, 1, 2, 4]) {
            let (start, place, lists) = random.pick(&starts);
            let list = match self.all_lists(lists)[..] {
                [list] => list.to_vec(),
                ref several => random.pick(several).to_vec(),
            };
            let process = (place + 1 + random.index(self.places - 1)) % self.places;
            let before = Duration::from_millis(random.below(500));
            let lasts = before + Duration::from_millis(500 + random.below(3_000));
            let way = random.below(3);
            for master in &list[..majority(list.len())] {
                let fault = Fault::Partition(process, *master, [way != 0, way != 1]);
                let at = start - before;
                self.faults.push(Planned { at, lasts, fault });
            }
        }
    }

    /// Removes steps of clocks: tokens of old and of new masters are in order only if the clocks of
    /// all these masters are right to half a second.
    fn limit_clock_steps(&mut self) {
        const MOST: i64 = 400;
        let mut sums = vec![0; self.masters];
        self.faults.retain(|planned| match planned.fault {
            Fault::StepClock(master, millis) => {
                sums[master] += millis;
                sums[master] >= -MOST
            }
            _ => true,
        });
    }
}

impl Fault {
    pub(super) fn master(mut self) -> Option<usize> {
        self.master_mut().copied()
    }

    fn master_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Cut(_, master)
            | Self::Demote(master)
            | Self::Dribble(master)
            | Self::ErrorReply(master)
            | Self::Evict(master)
            | Self::Far(master, _)
            | Self::Flood(master)
            | Self::Forget(master)
            | Self::Partition(_, master, _)
            | Self::Restart(master, _)
            | Self::Share(master)
            | Self::Silence(master)
            | Self::Slow(master, _)
            | Self::Snapshot(master)
            | Self::StepClock(master, _) => Some(master),
            Self::Close(_)
            | Self::Crash(_)
            | Self::Pause(_)
            | Self::Replace(..)
            | Self::StepWall(..)
            | Self::Suspend(_) => None,
        }
    }
}
