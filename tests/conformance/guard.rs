//! The restart guard: the script on a server and the rule of the memory masters must give the same
//! record.

use crate::core::restart::{Incarnation, Loss, Observation, Process, RestartRecord, Sign};

use super::*;

const KEY: &str = "quorlock:guard";
const TEXT: &str = include_str!("../../lua/shared/guard.lua");

/// The run id of the process that is asked, of an earlier process, or of no process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Id {
    Own,
    /// The process before the one that is asked.
    Old,
    /// The process before `Old`.
    Older,
    Nobody,
}
use Id::{Nobody, Old, Older, Own};

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Never,
    /// A time long ago.
    Then,
    Now,
    /// A time in the future. A record has it if the clock was set back.
    Later,
}
use At::{Later, Never, Now, Then};

/// Five fields of a guard record in their order: `run_id`, `since`, `origin`, `durable` and `seen`.
/// `lua/shared/guard.lua` explains them. The sixth, `replid`, is that of the process that is asked.
type Row = (Id, At, Id, bool, At);
/// The record before, the origin that the caller knows, whether the caller is strict, the
/// durability that the caller found, and the record after.
type Case = (Option<Row>, Id, bool, Option<bool>, Row);

/// The milliseconds since the known origin last answered. This is longer than the time since
/// [`Then`].
const LONG_AGO: u64 = 1 << 50;

const OBSERVED: bool = false;
const STRICT: bool = true;
const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

const CASES: &[Case] = &[
    // There is no key.
    (None, Nobody, OBSERVED, None, (Own, Never, Own, false, Now)),
    (None, Nobody, STRICT, None, (Own, Now, Own, false, Now)),
    (None, Own, OBSERVED, None, (Own, Now, Own, false, Now)),
    (None, Old, OBSERVED, None, (Own, Now, Own, false, Now)),
    (None, Own, STRICT, None, (Own, Now, Own, false, Now)),
    (None, Nobody, OBSERVED, YES, (Own, Never, Own, true, Now)),
    (None, Old, OBSERVED, YES, (Own, Now, Own, true, Now)),
    (None, Nobody, STRICT, NO, (Own, Now, Own, false, Now)),
    // The process that is asked wrote the record.
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
    // The clock was set back.
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
    // The client that saw the process first knew no origin. The second client knows another one.
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
    // Another process wrote the record.
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
    // The process before was durable. The new process is not durable, or its durability is unknown.
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
    // Both processes are durable. A running quarantine does not end sooner.
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
    // The data of the process comes from a different origin than the one that the caller knows.
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
    // The process took over data, and another client has already updated the record.
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
    // The clock was set back.
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

/// Returns the origins that a caller knows, with the milliseconds since their last answers.
fn known_by(origin: String, away: u64) -> Vec<(String, u64)> {
    let known = (!origin.is_empty()).then_some((origin, away));
    known.into_iter().collect()
}

/// The values of `Own` and `Now` in the table.
struct World<'a> {
    own: &'a str,
    replid: &'a str,
    now: u64,
}

impl World<'_> {
    fn process(&self) -> Process<'_> {
        Process {
            run_id: self.own,
            replid: self.replid,
        }
    }

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

    fn record(&self, (run_id, since, origin, is_durable, seen): Row) -> RestartRecord {
        RestartRecord {
            run_id: self.id(run_id),
            since: self.at(since),
            origin: self.id(origin),
            is_durable,
            seen: self.at(seen),
            replid: self.replid.to_owned(),
        }
    }
}

#[test]
fn a_memory_master_follows_the_table() {
    let world = World {
        own: &"00".repeat(20),
        replid: "0a",
        now: 1_000,
    };
    for case in CASES {
        let (found, known, is_strict, is_durable, expected) = *case;
        let known = known_by(world.id(known), LONG_AGO);
        let observation = Observation {
            known: &known,
            is_strict,
            is_durable,
        };
        let found = found.map(|found| world.record(found));
        let record = RestartRecord::observed(found, observation, world.process(), world.now);
        assert_eq!(record, world.record(expected), "{case:?}");
    }
}

