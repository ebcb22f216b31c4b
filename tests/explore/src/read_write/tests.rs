use super::{
    Broken,
    client::{Claim, reads, writes},
    model::{EXCLUSION, ORDER, ROBBED, ReadWrite, STUCK},
};
use crate::search::{holds, is_caught};

/// Late commands and extensions, without queues: a queue only refuses more.
fn exclusion<const C: usize>(claims: [&[Claim]; C]) -> ReadWrite<C> {
    ReadWrite {
        claims: claims.map(<[_]>::to_vec),
        rounds: 1,
        queued_from: u8::MAX,
        broken: Broken::Not,
        extends: true,
        late: true,
        fades: true,
        is_tidy: false,
        breaks: false,
        strict_breaks: false,
        forgets: false,
        is_ordered: false,
        ends: false,
    }
}

/// All that can happen to holders.
fn hostile<const C: usize>(claims: [&[Claim]; C]) -> ReadWrite<C> {
    ReadWrite {
        breaks: true,
        forgets: true,
        ..exclusion(claims)
    }
}

/// Waiters in the queues, without extensions.
fn order<const C: usize>(claims: [&[Claim]; C]) -> ReadWrite<C> {
    ReadWrite {
        queued_from: 0,
        extends: false,
        is_ordered: true,
        ends: true,
        ..exclusion(claims)
    }
}

/// Waiters in the queues, without late commands.
fn calm<const C: usize>(claims: [&[Claim]; C]) -> ReadWrite<C> {
    ReadWrite {
        rounds: 2,
        queued_from: 1,
        late: false,
        fades: false,
        is_tidy: true,
        ..order(claims)
    }
}

fn broken<const C: usize>(broken: Broken, model: ReadWrite<C>) -> ReadWrite<C> {
    ReadWrite { broken, ..model }
}

const LOWERED: Claim = writes(0).changes();

#[test]
fn a_writer_is_alone() {
    holds(&hostile([&[LOWERED], &[reads(1)]]), 1_052_357);
}

#[test]
fn a_writer_is_alone_in_later_claims_of_an_owner() {
    holds(&hostile([&[writes(0), reads(2)], &[writes(1)]]), 911_752);
}

#[test]
fn a_writer_is_alone_among_three() {
    let three = [&[LOWERED][..], &[reads(1)], &[reads(2)]];
    let forgets = ReadWrite {
        forgets: true,
        ..exclusion(three)
    };
    holds(&forgets, 768_038);
    let breaks = ReadWrite {
        breaks: true,
        late: false,
        extends: false,
        ..exclusion(three)
    };
    holds(&breaks, 60_631);
}

/// Not promised if commands are late: an acquisition or a heal that comes after a break puts the
/// broken holder back, as for all kinds of locks.
#[test]
fn a_broken_holder_does_not_go_on_after_another() {
    let in_time = ReadWrite {
        late: false,
        strict_breaks: true,
        ..hostile([&[LOWERED], &[reads(1)]])
    };
    holds(&in_time, 286_648);
    let late = ReadWrite {
        strict_breaks: true,
        ..hostile([&[writes(0)], &[reads(1)]])
    };
    is_caught(&late, ROBBED, 12);
}

#[test]
fn two_waiters_win_in_the_order_of_their_tickets() {
    let rounds = ReadWrite {
        rounds: 2,
        queued_from: 1,
        ..order([&[writes(0)], &[reads(1)]])
    };
    holds(&rounds, 63_659);
    holds(&order([&[writes(0), reads(2)], &[writes(1)]]), 353_632);
    holds(&order([&[reads(0), writes(2)], &[writes(1)]]), 353_632);
}

#[test]
fn more_waiters_win_in_the_order_of_their_tickets() {
    holds(&calm([&[writes(0)], &[reads(1)], &[reads(2)]]), 23_915);
    holds(&calm([&[reads(0)], &[writes(1)], &[reads(2)]]), 21_270);
    holds(&calm([&[writes(0)], &[writes(1)], &[reads(2)]]), 34_186);
    let four = [&[reads(0)][..], &[writes(1)], &[reads(2)], &[writes(3)]];
    let once = ReadWrite {
        rounds: 1,
        queued_from: 0,
        ..calm(four)
    };
    holds(&once, 250_971);
}

#[test]
#[ignore = "takes minutes"]
fn three_waiters_with_late_commands_win_in_the_order_of_their_tickets() {
    let three = ReadWrite {
        extends: true,
        ..order([&[writes(0)], &[reads(1)], &[reads(2)]])
    };
    holds(&three, 11_188_111);
}

#[test]
fn wrong_rules_are_caught() {
    let (w, r) = (&[writes(0)][..], &[reads(1)][..]);
    let three = [w, r, &[reads(2)][..]];
    let breaks = ReadWrite {
        breaks: true,
        ..exclusion(three)
    };
    is_caught(&broken(Broken::BreakDeletesKey, breaks), EXCLUSION, 10);
    is_caught(
        &broken(Broken::CountedReaders, exclusion(three)),
        EXCLUSION,
        9,
    );
    let in_time = ReadWrite {
        late: false,
        strict_breaks: true,
        ..hostile([w, r])
    };
    is_caught(&broken(Broken::ExtensionRevives, in_time), ROBBED, 11);
    let wild = hostile([w, r]);
    is_caught(
        &broken(Broken::HealBesideReader, wild.clone()),
        EXCLUSION,
        11,
    );
    is_caught(&broken(Broken::RefreshBesideWriter, wild), EXCLUSION, 10);
    let rounds = ReadWrite {
        rounds: 2,
        ..exclusion([w, r])
    };
    is_caught(&broken(Broken::LateRelease, rounds), EXCLUSION, 9);
    let forgets = ReadWrite {
        forgets: true,
        ..exclusion([w, r])
    };
    is_caught(&broken(Broken::NoQuarantine, forgets), EXCLUSION, 7);
}

#[test]
fn wrong_orders_are_caught() {
    let (w, r) = (&[writes(0)][..], &[reads(1)][..]);
    is_caught(&broken(Broken::NoMark, order([w, r])), ORDER, 8);
    let rounds = ReadWrite {
        rounds: 2,
        ..order([w, r])
    };
    is_caught(&broken(Broken::OldEntryPasses, rounds), ORDER, 9);
    let first = &[reads(0).changes(), writes(2)][..];
    let upgrades = [first, &[reads(1).changes(), writes(3)]];
    is_caught(&broken(Broken::UpgradeInPlace, order(upgrades)), STUCK, 8);
}
