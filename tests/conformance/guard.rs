//! The restart guard: what the script makes of the key on a server, and the memory masters' rule of a mark.

use crate::core::restart::{GuardRecord, Incarnation, Observation};

use super::*;

const KEY: &str = "quorlock:guard";
const TEXT: &str = include_str!("../../lua/shared/guard.lua");

/// A run id: that of the process that is asked, or of one before it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Id {
    Own,
    /// The one before, and one before that.
    Old,
    Older,
    Nobody,
}
use Id::{Nobody, Old, Older, Own};

/// When.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Never,
    /// Long ago.
    Then,
    Now,
    /// As if a clock had been set back since.
    Later,
}
use At::{Later, Never, Now, Then};

/// Run id, since, origin, durable, seen.
type Row = (Id, At, Id, bool, At);
/// What is in the key; whom the caller knows; strict; what was found of its durability; what is in the key then.
type Case = (Option<Row>, Id, bool, Option<bool>, Row);

/// For how many milliseconds nobody has heard from whom he knows: longer than it is since [`Then`].
const LONG_AGO: u64 = 1 << 50;

const OBSERVED: bool = false;
const STRICT: bool = true;
const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

const CASES: &[Case] = &[
    // No key.
    (None, Nobody, OBSERVED, None, (Own, Never, Own, false, Now)),
    (None, Nobody, STRICT, None, (Own, Now, Own, false, Now)),
    (None, Own, OBSERVED, None, (Own, Now, Own, false, Now)),
    (None, Old, OBSERVED, None, (Own, Now, Own, false, Now)),
    (None, Own, STRICT, None, (Own, Now, Own, false, Now)),
    (None, Nobody, OBSERVED, YES, (Own, Never, Own, true, Now)),
    (None, Old, OBSERVED, YES, (Own, Now, Own, true, Now)),
    (None, Nobody, STRICT, NO, (Own, Now, Own, false, Now)),
    // The same process.
    (
        Some((Own, Never, Own, false, Then)),
        Nobody,
        OBSERVED,
        None,
        (Own, Never, Own, false, Then),
    ),
    (
        Some((Own, Never, Own, false, Then)),
        Own,
        OBSERVED,
        None,
        (Own, Never, Own, false, Then),
    ),
    (
        Some((Own, Never, Own, false, Then)),
        Nobody,
        STRICT,
        None,
        (Own, Never, Own, false, Then),
    ),
    (
        Some((Own, Then, Own, false, Then)),
        Nobody,
        OBSERVED,
        None,
        (Own, Then, Own, false, Then),
    ),
    (
        Some((Own, Then, Own, false, Then)),
        Own,
        STRICT,
        None,
        (Own, Then, Own, false, Then),
    ),
    (
        Some((Own, Then, Own, false, Then)),
        Old,
        OBSERVED,
        None,
        (Own, Then, Own, false, Then),
    ),
    (
        Some((Own, Never, Own, false, Then)),
        Own,
        OBSERVED,
        YES,
        (Own, Never, Own, true, Then),
    ),
    (
        Some((Own, Then, Own, true, Then)),
        Own,
        OBSERVED,
        None,
        (Own, Then, Own, true, Then),
    ),
    (
        Some((Own, Then, Own, true, Then)),
        Own,
        OBSERVED,
        NO,
        (Own, Then, Own, false, Then),
    ),
    // A clock that was set back.
    (
        Some((Own, Later, Own, false, Then)),
        Own,
        OBSERVED,
        None,
        (Own, Now, Own, false, Then),
    ),
    (
        Some((Old, Later, Old, true, Then)),
        Old,
        OBSERVED,
        YES,
        (Own, Now, Old, true, Then),
    ),
    // The first who saw it did not know it; the second did.
    (
        Some((Own, Never, Own, false, Then)),
        Old,
        OBSERVED,
        None,
        (Own, Now, Own, false, Now),
    ),
    (
        Some((Own, Never, Own, true, Then)),
        Old,
        OBSERVED,
        None,
        (Own, Now, Own, true, Now),
    ),
    // Another process.
    (
        Some((Old, Never, Old, false, Then)),
        Nobody,
        OBSERVED,
        None,
        (Own, Now, Own, false, Now),
    ),
    (
        Some((Old, Never, Old, false, Then)),
        Old,
        OBSERVED,
        None,
        (Own, Now, Own, false, Now),
    ),
    (
        Some((Old, Then, Old, false, Then)),
        Nobody,
        STRICT,
        None,
        (Own, Now, Own, false, Now),
    ),
    (
        Some((Old, Then, Old, false, Then)),
        Own,
        OBSERVED,
        None,
        (Own, Now, Own, false, Now),
    ),
    (
        Some((Old, Never, Old, false, Then)),
        Old,
        OBSERVED,
        YES,
        (Own, Now, Own, true, Now),
    ),
    // One that was durable, and is not or is not known to be.
    (
        Some((Old, Never, Old, true, Then)),
        Old,
        OBSERVED,
        NO,
        (Own, Now, Own, false, Now),
    ),
    (
        Some((Old, Never, Old, true, Then)),
        Old,
        OBSERVED,
        None,
        (Own, Now, Own, false, Now),
    ),
    // One that was durable and is: its quarantine is not over sooner.
    (
        Some((Old, Never, Old, true, Then)),
        Old,
        OBSERVED,
        YES,
        (Own, Never, Old, true, Then),
    ),
    (
        Some((Old, Never, Old, true, Then)),
        Nobody,
        OBSERVED,
        YES,
        (Own, Never, Old, true, Then),
    ),
    (
        Some((Old, Never, Old, true, Then)),
        Nobody,
        STRICT,
        YES,
        (Own, Never, Old, true, Then),
    ),
    (
        Some((Old, Then, Old, true, Then)),
        Old,
        OBSERVED,
        YES,
        (Own, Then, Old, true, Then),
    ),
    (
        Some((Old, Then, Older, true, Then)),
        Older,
        OBSERVED,
        YES,
        (Own, Then, Older, true, Then),
    ),
    // It was handed down something else than this one knows.
    (
        Some((Old, Never, Old, true, Then)),
        Older,
        OBSERVED,
        YES,
        (Own, Now, Own, true, Now),
    ),
    (
        Some((Old, Then, Older, true, Then)),
        Old,
        OBSERVED,
        YES,
        (Own, Now, Own, true, Now),
    ),
    // The same, behind another who looked.
    (
        Some((Own, Then, Old, true, Then)),
        Old,
        OBSERVED,
        None,
        (Own, Then, Old, true, Then),
    ),
    (
        Some((Own, Then, Old, true, Then)),
        Nobody,
        OBSERVED,
        NO,
        (Own, Then, Old, false, Then),
    ),
    (
        Some((Own, Then, Old, true, Then)),
        Older,
        OBSERVED,
        YES,
        (Own, Now, Own, true, Now),
    ),
    (
        Some((Own, Never, Old, true, Then)),
        Older,
        OBSERVED,
        None,
        (Own, Now, Own, true, Now),
    ),
    // A key of a version that did not write down when it was first there; and a clock that was set
    // back.
    (
        Some((Own, Never, Own, false, Never)),
        Nobody,
        STRICT,
        None,
        (Own, Never, Own, false, Now),
    ),
    (
        Some((Own, Never, Own, false, Never)),
        Own,
        OBSERVED,
        None,
        (Own, Never, Own, false, Now),
    ),
    (
        Some((Own, Then, Own, false, Never)),
        Nobody,
        STRICT,
        None,
        (Own, Then, Own, false, Now),
    ),
    (
        Some((Old, Never, Old, true, Never)),
        Old,
        STRICT,
        YES,
        (Own, Never, Old, true, Now),
    ),
    (
        Some((Own, Never, Own, false, Later)),
        Nobody,
        STRICT,
        None,
        (Own, Never, Own, false, Now),
    ),
    (
        Some((Own, Never, Own, false, Then)),
        Own,
        STRICT,
        None,
        (Own, Never, Own, false, Then),
    ),
];

