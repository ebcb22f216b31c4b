//! A change of the masters: attempts that ask the old set, the new set, or both.
//!
//! The first attempt begins first. An attempt with both sets needs a majority of each, so tokens
//! grow from the old set to both, from both to the new set, and back. No clock is needed. Attempts
//! with the old and with the new set may have no master in common, and may have the same token.
//! Here the clocks help: the new set is used after more than two windows.

use std::ops::Range;

use super::{
    ballots::{Ballots, Time},
    *,
};

type Sets = &'static [Range<usize>];

/// 1 of 3 masters is replaced.
const OLD: Sets = &[0..3];
const JOINT: Sets = &[0..3, 1..4];
const NEW: Sets = &[1..4];
const FRESH: [[u8; 4]; 1] = [[0; 4]];
/// The counters of a lock that was used before the change.
const USED: [[u8; 4]; 3] = [[4, 4, 4, 0], [0, 4, 4, 0], [4, 4, 0, 0]];

/// 3 masters are replaced by 3 others.
const ALL_JOINT: Sets = &[0..3, 3..6];
const ALL_NEW: Sets = &[3..6];
const ALL_FRESH: [[u8; 6]; 1] = [[0; 6]];
const ALL_USED: [[u8; 6]; 2] = [[4, 4, 4, 0, 0, 0], [0, 4, 4, 0, 0, 0]];

fn ballots<const M: usize>(starts: &[[u8; M]], sets: [Sets; 2]) -> Ballots<2, M> {
    Ballots::new(starts, None).ask(sets)
}

fn once<const M: usize>(starts: &[[u8; M]], sets: [Sets; 2]) -> Ballots<2, M> {
    ballots(starts, sets).once()
}

#[test]
fn tokens_grow_while_one_master_is_replaced() {
    assert_eq!(count(&once(&FRESH, [OLD, JOINT])), 44_104);
    assert_eq!(count(&once(&USED, [OLD, JOINT])), 45_162);
    assert_eq!(count(&once(&USED, [JOINT, OLD])), 45_296);
    assert_eq!(count(&once(&USED, [JOINT, NEW])), 61_527);
}

#[test]
fn tokens_grow_while_all_masters_are_replaced() {
    assert_eq!(count(&once(&ALL_FRESH, [OLD, ALL_JOINT])), 69_990);
    assert_eq!(count(&once(&ALL_FRESH, [ALL_JOINT, ALL_NEW])), 65_808);
}

/// Takes a minute or two.
#[test]
#[ignore = "takes long"]
fn tokens_grow_from_old_to_joint() {
    assert_eq!(count(&once(&ALL_USED, [OLD, ALL_JOINT])), 71_781);
    assert_eq!(count(&ballots(&ALL_FRESH, [OLD, ALL_JOINT])), 1_273_148);
}

/// Takes a minute or two.
#[test]
#[ignore = "takes long"]
fn tokens_grow_from_joint_to_new() {
    assert_eq!(count(&once(&ALL_USED, [ALL_JOINT, ALL_NEW])), 149_390);
    assert_eq!(count(&ballots(&ALL_FRESH, [ALL_JOINT, ALL_NEW])), 1_198_969);
}

#[test]
fn new_masters_must_not_begin_at_zero() {
    is_caught(&once(&FRESH, [OLD, NEW]), SAME, 6);
    is_caught(&once(&ALL_FRESH, [OLD, ALL_NEW]), SAME, 6);
    is_caught(&once(&ALL_USED, [OLD, ALL_NEW]), SMALLER, 6);
}

#[test]
fn a_majority_of_both_sets_together_is_too_few() {
    is_caught(&once(&ALL_FRESH, [OLD, &[0..6]]), SAME, 8);
}

#[test]
fn a_majority_of_one_master_more_is_enough() {
    assert_eq!(count(&once(&FRESH, [OLD, &[0..4]])), 15_489);
}

/// The old masters accept candidates that are one window above the clocks, and the new ones
/// candidates that are one below.
fn one_after_the_other(pause: u8) -> Ballots<2, 4> {
    let time = Time {
        tick: 4,
        end: 4,
        window: 4,
        quarantine: 0,
        off: &[-4, 4],
    };
    let ballots = Ballots::new(&FRESH, Some(time)).ask([OLD, NEW]);
    ballots.pause(pause)
}

#[test]
fn tokens_grow_after_more_than_two_windows() {
    assert_eq!(count(&one_after_the_other(12)), 22_987);
}

#[test]
fn new_masters_must_not_begin_after_two_windows() {
    is_caught(&one_after_the_other(8), SAME, 8);
}