#[test]
fn a_server_follows_the_table() {
    if server::only_urls() || server::is_before_7() {
        return;
    }
    let server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (own, replid) = ids(&server);
    let (own, replid) = (&*own, &*replid);
    for case in CASES {
        let (found, known, is_strict, is_durable, expected) = *case;
        let time = clock(&server);
        let before = World {
            own,
            replid,
            now: time,
        };
        server.command(&["DEL", KEY]);
        let before_it = found.map(|found| before.record(found));
        if let Some(found) = &before_it {
            write(&server, found);
        }
        let ask = |known: &str, is_durable| ask(&server, known, is_strict, is_durable);
        let (found, now) = ask(&before.id(known), is_durable);
        let expected = World { own, replid, now }.record(expected);
        assert_eq!(read(&server), expected, "{case:?}");
        assert_eq!((&*found.run_id, &found.origin), (own, &expected.origin));
        assert_eq!(found.is_durable, expected.is_durable, "{case:?}");
        let from = expected.counted_from(is_strict);
        let loss = (from > 0).then(|| Loss {
            age: Duration::from_millis(now - from),
            sign: expected.sign(before_it.as_ref()),
        });
        assert_eq!(found.loss, loss, "{case:?}");
        assert!(loss.is_some() || !is_strict, "{case:?}");
        // A second observation changes nothing. The second client may know the origin or not.
        for known in ["", &*expected.origin] {
            ask(known, None);
            assert_eq!(read(&server), expected, "{case:?}");
        }
    }
}

/// A master that lost its locks before the known origin last answered is another server. Each row
/// has the milliseconds since the loss, the milliseconds since the last answer, and whether the
/// master is another server.
const OTHERS: [(u64, u64, bool); 3] = [
    (500_000, 900_000, false),
    (500_000, 100_000, true),
    (500_000, 0, true),
];

#[test]
fn a_memory_master_that_is_another_one_starts_a_new_quarantine() {
    for (age, away, is_another) in OTHERS {
        let world = World {
            own: &"00".repeat(20),
            replid: "0a",
            now: 1_000_000,
        };
        let mut record = world.record((Own, Now, Own, false, Then));
        record.since -= age;
        let observation = Observation {
            known: &known_by(world.id(Old), away),
            is_strict: STRICT,
            is_durable: None,
        };
        let after = RestartRecord::observed(
            Some(record.clone()),
            observation,
            world.process(),
            world.now,
        );
        assert_eq!(after != record, is_another, "{age} {away}");
        assert_eq!(after.since == world.now, is_another, "{age} {away}");
        assert_eq!(after.seen == world.now, is_another, "{age} {away}");
    }
}

#[test]
fn a_server_that_is_another_one_starts_a_new_quarantine() {
    if server::only_urls() {
        return;
    }
    let server = Server::start();
    let (own, replid) = ids(&server);
    let (own, replid) = (&*own, &*replid);
    for (age, away, is_another) in OTHERS {
        let now = clock(&server);
        let world = World { own, replid, now };
        let mut record = world.record((Own, Now, Own, false, Then));
        record.since -= age;
        server.command(&["DEL", KEY]);
        write(&server, &record);
        let (known, away) = (world.id(Old), away.to_string());
        let words = ["EVAL", TEXT, "1", KEY, &known, "strict", "", &away];
        let (_, now) = run(&server, &words);
        if is_another {
            (record.since, record.seen) = (now, now);
        }
        assert_eq!(read(&server), record, "{age} {away}");
    }
}

/// Two origins that a caller knows for one master, with the milliseconds since their last answers.
/// The `bool` tells whether a master that lost its locks 500 s ago starts a new quarantine.
type Several = ([(Id, u64); 2], bool);

const SEVERAL: &[Several] = &[
    ([(Own, 1), (Old, 900_000)], false),
    ([(Own, 1), (Old, 100_000)], true),
    ([(Old, 100_000), (Own, 1)], true),
    ([(Old, 900_000), (Older, 100_000)], true),
];

#[test]
fn each_of_several_known_origins_counts() {
    let server = (!server::only_urls()).then(Server::start);
    for &(known, is_another) in SEVERAL {
        let world = World {
            own: &"00".repeat(20),
            replid: "0a",
            now: 1_000_000,
        };
        let key = |world: &World<'_>| {
            let mut record = world.record((Own, Now, Own, false, Then));
            record.since -= 500_000;
            record
        };
        let of = |world: &World<'_>| known.map(|(id, away)| (world.id(id), away));
        let observation = Observation {
            known: &of(&world),
            is_strict: false,
            is_durable: None,
        };
        let after =
            RestartRecord::observed(Some(key(&world)), observation, world.process(), world.now);
        assert_eq!(after.since == world.now, is_another, "{known:?}");

        let Some(server) = &server else {
            continue;
        };
        let (own, replid) = ids(server);
        let world = World {
            own: &own,
            replid: &replid,
            now: clock(server),
        };
        server.command(&["DEL", KEY]);
        write(server, &key(&world));
        let [(one, away), (other, silence)] = of(&world).map(|(id, away)| (id, away.to_string()));
        let mut words = vec!["EVAL", TEXT, "1", KEY, &one, "observed", "", &away];
        words.extend([&*other, &silence]);
        let (_, now) = run(server, &words);
        assert_eq!(read(server).since == now, is_another, "{known:?}");
    }
}