/// Whom a caller knows, and for how many milliseconds he has not heard from them.
fn known_by(origin: String, away: u64) -> Vec<(String, u64)> {
    let known = (!origin.is_empty()).then_some((origin, away));
    known.into_iter().collect()
}

/// What the names stand for.
struct World<'a> {
    own: &'a str,
    now: u64,
}

impl World<'_> {
    fn id(&self, id: Id) -> String {
        match id {
            Own => self.own.to_owned(),
            Old => "01".repeat(20),
            Older => "02".repeat(20),
            Nobody => String::new(),
        }
    }

    fn at(&self, at: At) -> u64 {
        match at {
            Never => 0,
            Then => 5,
            Now => self.now,
            Later => self.now + 1_000_000,
        }
    }

    fn mark(&self, (run_id, since, origin, is_durable, seen): Row) -> GuardRecord {
        GuardRecord {
            run_id: self.id(run_id),
            since: self.at(since),
            origin: self.id(origin),
            is_durable,
            seen: self.at(seen),
        }
    }
}

#[test]
fn a_memory_master_goes_by_the_table() {
    let world = World {
        own: &"00".repeat(20),
        now: 1_000,
    };
    for case in CASES {
        let (found, known, is_strict, is_durable, expected) = *case;
        let known = known_by(world.id(known), LONG_AGO);
        let look = Observation {
            known: &known,
            is_strict,
            is_durable,
        };
        let found = found.map(|found| world.mark(found));
        let mark = GuardRecord::looked_at(found, look, world.own, world.now);
        assert_eq!(mark, world.mark(expected), "{case:?}");
    }
}

