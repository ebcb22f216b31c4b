use std::ops::Range;

use super::{
    model::{Ballots, SAME, SMALLER, Time},
    *,
};
use crate::{
    core::kind::LockKind,
    explore::{
        masters::Masters,
        search::{holds, is_caught},
    },
};

/// Counters that failed attempts may leave.
const STARTS: [[u32; 3]; 3] = [[0, 0, 0], [0, 0, 4], [0, 4, 4]];

impl<const A: usize, const M: usize> Ballots<A, M> {
    fn broken(self, broken: Broken) -> Self {
        Self { broken, ..self }
    }

    /// Lets masters run other scripts.
    fn edited(self, edits: &[Edit]) -> Self {
        Self {
            masters: Masters::edited(LockKind::Mutex, edits),
            ..self
        }
    }

    /// Lets each attempt try only one candidate.
    fn once(self) -> Self {
        Self { rounds: 1, ..self }
    }
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn two_attempts_have_different_tokens() {
    holds(&Ballots::<2>::new(&STARTS, None), 446_988);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn two_attempts_of_one_owner_have_different_tokens() {
    let attempts = Ballots::<2> {
        masters: Masters::new(LockKind::Reentrant),
        is_one_owner: true,
        ..Ballots::new(&STARTS, None)
    };
    holds(&attempts, 328_629);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn three_attempts_have_different_tokens() {
    holds(&Ballots::<3>::new(&STARTS[..1], None).once(), 740_530);
}

#[test]
fn wrong_rules_are_caught() {
    let two = || Ballots::<2>::new(&STARTS, None);
    is_caught(&two().edited(EQUAL_WINS), SAME, 6);
    is_caught(&two().edited(ACCEPTED_FADES), SAME, 7);
    is_caught(&two().broken(Broken::KeepsGrants), SAME, 8);
}

/// A quarter of the window, in microseconds.
const QUARTER: u32 = 250_000;

/// The quarantine lasts for two windows, plus some time for the few candidates that are one above a
/// counter.
const TIME: Time = Time {
    tick: 4 * QUARTER,
    end: 4,
    quarantine: 12 * QUARTER,
    off: &[-1_000_000, 1_000_000],
};

/// A master loses its data. A candidate is close to the clock of every master that accepts it. So
/// that master must not vote until the clocks have passed all candidates that it may have accepted
/// before.
fn loses(off: &'static [i32]) -> Ballots<2> {
    Ballots::new(&[[0, 0, 0]], Some(Time { off, ..TIME })).once()
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn a_master_that_lost_its_data_and_stays_away_does_no_harm() {
    holds(&loses(TIME.off), 758_905);
}

#[test]
fn losses_without_a_rule_are_caught() {
    let at_once = loses(TIME.off).broken(Broken::NoQuarantine);
    is_caught(&at_once, SAME, 7);
    let above = loses(&[-1_000_000, 2_000_000]);
    is_caught(&above.edited(NO_UPPER_CLAMP), SAME, 10);
    let below = loses(&[-2_000_000, 1_000_000]);
    is_caught(&below.edited(NO_LOWER_CLAMP), SAME, 10);
}

// A change of the masters: attempts that ask the old set, the new set, or both.
//
// The first attempt begins first. An attempt with both sets needs a majority of each, so tokens
// grow from the old set to both, from both to the new set, and back. No clock is needed. Attempts
// with the old and with the new set may have no master in common, and may have the same token. Here
// the clocks help: the new set is used after more than two windows.

type Sets = &'static [Range<usize>];

/// 1 of 3 masters is replaced.
const OLD: Sets = &[0..3];
const JOINT: Sets = &[0..3, 1..4];
const NEW: Sets = &[1..4];
const FRESH: [[u32; 4]; 1] = [[0; 4]];
/// The counters of a lock that was used before the change.
const USED: [[u32; 4]; 3] = [[4, 4, 4, 0], [0, 4, 4, 0], [4, 4, 0, 0]];

/// 3 masters are replaced by 3 others.
const ALL_JOINT: Sets = &[0..3, 3..6];
const ALL_NEW: Sets = &[3..6];
const ALL_FRESH: [[u32; 6]; 1] = [[0; 6]];
const ALL_USED: [[u32; 6]; 2] = [[4, 4, 4, 0, 0, 0], [0, 4, 4, 0, 0, 0]];

fn once<const M: usize>(starts: &[[u32; M]], sets: [Sets; 2]) -> Ballots<2, M> {
    Ballots::new(starts, None).ask(sets).once()
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn tokens_grow_while_one_master_is_replaced() {
    holds(&once(&FRESH, [OLD, JOINT]), 99_062);
    holds(&once(&USED, [OLD, JOINT]), 408_777);
    holds(&once(&USED, [JOINT, OLD]), 415_426);
    holds(&once(&USED, [JOINT, NEW]), 481_659);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn tokens_grow_while_all_masters_are_replaced() {
    holds(&once(&ALL_FRESH, [OLD, ALL_JOINT]), 170_577);
    holds(&once(&ALL_FRESH, [ALL_JOINT, ALL_NEW]), 169_865);
}

#[test]
fn wrong_changes_are_caught() {
    is_caught(&once(&FRESH, [OLD, NEW]), SAME, 6);
    is_caught(&once(&ALL_FRESH, [OLD, ALL_NEW]), SAME, 6);
    is_caught(&once(&ALL_USED, [OLD, ALL_NEW]), SMALLER, 6);
    // A majority of both sets together is too few.
    is_caught(&once(&ALL_FRESH, [OLD, &[0..6]]), SAME, 8);
}

#[test]
fn a_majority_of_one_master_more_is_enough() {
    holds(&once(&FRESH, [OLD, &[0..4]]), 33_895);
}

/// The old masters accept candidates that are one window above the clocks, and the new ones
/// candidates that are one below.
fn one_after_the_other(pause: u32) -> Ballots<2, 4> {
    Ballots {
        pause: Some(pause),
        ..Ballots::new(&FRESH, Some(TIME)).ask([OLD, NEW])
    }
}

#[test]
fn tokens_grow_after_more_than_two_windows() {
    holds(&one_after_the_other(12 * QUARTER), 62_204);
}

#[test]
fn new_masters_must_not_begin_after_two_windows() {
    is_caught(&one_after_the_other(8 * QUARTER), SAME, 8);
}
