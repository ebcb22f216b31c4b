use super::{
    Broken,
    model::{Change, Closes, TWO},
    state::{Config, Phase, State},
    steps::Step,
};
use crate::{
    core::{
        kind::Kind,
        vote::{MasterSet, quorum::Quorum},
    },
    explore::{
        masters::Masters,
        search::{Model, explore, holds, is_caught},
    },
};

fn change<const M: usize, const P: usize>(removed: usize, added: usize) -> Change<M, P> {
    let sets = [0..M - added, removed..M].map(|set| set.collect::<MasterSet>());
    let [old, new] = sets;
    let quorum = |sets: &[MasterSet]| Quorum::of_sets(sets);
    Change {
        masters: Masters::new(Kind::Mutex),
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

    /// Checks that the search finds two holders after `steps` steps and `states` states.
    fn fails(self, states: usize, steps: usize) {
        let flaw = explore(&self).expect_err("two hold");
        println!("{}\n{} states", flaw.trace, flaw.states);
        assert_eq!((flaw.what, flaw.states, flaw.steps), (TWO, states, steps));
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
    all_of_3::<2>().broken(straight).fails(1_038, 8);
    from_3_to_5::<2>().broken(straight).fails(3_934, 9);
    from_5_to_3::<2>().broken(straight).fails(4_413, 9);
    one_of_3::<2>().broken(straight).fails(2_172, 8);
    one_of_5::<2>().broken(straight).fails(7_846, 10);
    all_of_5::<2>().broken(straight).fails(2_776, 10);
}

#[test]
fn wrong_majorities_are_caught() {
    all_of_3::<2>().broken(Broken::Union).fails(9_681, 10);
    from_3_to_5::<2>().broken(Broken::Union).fails(9_662, 9);
    all_of_3::<2>().broken(Broken::Either).fails(5_209, 8);
    one_of_5::<2>().broken(Broken::Either).fails(24_241, 10);
    let extends = Broken::ExtendsOldSet;
    all_of_3::<2>().broken(extends).fails(14_954, 13);
    one_of_5::<2>().broken(extends).fails(34_921, 15);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn wrong_procedures_are_caught() {
    all_of_3::<3>().broken(Broken::OldLives).fails(75_904, 9);
    one_of_5::<3>().broken(Broken::OldLives).fails(600_780, 11);
    all_of_3::<2>().broken(Broken::BelievedGone).fails(5_402, 8);
    one_of_5::<2>()
        .broken(Broken::BelievedGone)
        .fails(27_145, 10);
    all_of_3::<2>().broken(Broken::OldReturns).fails(7_047, 8);
    one_of_5::<2>().broken(Broken::OldReturns).fails(28_638, 10);
    all_of_3::<2>()
        .broken(Broken::SwitchesHeld)
        .fails(10_047, 9);
    one_of_5::<2>()
        .broken(Broken::SwitchesHeld)
        .fails(39_742, 11);
}

#[test]
fn masters_that_forget_must_not_vote() {
    let forgets = Broken::NoQuarantine;
    all_of_3::<2>().broken(forgets).forgets(1).fails(17_248, 9);
    one_of_5::<2>()
        .broken(forgets)
        .forgets(1)
        .fails(103_317, 11);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn wrong_bars_are_caught() {
    let barred = || all_of_3::<2>().closes(Closes::OldProcesses);
    barred().broken(Broken::NoWait).fails(36_366, 10);
    barred().broken(Broken::TooFewBars).fails(24_159, 9);
    barred()
        .broken(Broken::BarsVanish)
        .forgets(1)
        .fails(226_983, 12);
    let barred = || one_of_5::<2>().closes(Closes::OldProcesses);
    barred().broken(Broken::NoWait).fails(515_753, 13);
    barred().broken(Broken::TooFewBars).fails(419_631, 12);
}

#[test]
fn destroyed_masters_must_not_be_replaced_at_once() {
    let dead = one_of_3::<2>().closes(Closes::Masters);
    dead.broken(Broken::NoWait).fails(14_671, 9);
    let dead = one_of_5::<2>().closes(Closes::Masters);
    dead.broken(Broken::NoWait).fails(53_948, 11);
}

/// Looks for the end of a change, so that searches do not hold because nothing happens.
struct End(Change<6, 3>);

impl Model for End {
    type State = State<6, 3>;
    type Step = Step;

    fn starts(&self) -> Vec<Self::State> {
        self.0.starts()
    }

    fn steps(&self, state: &Self::State, visit: &mut dyn FnMut(Step, Self::State)) {
        self.0.steps(state, visit);
    }

    fn flaw(&self, state: &Self::State) -> Option<&'static str> {
        let is = |process: usize, config, phase| {
            let now = state.processes[process];
            (now.config, now.phase) == (config, phase)
        };
        let is_over = is(0, Config::Old, Phase::Ended)
            && is(1, Config::Joint, Phase::Left)
            && is(2, Config::New, Phase::Held);
        is_over.then_some("a new process holds")
    }
}

#[test]
fn a_change_comes_to_its_end() {
    is_caught(&End(all_of_3()), "a new process holds", 9);
    is_caught(&End(one_of_5()), "a new process holds", 10);
}