#[test]
fn a_server_goes_by_the_table() {
    if server::only_urls() || server::is_before_7() {
        return;
    }
    let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let own = run_id(&server);
    let own = &*own;
    for case in CASES {
        let (found, known, is_strict, is_durable, expected) = *case;
        let time = clock(&server);
        let before = World { own, now: time };
        server.command(&["DEL", KEY]);
        if let Some(found) = found {
            write(&server, &before.mark(found));
        }
        let ask = |known: &str, is_durable| ask(&server, known, is_strict, is_durable);
        let (found, now) = ask(&before.id(known), is_durable);
        let expected = World { own, now }.mark(expected);
        assert_eq!(read(&server), expected, "{case:?}");
        assert_eq!((&*found.run_id, &found.origin), (own, &expected.origin));
        assert_eq!(found.is_durable, expected.is_durable, "{case:?}");
        let from = expected.counted_from(is_strict);
        let age = (from > 0).then(|| Duration::from_millis(now - from));
        assert_eq!(found.age, age, "{case:?}");
        assert!(age.is_some() || !is_strict, "{case:?}");
        // Twice is as once, whoever comes next.
        for known in ["", &*expected.origin] {
            ask(known, None);
            assert_eq!(read(&server), expected, "{case:?}");
        }
    }
}

/// What forgot while the one that is known was still there is another server: in ms, how long ago it did, for how long
/// nobody was heard from, and whether it is another.
const OTHERS: [(u64, u64, bool); 3] = [
    (500_000, 900_000, false),
    (500_000, 100_000, true),
    (500_000, 0, true),
];

#[test]
fn another_that_forgot_earlier_forgets_anew() {
    for (age, away, is_another) in OTHERS {
        let world = World {
            own: &"00".repeat(20),
            now: 1_000_000,
        };
        let mut mark = world.mark((Own, Now, Own, false, Then));
        mark.since -= age;
        let look = Observation {
            known: &known_by(world.id(Old), away),
            is_strict: STRICT,
            is_durable: None,
        };
        let after = GuardRecord::looked_at(Some(mark.clone()), look, world.own, world.now);
        assert_eq!(after != mark, is_another, "{age} {away}");
        assert_eq!(after.since == world.now, is_another, "{age} {away}");
        assert_eq!(after.seen == world.now, is_another, "{age} {away}");
    }
}

#[test]
fn another_server_that_forgot_earlier_forgets_anew() {
    if server::only_urls() {
        return;
    }
    let server = Server::start();
    let own = run_id(&server);
    let own = &*own;
    for (age, away, is_another) in OTHERS {
        let now = clock(&server);
        let world = World { own, now };
        let mut mark = world.mark((Own, Now, Own, false, Then));
        mark.since -= age;
        server.command(&["DEL", KEY]);
        write(&server, &mark);
        let (known, away) = (world.id(Old), away.to_string());
        let words = ["EVAL", TEXT, "1", KEY, &known, "strict", "", &away];
        let (_, now) = said(&server, &words);
        if is_another {
            (mark.since, mark.seen) = (now, now);
        }
        assert_eq!(read(&server), mark, "{age} {away}");
    }
}