/// Replication ids in a record of the process that is asked, and whether that process lost its
/// locks.
const REPLIDS: [(&str, bool); 3] = [
    ("own", false),
    ("0123456789abcdef0123456789abcdef01234567", true),
    ("somebody's", true),
];

#[test]
fn a_process_with_another_replication_id_lost_its_locks() {
    let server = (!server::only_urls()).then(Server::start);
    let (own, own_replid) = server.as_ref().map_or_else(Default::default, ids);
    for ((replid, is_lost), since, is_strict) in
        REPLIDS.into_iter().flat_map(|(replid, is_lost)| {
            [(Never, OBSERVED), (Then, OBSERVED), (Then, STRICT)]
                .map(|(since, is_strict)| ((replid, is_lost), since, is_strict))
        })
    {
        let found = |world: &World<'_>| RestartRecord {
            replid: replid.replace("own", world.replid),
            ..world.record((Own, since, Own, false, Then))
        };
        let expected = |world: &World<'_>| match is_lost {
            true => world.record((Own, Now, Own, false, Now)),
            false => world.record((Own, since, Own, false, Then)),
        };
        let world = World {
            own: &"00".repeat(20),
            replid: "0a",
            now: 1_000,
        };
        let known = known_by(world.id(Own), 1);
        let observation = Observation {
            known: &known,
            is_strict,
            is_durable: None,
        };
        let record =
            RestartRecord::observed(Some(found(&world)), observation, world.process(), world.now);
        assert_eq!(record, expected(&world), "{replid}");

        let Some(server) = &server else {
            continue;
        };
        let world = |now| World {
            own: &own,
            replid: &own_replid,
            now,
        };
        server.command(&["DEL", KEY]);
        write(server, &found(&world(clock(server))));
        let (asked, now) = ask(server, &own, is_strict, None);
        assert_eq!(read(server), expected(&world(now)), "{replid}");
        if is_lost {
            assert_eq!(asked.loss.unwrap().sign, Sign::Promoted);
        }
    }
}

/// Returns the run id and the replication id.
fn ids(server: &Server) -> (String, String) {
    let info = server.command(&["INFO"]);
    let id = |name| {
        let id = info.lines().find_map(|line| line.strip_prefix(name));
        id.unwrap().trim().to_owned()
    };
    (id("run_id:"), id("master_replid:"))
}

/// Returns the reply of the script, and the time of the server.
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
    run(
        server,
        &["EVAL", TEXT, "1", KEY, known, mode, durability, &away],
    )
}

fn run(server: &Server, words: &[&str]) -> (Incarnation, u64) {
    let reply = server.command(words);
    let now = reply.split(' ').nth(1).and_then(|now| now.parse().ok());
    let found = Incarnation::parse(&reply);
    (found.expect(&reply), now.unwrap())
}

fn write(server: &Server, record: &RestartRecord) {
    let (since, seen) = (record.since.to_string(), record.seen.to_string());
    let durable = if record.is_durable { "1" } else { "0" };
    let mut words = vec!["HSET", KEY, "run_id", &record.run_id, "since", &since];
    words.extend(["origin", &record.origin, "durable", durable]);
    words.extend(["seen", &seen, "replid", &record.replid]);
    server.command(&words);
}

fn read(server: &Server) -> RestartRecord {
    let fields = ["run_id", "since", "origin", "durable", "seen", "replid"];
    let reply = server.command(&[&["HMGET", KEY][..], &fields].concat());
    let lines: Vec<_> = reply.lines().collect();
    let [run_id, since, origin, durable, seen, replid] = lines[..] else {
        panic!("{reply}");
    };
    RestartRecord {
        run_id: run_id.to_owned(),
        since: since.parse().unwrap(),
        origin: origin.to_owned(),
        is_durable: durable == "1",
        seen: seen.parse().unwrap(),
        replid: replid.to_owned(),
    }
}

/// Returns the server's clock in milliseconds.
fn clock(server: &Server) -> u64 {
    let reply = server.command(&["TIME"]);
    let (seconds, micros) = reply.split_once('\n').unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    number(seconds) * 1_000 + number(micros) / 1_000
}
