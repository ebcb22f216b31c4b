//! A master that loses its data, and clocks.
//!
//! A candidate is near the clock of every master that accepts it. So a master need only stay away for long enough
//! that the clocks pass all that it may have accepted before.

use super::{
    bidding::{Bidding, Broken, Time},
    *,
};

/// It stays away for as long as two windows and the few candidates that are one above a counter.
const TIME: Time = Time {
    tick: 4,
    end: 4,
    window: 4,
    quarantine: 12,
    off: &[-4, 4],
};

const STARTS: [[u8; MASTERS]; 1] = [[0, 0, 0]];

#[test]
fn a_master_that_lost_its_data_and_stays_away_for_a_while() {
    let bidding = Bidding::<2>::new(&STARTS, Some(TIME)).once();
    assert_eq!(count(&bidding), 239_437);
}

/// 7 seconds with `--release`, 100 without.
#[test]
#[ignore = "takes long"]
fn a_master_that_lost_its_data_and_attempts_that_bid_again() {
    let bidding = Bidding::<2>::new(&STARTS, Some(TIME));
    assert_eq!(count(&bidding), 4_548_877);
}

#[test]
fn a_master_that_lost_its_data_and_votes_at_once() {
    let wrong = Bidding::<2>::broken(Broken::NoQuarantine, &STARTS, Some(TIME)).once();
    is_caught(&wrong, SAME, 7);
}

#[test]
fn a_candidate_that_is_ahead_of_the_clocks() {
    let time = Time {
        off: &[-4, 8],
        ..TIME
    };
    let wrong = Bidding::<2>::broken(Broken::NoUpperClamp, &STARTS, Some(time)).once();
    is_caught(&wrong, SAME, 10);
}

#[test]
fn a_candidate_that_is_behind_the_clocks() {
    let time = Time {
        off: &[-8, 4],
        ..TIME
    };
    let wrong = Bidding::<2>::broken(Broken::NoLowerClamp, &STARTS, Some(time)).once();
    is_caught(&wrong, SAME, 10);
}