/// A caller who knows two servers in one place, and for how many ms neither has been heard from;
/// and whether a master that forgot 500 s ago is in quarantine from now.
type Several = ([(Id, u64); 2], bool);

const SEVERAL: &[Several] = &[
    ([(Own, 1), (Old, 900_000)], false),
    ([(Own, 1), (Old, 100_000)], true),
    ([(Old, 100_000), (Own, 1)], true),
    ([(Old, 900_000), (Older, 100_000)], true),
];

#[test]
fn who_knows_several_goes_by_each_of_them() {
    let server = (!server::only_urls()).then(Server::start);
    for &(known, is_another) in SEVERAL {
        let world = World {
            own: &"00".repeat(20),
            now: 1_000_000,
        };
        let key = |world: &World<'_>| {
            let mut mark = world.mark((Own, Now, Own, false, Then));
            mark.since -= 500_000;
            mark
        };
        let of = |world: &World<'_>| known.map(|(id, away)| (world.id(id), away));
        let look = Observation {
            known: &of(&world),
            is_strict: false,
            is_durable: None,
        };
        let after = GuardRecord::looked_at(Some(key(&world)), look, world.own, world.now);
        assert_eq!(after.since == world.now, is_another, "{known:?}");

        let Some(server) = &server else {
            continue;
        };
        let own = run_id(server);
        let world = World {
            own: &own,
            now: clock(server),
        };
        server.command(&["DEL", KEY]);
        write(server, &key(&world));
        let [(one, away), (other, silence)] = of(&world).map(|(id, away)| (id, away.to_string()));
        let mut words = vec!["EVAL", TEXT, "1", KEY, &one, "observed", "", &away];
        words.extend([&*other, &silence]);
        let (_, now) = said(server, &words);
        assert_eq!(read(server).since == now, is_another, "{known:?}");
    }
}

fn run_id(server: &Server) -> String {
    let info = server.command(&["INFO", "server"]);
    let own = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    own.unwrap().trim().to_owned()
}

/// What the script says, and when.
fn ask(
    server: &Server,
    known: &str,
    is_strict: bool,
    is_durable: Option<bool>,
) -> (Incarnation, u64) {
    let mode = if is_strict { "strict" } else { "observed" };
    let durability = match is_durable {
        None => "",
        Some(true) => "durable",
        Some(false) => "volatile",
    };
    let away = LONG_AGO.to_string();
    said(
        server,
        &["EVAL", TEXT, "1", KEY, known, mode, durability, &away],
    )
}

fn said(server: &Server, words: &[&str]) -> (Incarnation, u64) {
    let reply = server.command(words);
    let now = reply.split(' ').nth(1).and_then(|now| now.parse().ok());
    let found = Incarnation::parse(&reply);
    (found.expect(&reply), now.unwrap())
}

fn write(server: &Server, mark: &GuardRecord) {
    let (since, seen) = (mark.since.to_string(), mark.seen.to_string());
    let durable = if mark.is_durable { "1" } else { "0" };
    let mut words = vec!["HSET", KEY, "run_id", &mark.run_id, "since", &since];
    words.extend(["origin", &mark.origin, "durable", durable]);
    if mark.seen > 0 {
        words.extend(["seen", &seen]);
    }
    server.command(&words);
}

fn read(server: &Server) -> GuardRecord {
    let reply = server.command(&["HMGET", KEY, "run_id", "since", "origin", "durable", "seen"]);
    let lines: Vec<_> = reply.lines().collect();
    let [run_id, since, origin, durable, seen] = lines[..] else {
        panic!("{reply}");
    };
    GuardRecord {
        run_id: run_id.to_owned(),
        since: since.parse().unwrap(),
        origin: origin.to_owned(),
        is_durable: durable == "1",
        seen: seen.parse().unwrap(),
    }
}

/// In milliseconds.
fn clock(server: &Server) -> u64 {
    let reply = server.command(&["TIME"]);
    let (seconds, micros) = reply.split_once('\n').unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    number(seconds) * 1_000 + number(micros) / 1_000
}
