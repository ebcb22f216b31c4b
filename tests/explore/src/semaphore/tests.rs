use super::{
    Broken,
    model::{MORE, Semaphore, TWO},
};
use crate::search::{holds, is_caught};

fn semaphore<const C: usize>(sizes: [usize; C]) -> Semaphore<C> {
    Semaphore {
        sizes,
        attempts: 1,
        broken: Broken::Not,
        extends: true,
        breaks: false,
        forgets: false,
        has_ballots: false,
        ends: true,
    }
}

/// All that can happen to holders.
fn hostile<const C: usize>(sizes: [usize; C]) -> Semaphore<C> {
    Semaphore {
        breaks: true,
        forgets: true,
        has_ballots: true,
        ..semaphore(sizes)
    }
}

/// With second rounds of attempts, and without extensions.
fn fenced<const C: usize>(sizes: [usize; C]) -> Semaphore<C> {
    Semaphore {
        has_ballots: true,
        ..short(sizes)
    }
}

/// Without extensions.
fn short<const C: usize>(sizes: [usize; C]) -> Semaphore<C> {
    Semaphore {
        extends: false,
        ..semaphore(sizes)
    }
}

#[test]
fn a_slot_has_one_holder() {
    holds(&hostile([1, 1]), 219_906);
    holds(&semaphore([2, 2]), 25_124);
    holds(&semaphore([1, 1, 1]), 43_288);
    holds(&short([3, 3]), 253_550);
}

#[test]
fn a_slot_has_one_holder_over_ballots() {
    holds(&fenced([2, 2]), 110_791);
    holds(&fenced([1, 1, 1]), 399_259);
}

#[test]
fn a_slot_has_one_holder_while_the_size_changes() {
    holds(&hostile([1, 2]), 1_494_473);
}

#[test]
fn no_more_than_the_larger_size_are_held() {
    holds(&short([1, 2, 2]), 1_552_775);
}

#[test]
fn a_slot_has_one_holder_over_attempts() {
    let again = Semaphore {
        attempts: 2,
        ..short([1, 2])
    };
    holds(&again, 2_304_768);
}

#[test]
#[ignore = "takes minutes"]
fn three_share_two_slots() {
    holds(&short([2, 2, 2]), 4_614_787);
}

#[test]
fn wrong_rules_are_caught() {
    let broken = |broken| Semaphore {
        broken,
        ..short([2, 2])
    };
    is_caught(&broken(Broken::ChangesSlot), TWO, 8);
    is_caught(&broken(Broken::KeepsVotes), TWO, 7);
    let counts = Semaphore {
        broken: Broken::CountsGrants,
        ..short([2, 2, 2])
    };
    is_caught(&counts, MORE, 9);
    let again = Semaphore {
        broken: Broken::ChoosesAgain,
        ..fenced([2, 2])
    };
    is_caught(&again, TWO, 12);
    let heals = Semaphore {
        broken: Broken::HealTakesHeld,
        ..short([1, 1, 1])
    };
    is_caught(&heals, MORE, 14);
    let forgets = Semaphore {
        broken: Broken::NoQuarantine,
        forgets: true,
        ..semaphore([1, 1])
    };
    is_caught(&forgets, MORE, 7);
    let breaks = Semaphore {
        broken: Broken::BreakDeletesKey,
        breaks: true,
        ..short([2, 2, 2])
    };
    is_caught(&breaks, TWO, 10);
}
