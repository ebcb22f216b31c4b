use super::{
    client::{Claim, reads, writes},
    model::{EXCLUSION, Locks, MORE, ORDER, ROBBED, STUCK, TWO},
    *,
};
use crate::{
    core::kind::LockKind,
    explore::{
        masters::Masters,
        search::{holds, is_caught},
    },
};

/// Late commands and extensions, without queues: a queue only refuses more.
fn exclusion<const C: usize>(claims: [&[Claim]; C]) -> Locks<C> {
    Locks {
        masters: Masters::new(LockKind::ReadWrite),
        broken: Broken::Not,
        claims: claims.map(<[_]>::to_vec),
        permits: [0; C],
        rounds: 1,
        queued_from: u8::MAX,
        extends: true,
        breaks: false,
        strict_breaks: false,
        late: true,
        fades: true,
        is_tidy: false,
        forgets: false,
        is_ordered: false,
        ends: false,
        has_ballots: false,
        is_fenced: false,
        decisions: Default::default(),
    }
}

/// All that can happen to holders.
fn hostile<const C: usize>(claims: [&[Claim]; C]) -> Locks<C> {
    Locks {
        breaks: true,
        forgets: true,
        ..exclusion(claims)
    }
}

/// Waiters in the queues, without extensions.
fn order<const C: usize>(claims: [&[Claim]; C]) -> Locks<C> {
    Locks {
        queued_from: 0,
        extends: false,
        is_ordered: true,
        ends: true,
        ..exclusion(claims)
    }
}

/// Waiters in the queues, without late commands.
fn calm<const C: usize>(claims: [&[Claim]; C]) -> Locks<C> {
    Locks {
        rounds: 2,
        queued_from: 1,
        late: false,
        fades: false,
        is_tidy: true,
        ..order(claims)
    }
}

/// A semaphore, without extensions.
fn semaphore<const C: usize>(permits: [u8; C]) -> Locks<C> {
    Locks {
        masters: Masters::new(LockKind::Semaphore),
        permits,
        extends: false,
        ends: true,
        ..exclusion([&[writes(0)][..]; C])
    }
}

/// With second rounds of attempts. Their candidates would only refuse more.
fn again<const C: usize>(permits: [u8; C]) -> Locks<C> {
    Locks {
        has_ballots: true,
        ..semaphore(permits)
    }
}

/// All that can happen to the holders of a semaphore.
fn hostile_slots<const C: usize>(permits: [u8; C]) -> Locks<C> {
    Locks {
        extends: true,
        breaks: true,
        forgets: true,
        ..semaphore(permits)
    }
}

impl<const C: usize> Locks<C> {
    fn broken(self, broken: Broken) -> Self {
        Self { broken, ..self }
    }

    /// Lets masters run other scripts.
    fn edited(self, edits: &[Edit]) -> Self {
        let kind = if self.has_slots() {
            LockKind::Semaphore
        } else {
            LockKind::ReadWrite
        };
        Self {
            masters: Masters::edited(kind, edits),
            ..self
        }
    }
}

const LOWERED: Claim = writes(0).changes();

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn a_writer_is_alone() {
    holds(&hostile([&[LOWERED], &[reads(1)]]), 1_045_632);
    // Scripts find entries whose leases have ended.
    let ended = Locks {
        masters: Masters::new(LockKind::ReadWrite).keeps_ended(),
        breaks: true,
        ..exclusion([&[LOWERED], &[reads(1)]])
    };
    holds(&ended, 751_259);
    // Later claims of an owner.
    holds(&hostile([&[writes(0), reads(2)], &[writes(1)]]), 892_899);
    let three = [&[LOWERED][..], &[reads(1)], &[reads(2)]];
    let forgets = Locks {
        forgets: true,
        ..exclusion(three)
    };
    holds(&forgets, 662_649);
}

#[test]
fn a_writer_is_alone_among_three_that_are_broken() {
    let breaks = Locks {
        breaks: true,
        late: false,
        extends: false,
        ..exclusion([&[LOWERED][..], &[reads(1)], &[reads(2)]])
    };
    holds(&breaks, 49_423);
}

/// Not promised if commands are late: an acquisition or a heal that comes after a break puts the
/// broken holder back, as for all kinds of locks.
#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn a_broken_holder_does_not_go_on_after_another() {
    let in_time = Locks {
        late: false,
        strict_breaks: true,
        ..hostile([&[LOWERED], &[reads(1)]])
    };
    holds(&in_time, 283_487);
    let late = Locks {
        strict_breaks: true,
        ..hostile([&[writes(0)], &[reads(1)]])
    };
    is_caught(&late, ROBBED, 12);
}

