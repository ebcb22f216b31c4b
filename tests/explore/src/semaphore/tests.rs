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
        ends: true,
    }
}

/// All that can happen to holders.
fn hostile<const C: usize>(sizes: [usize; C]) -> Semaphore<C> {
    Semaphore {
        breaks: true,
        forgets: true,
        ..semaphore(sizes)
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
    holds(&hostile([1, 1]), 148_591);
    holds(&semaphore([2, 2]), 14_892);
    holds(&semaphore([1, 1, 1]), 38_523);
    holds(&short([3, 3]), 96_845);
}

#[test]
fn a_slot_has_one_holder_while_the_size_changes() {
    holds(&hostile([1, 2]), 1_066_487);
}

#[test]
fn no_more_than_the_larger_size_are_held() {
    holds(&short([1, 2, 2]), 1_005_409);
}

#[test]
fn a_slot_has_one_holder_over_attempts() {
    let again = Semaphore {
        attempts: 2,
        ..short([1, 2])
    };
    holds(&again, 1_456_672);
}

#[test]
#[ignore = "takes minutes"]
fn three_share_two_slots() {
    holds(&short([2, 2, 2]), 2_694_175);
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
