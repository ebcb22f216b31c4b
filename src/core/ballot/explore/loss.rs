//! A master that loses its data, and clocks that limit the harm.
//!
//! A candidate is close to the clock of every master that accepts it. So a master that lost its
//! data must not vote until the clocks have passed all candidates that it may have accepted before.

use super::{
    ballots::{Ballots, Broken, Time},
    *,
};

/// The quarantine lasts for two windows, plus some time for the few candidates that are one above a
/// counter.
const TIME: Time = Time {
    tick: 4,
    end: 4,
    window: 4,
    quarantine: 12,
    off: &[-4, 4],
};

const STARTS: [[u8; MASTERS]; 1] = [[0, 0, 0]];

#[test]
fn a_master_that_lost_its_data_and_stays_away_does_no_harm() {
    let ballots = Ballots::<2>::new(&STARTS, Some(TIME)).once();
    assert_eq!(count(&ballots), 311_636);
}

/// Takes 7 seconds with `--release`, and 100 without.
#[test]
#[ignore = "takes long"]
fn a_second_candidate_is_as_safe_after_a_loss() {
    let ballots = Ballots::<2>::new(&STARTS, Some(TIME));
    assert_eq!(count(&ballots), 6_108_177);
}

#[test]
fn a_master_that_lost_its_data_must_not_vote_at_once() {
    let wrong = Ballots::<2>::broken(Broken::NoQuarantine, &STARTS, Some(TIME)).once();
    is_caught(&wrong, SAME, 7);
}

#[test]
fn a_candidate_must_not_be_far_above_the_clocks() {
    let time = Time {
        off: &[-4, 8],
        ..TIME
    };
    let wrong = Ballots::<2>::broken(Broken::NoUpperClamp, &STARTS, Some(time)).once();
    is_caught(&wrong, SAME, 10);
}

#[test]
fn a_candidate_must_not_be_far_below_the_clocks() {
    let time = Time {
        off: &[-8, 4],
        ..TIME
    };
    let wrong = Ballots::<2>::broken(Broken::NoLowerClamp, &STARTS, Some(time)).once();
    is_caught(&wrong, SAME, 10);
}