#[test]
fn two_waiters_win_in_the_order_of_their_tickets() {
    let rounds = Locks {
        rounds: 2,
        queued_from: 1,
        ..order([&[writes(0)], &[reads(1)]])
    };
    holds(&rounds, 83_527);
    // Scripts find waiters that are dead, and entries whose leases have ended.
    let ended = Locks {
        masters: Masters::new(LockKind::ReadWrite).keeps_ended(),
        ..order([&[writes(0)], &[reads(1)]])
    };
    holds(&ended, 105_490);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn more_waiters_win_in_the_order_of_their_tickets() {
    holds(&order([&[writes(0), reads(2)], &[writes(1)]]), 473_765);
    holds(&order([&[reads(0), writes(2)], &[writes(1)]]), 473_765);
    holds(&calm([&[writes(0)], &[reads(1)], &[reads(2)]]), 42_106);
    holds(&calm([&[reads(0)], &[writes(1)], &[reads(2)]]), 36_438);
    holds(&calm([&[writes(0)], &[writes(1)], &[reads(2)]]), 60_692);
    let four = [&[reads(0)][..], &[writes(1)], &[reads(2)], &[writes(3)]];
    let once = Locks {
        rounds: 1,
        queued_from: 0,
        ..calm(four)
    };
    holds(&once, 250_971);
}

#[test]
fn wrong_rules_are_caught() {
    let (w, r) = (&[writes(0)][..], &[reads(1)][..]);
    let three = [w, r, &[reads(2)][..]];
    let breaks = Locks {
        breaks: true,
        ..exclusion(three)
    };
    is_caught(&breaks.edited(BREAK_DELETES_ALL), EXCLUSION, 10);
    is_caught(&exclusion(three).edited(COUNTED_READERS), EXCLUSION, 9);
    let in_time = Locks {
        late: false,
        strict_breaks: true,
        ..hostile([w, r])
    };
    is_caught(&in_time.edited(EXTENSION_REVIVES), ROBBED, 11);
    let wild = || hostile([w, r]);
    is_caught(&wild().edited(HEAL_BESIDE_READER), EXCLUSION, 11);
    is_caught(&wild().edited(REFRESH_BESIDE_WRITER), EXCLUSION, 10);
    let rounds = Locks {
        rounds: 2,
        ..exclusion([w, r])
    };
    is_caught(&rounds.edited(LATE_RELEASE), EXCLUSION, 9);
    let forgets = Locks {
        forgets: true,
        ..exclusion([w, r])
    };
    is_caught(&forgets.broken(Broken::NoQuarantine), EXCLUSION, 7);
}

#[test]
fn wrong_orders_are_caught() {
    let (w, r) = (&[writes(0)][..], &[reads(1)][..]);
    is_caught(&order([w, r]).edited(NO_MARK), ORDER, 8);
    let rounds = Locks {
        rounds: 2,
        ..order([w, r])
    };
    is_caught(&rounds.edited(OLD_ENTRY_PASSES), ORDER, 9);
    let first = &[reads(0).changes(), writes(2)][..];
    let upgrades = order([first, &[reads(1).changes(), writes(3)]]);
    let upgrades = upgrades.edited(UPGRADE_IN_PLACE);
    is_caught(&upgrades.broken(Broken::UpgradeInPlace), STUCK, 7);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn a_slot_has_one_holder() {
    holds(&hostile_slots([1, 1]), 157_111);
    let extends = Locks {
        extends: true,
        ..semaphore([2, 2])
    };
    holds(&extends, 25_124);
    // Scripts find entries whose leases have ended.
    let ended = Locks {
        masters: Masters::new(LockKind::Semaphore).keeps_ended(),
        ..hostile_slots([1, 1])
    };
    holds(&ended, 253_789);
    holds(&semaphore([1, 1, 1]), 18_740);
    holds(&semaphore([3, 3]), 253_550);
    holds(&again([2, 2]), 198_751);
    holds(&again([1, 1, 1]), 563_870);
    let attempts = Locks {
        claims: [vec![writes(0); 2], vec![writes(0); 2]],
        ..semaphore([1, 2])
    };
    holds(&attempts, 607_024);
}

#[test]
fn a_slot_has_one_holder_over_ballots_with_candidates() {
    let fenced = Locks {
        is_fenced: true,
        ..again([1, 1])
    };
    holds(&fenced, 70_077);
}

/// No more than the larger size are held.
#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn a_slot_has_one_holder_while_the_size_changes() {
    holds(&hostile_slots([1, 2]), 1_497_336);
    holds(&semaphore([1, 2, 2]), 955_365);
}

#[test]
#[ignore = "slow without optimisation: ./dev test runs it"]
fn wrong_slots_are_caught() {
    let two = || semaphore([2, 2]);
    is_caught(&two().broken(Broken::ChangesSlot), TWO, 8);
    is_caught(&two().broken(Broken::KeepsVotes), TWO, 7);
    let three = semaphore([2, 2, 2]);
    is_caught(&three.broken(Broken::CountsGrants), MORE, 9);
    let fenced = Locks {
        is_fenced: true,
        ..again([2, 2])
    };
    is_caught(&fenced.broken(Broken::ChoosesAgain), TWO, 11);
    is_caught(&semaphore([1, 1, 1]).edited(HEAL_TAKES_HELD), MORE, 14);
    let forgets = Locks {
        forgets: true,
        ..semaphore([1, 1])
    };
    is_caught(&forgets.broken(Broken::NoQuarantine), MORE, 7);
    let breaks = Locks {
        breaks: true,
        ..semaphore([2, 2, 2])
    };
    is_caught(&breaks.edited(BREAK_DELETES_SLOTS), TWO, 10);
}
