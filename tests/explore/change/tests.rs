use super::{
    Broken,
    model::{Change, Closes, TWO},
};
use crate::{
    core::{
        kind::LockKind,
        vote::{MasterSet, quorum::Quorum},
    },
    explore::{
        masters::Masters,
        search::{holds, is_caught},
    },
};

fn change<const M: usize, const P: usize>(removed: usize, added: usize) -> Change<M, P> {
    let sets = [0..M - added, removed..M].map(|set| set.collect::<MasterSet>());
    let [old, new] = sets;
    let quorum = |sets: &[MasterSet]| Quorum::of_sets(sets);
    Change {
        masters: Masters::new(LockKind::Mutex),
        sets,
        quorums: [
            quorum(&[old]),
            quorum(&sets),
            quorum(&[new]),
            quorum(&[old | new]),
        ],
        removed,
        added,
        broken: Broken::Not,
        closes: Closes::Nothing,
        forgets: 0,
    }
}

/// 3 masters are replaced by 3 others.
fn all_of_3<const P: usize>() -> Change<6, P> {
    change(3, 3)
}

fn one_of_3<const P: usize>() -> Change<4, P> {
    change(1, 1)
}

fn one_of_5<const P: usize>() -> Change<6, P> {
    change(1, 1)
}

fn all_of_5<const P: usize>() -> Change<10, P> {
    change(5, 5)
}

fn from_3_to_5<const P: usize>() -> Change<5, P> {
    change(0, 2)
}

fn from_5_to_3<const P: usize>() -> Change<5, P> {
    change(2, 0)
}

impl<const M: usize, const P: usize> Change<M, P> {
    fn broken(self, broken: Broken) -> Self {
        Self { broken, ..self }
    }

    fn closes(self, closes: Closes) -> Self {
        Self { closes, ..self }
    }

    fn forgets(self, forgets: u8) -> Self {
        Self { forgets, ..self }
    }

    /// Checks that the search finds two holders after this number of steps.
    fn fails(self, steps: usize) {
        is_caught(&self, TWO, steps);
    }
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn two_processes_never_hold_together() {
    holds(&all_of_3::<2>().forgets(2), 161_648);
    holds(&from_3_to_5::<2>().forgets(2), 141_858);
    holds(&from_5_to_3::<2>().forgets(2), 141_858);
    holds(&one_of_3::<2>().forgets(2), 78_878);
    holds(&one_of_5::<2>().forgets(2), 422_090);
    holds(&all_of_5::<2>().forgets(1), 707_060);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn three_processes_never_hold_together() {
    holds(&all_of_3::<3>(), 383_562);
    holds(&from_3_to_5::<3>(), 359_745);
    holds(&from_5_to_3::<3>(), 359_745);
    holds(&one_of_3::<3>().forgets(1), 803_604);
    holds(&one_of_5::<3>(), 1_050_919);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn barred_processes_may_run_beside_new_ones() {
    let barred = Closes::OldProcesses;
    holds(&all_of_3::<2>().closes(barred).forgets(1), 395_009);
    holds(&from_3_to_5::<2>().closes(barred).forgets(1), 405_606);
    holds(&from_5_to_3::<2>().closes(barred), 309_176);
    holds(&one_of_3::<2>().closes(barred).forgets(1), 267_109);
    holds(&one_of_5::<2>().closes(barred), 685_409);
    holds(&one_of_3::<3>().closes(barred), 1_663_852);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn destroyed_masters_are_replaced_in_one_step() {
    let dead = Closes::Masters;
    holds(&one_of_3::<2>().closes(dead).forgets(1), 71_780);
    holds(&one_of_3::<3>().closes(dead), 440_060);
    holds(&one_of_5::<2>().closes(dead).forgets(1), 329_514);
    holds(&change::<7, 2>(2, 2).closes(dead), 384_648);
}

#[test]
fn one_master_more_or_less_needs_one_step() {
    let straight = Broken::StraightToNew;
    holds(&change::<4, 2>(0, 1).broken(straight).forgets(1), 8_903);
    holds(&change::<4, 2>(1, 0).broken(straight).forgets(1), 8_903);
    holds(&change::<6, 2>(0, 1).broken(straight).forgets(1), 30_225);
    holds(&change::<4, 3>(0, 1).broken(straight), 44_313);
}

#[test]
fn a_majority_of_one_master_more_is_enough() {
    holds(&one_of_3::<2>().broken(Broken::Union), 7_757);
    holds(&one_of_5::<2>().broken(Broken::Union), 30_873);
}

#[test]
fn new_masters_must_not_be_used_at_once() {
    let straight = Broken::StraightToNew;
    all_of_3::<2>().broken(straight).fails(8);
    from_3_to_5::<2>().broken(straight).fails(9);
    from_5_to_3::<2>().broken(straight).fails(9);
    one_of_3::<2>().broken(straight).fails(8);
    one_of_5::<2>().broken(straight).fails(10);
    all_of_5::<2>().broken(straight).fails(10);
}

#[test]
fn wrong_majorities_are_caught() {
    all_of_3::<2>().broken(Broken::Union).fails(10);
    from_3_to_5::<2>().broken(Broken::Union).fails(9);
    all_of_3::<2>().broken(Broken::Either).fails(8);
    one_of_5::<2>().broken(Broken::Either).fails(10);
    let extends = Broken::ExtendsOldSet;
    all_of_3::<2>().broken(extends).fails(13);
    one_of_5::<2>().broken(extends).fails(15);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn wrong_procedures_are_caught() {
    all_of_3::<3>().broken(Broken::OldLives).fails(9);
    one_of_5::<3>().broken(Broken::OldLives).fails(11);
    all_of_3::<2>().broken(Broken::BelievedGone).fails(8);
    one_of_5::<2>().broken(Broken::BelievedGone).fails(10);
    all_of_3::<2>().broken(Broken::OldReturns).fails(8);
    one_of_5::<2>().broken(Broken::OldReturns).fails(10);
    all_of_3::<2>().broken(Broken::SwitchesHeld).fails(9);
    one_of_5::<2>().broken(Broken::SwitchesHeld).fails(11);
}

#[test]
fn masters_that_forget_must_not_vote() {
    let forgets = Broken::NoQuarantine;
    all_of_3::<2>().broken(forgets).forgets(1).fails(9);
    one_of_5::<2>().broken(forgets).forgets(1).fails(11);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn wrong_bars_are_caught() {
    let barred = || all_of_3::<2>().closes(Closes::OldProcesses);
    barred().broken(Broken::NoWait).fails(10);
    barred().broken(Broken::TooFewBars).fails(9);
    barred().broken(Broken::BarsVanish).forgets(1).fails(12);
    let barred = || one_of_5::<2>().closes(Closes::OldProcesses);
    barred().broken(Broken::NoWait).fails(13);
    barred().broken(Broken::TooFewBars).fails(12);
}

#[test]
fn destroyed_masters_must_not_be_replaced_at_once() {
    let dead = one_of_3::<2>().closes(Closes::Masters);
    dead.broken(Broken::NoWait).fails(9);
    let dead = one_of_5::<2>().closes(Closes::Masters);
    dead.broken(Broken::NoWait).fails(11);
}
