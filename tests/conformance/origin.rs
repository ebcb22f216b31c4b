//! The origin script: it must keep the same record on a memory master and on a server.

use std::array;

use super::*;
use crate::core::restart::{Incarnation, Loss, ORIGIN_KEY, Quarantine, Sign, origin_arguments};

const TEXT: &str = include_str!("../../lua/shared/origin.lua");

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

/// Five fields of an origin record in their order: `run_id`, `since`, `origin`, `durable` and
/// `seen`. `lua/shared/origin.lua` explains them. The sixth, `replid`, is that of the process that
/// is asked.
type Row = (Id, At, Id, bool, At);
/// The record before, the origin that the caller knows, the caller's quarantine, the
/// durability that the caller found, and the record after.
type Case = (Option<Row>, Id, Quarantine, Option<bool>, Row);

/// The milliseconds since the known origin last answered. This is longer than the time since
/// [`Then`].
const LONG_AGO: u64 = 1 << 50;

const OBSERVED: Quarantine = Quarantine::Observed;
const STRICT: Quarantine = Quarantine::Strict;
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

/// The fields of an origin record.
pub(super) const FIELDS: [&str; 6] = ["run_id", "since", "origin", "durable", "seen", "replid"];

type Record = [String; 6];

/// The values of `Own` and `Now` in the table.
struct World {
    own: String,
    replid: String,
    now: u64,
}

impl World {
    fn id(&self, id: Id) -> String {
        match id {
            Own => self.own.clone(),
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

    fn record(&self, (run_id, since, origin, is_durable, seen): Row) -> Record {
        [
            self.id(run_id),
            self.at(since).to_string(),
            self.id(origin),
            u8::from(is_durable).to_string(),
            self.at(seen).to_string(),
            self.replid.clone(),
        ]
    }

    /// Returns the record of a process that lost its locks `age` milliseconds ago.
    fn lost(&self, age: u64) -> Record {
        let mut record = self.record((Own, Now, Own, false, Then));
        record[1] = (self.now - age).to_string();
        record
    }

    /// Returns the origins that a caller knows.
    fn known(&self, ids: &[(Id, u64)]) -> Vec<(String, u64)> {
        let ids = ids.iter().filter(|(id, _)| *id != Nobody);
        ids.map(|(id, away)| (self.id(*id), *away)).collect()
    }
}

/// A master that runs the script.
enum Asked {
    Memory(MemoryMaster),
    Server(Server),
}

impl Asked {
    /// The clock of the memory master.
    const MILLIS: u64 = 1_000_000;

    /// Returns a memory master, and a server if one can be started.
    fn all() -> Vec<Self> {
        let memory = MemoryMaster::new();
        memory.set_millis(Self::MILLIS);
        let mut all = vec![Self::Memory(memory)];
        if !server::only_urls() {
            let durable = ["--appendonly", "yes", "--appendfsync", "always"];
            all.push(Self::Server(Server::start_with(&durable)));
        }
        all
    }

    fn world(&self) -> World {
        let info = match self {
            Self::Memory(memory) => memory.info(),
            Self::Server(server) => server.command(&["INFO"]),
        };
        let id = |name| {
            let id = info.lines().find_map(|line| line.strip_prefix(name));
            id.unwrap().trim().to_owned()
        };
        World {
            own: id("run_id:"),
            replid: id("master_replid:"),
            now: self.clock(),
        }
    }

    /// Returns the clock in milliseconds.
    fn clock(&self) -> u64 {
        match self {
            Self::Memory(_) => Self::MILLIS,
            Self::Server(server) => {
                let reply = server.command(&["TIME"]);
                let (seconds, micros) = reply.split_once('\n').unwrap();
                let number = |text: &str| text.parse::<u64>().unwrap();
                number(seconds) * 1_000 + number(micros) / 1_000
            }
        }
    }

    fn write(&self, record: Option<&Record>) {
        match self {
            Self::Memory(memory) => memory.delete(ORIGIN_KEY),
            Self::Server(server) => drop(server.command(&["DEL", ORIGIN_KEY])),
        }
        let Some(record) = record else {
            return;
        };
        let fields = FIELDS.into_iter().zip(record.iter().map(String::as_str));
        match self {
            Self::Memory(memory) => memory.set_hash(ORIGIN_KEY, fields, None),
            Self::Server(server) => {
                let fields: Vec<_> = fields.flat_map(|(field, value)| [field, value]).collect();
                server.command(&[&["HSET", ORIGIN_KEY][..], &fields].concat());
            }
        }
    }

    fn read(&self) -> Record {
        match self {
            Self::Memory(memory) => {
                let record = memory.hash(ORIGIN_KEY).unwrap();
                FIELDS.map(|field| record[field].clone())
            }
            Self::Server(server) => {
                let reply = server.command(&[&["HMGET", ORIGIN_KEY][..], &FIELDS].concat());
                let mut lines = reply.lines().map(str::to_owned);
                array::from_fn(|_| lines.next().unwrap())
            }
        }
    }

    /// Runs the script. Also returns the clock that the script saw.
    fn ask(
        &self,
        known: &[(String, u64)],
        quarantine: Quarantine,
        is_durable: Option<bool>,
    ) -> (Incarnation, u64) {
        let arguments = origin_arguments(known, quarantine, is_durable);
        match self {
            Self::Memory(memory) => (memory.ask_guard(&arguments), Self::MILLIS),
            Self::Server(server) => {
                let mut words = vec!["EVAL", TEXT, "1", ORIGIN_KEY];
                words.extend(arguments.iter().map(String::as_str));
                let reply = server.command(&words);
                let now = reply.split(' ').nth(1).and_then(|now| now.parse().ok());
                (Incarnation::parse(&reply).expect(&reply), now.unwrap())
            }
        }
    }

    fn check(&self, case: &Case) {
        let (found, known, quarantine, is_durable, expected) = *case;
        let world = self.world();
        self.write(found.map(|found| world.record(found)).as_ref());
        let known = world.known(&[(known, LONG_AGO)]);
        let (incarnation, now) = self.ask(&known, quarantine, is_durable);
        let world = World { now, ..world };
        let record = world.record(expected);
        assert_eq!(self.read(), record, "{case:?}");
        let from = match expected.1 {
            Never if quarantine == STRICT => expected.4,
            since => since,
        };
        let loss = (from != Never).then(|| Loss {
            age: Duration::from_millis(now - world.at(from)),
            sign: sign(found, expected),
        });
        let expected = Incarnation {
            run_id: world.own.clone(),
            origin: world.id(expected.2),
            loss,
            is_durable: expected.3,
        };
        assert_eq!(incarnation, expected, "{case:?}");
        assert!(loss.is_some() || quarantine != STRICT, "{case:?}");
        // A second observation changes nothing. The second client may know the origin or not.
        for known in [vec![], vec![(expected.origin, LONG_AGO)]] {
            self.ask(&known, quarantine, None);
            assert_eq!(self.read(), record, "{case:?}");
        }
    }
}

/// Returns the sign that a master lost its locks, if its record was `found` and then is `expected`.
fn sign(found: Option<Row>, expected: Row) -> Sign {
    let is_reset = expected.2 == Own && expected.1 == Now;
    match found {
        None if expected.1 == Never => Sign::Earlier,
        None => Sign::Missing,
        Some((run_id, ..)) if run_id != Own && is_reset => Sign::Restarted,
        Some((_, since, ..)) if since != Later && is_reset => Sign::Replaced,
        Some(_) => Sign::Earlier,
    }
}

#[test]
fn masters_follow_the_table() {
    for asked in Asked::all() {
        if matches!(asked, Asked::Server(_)) && server::is_before_7() {
            continue; // it is never durable
        }
        CASES.iter().for_each(|case| asked.check(case));
    }
}

/// A master that lost its locks before a known origin last answered is another server. Each row has
/// the milliseconds since the loss, two origins that the caller knows with the milliseconds since
/// their last answers, and whether the master is another server.
type Other = (u64, [(Id, u64); 2], bool);

const OTHERS: &[Other] = &[
    (500_000, [(Old, 900_000), (Nobody, 0)], false),
    (500_000, [(Old, 100_000), (Nobody, 0)], true),
    (500_000, [(Old, 0), (Nobody, 0)], true),
    (500_000, [(Own, 1), (Old, 900_000)], false),
    (500_000, [(Own, 1), (Old, 100_000)], true),
    (500_000, [(Old, 100_000), (Own, 1)], true),
    (500_000, [(Old, 900_000), (Older, 100_000)], true),
];

/// The clock of a server moves on while it is asked, so only a memory master follows these rows.
const EXACT: &[Other] = &[
    (500_000, [(Old, 500_000), (Nobody, 0)], false),
    (500_000, [(Old, 499_999), (Nobody, 0)], true),
];

#[test]
fn a_master_that_is_another_one_starts_a_new_quarantine() {
    for asked in Asked::all() {
        let exact = match asked {
            Asked::Memory(_) => EXACT,
            Asked::Server(_) => &[],
        };
        for &(age, known, is_another) in OTHERS.iter().chain(exact) {
            for quarantine in [OBSERVED, STRICT] {
                let world = asked.world();
                let found = world.lost(age);
                asked.write(Some(&found));
                let (_, now) = asked.ask(&world.known(&known), quarantine, None);
                let world = World { now, ..world };
                let expected = match is_another {
                    true => world.record((Own, Now, Own, false, Now)),
                    false => found,
                };
                assert_eq!(asked.read(), expected, "{age} {known:?}");
            }
        }
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
    const SINCE: [(At, Quarantine); 3] = [(Never, OBSERVED), (Then, OBSERVED), (Then, STRICT)];
    for asked in Asked::all() {
        for ((replid, is_lost), (since, quarantine)) in REPLIDS
            .into_iter()
            .flat_map(|replid| SINCE.map(|since| (replid, since)))
        {
            let world = asked.world();
            let same = world.record((Own, since, Own, false, Then));
            let mut found = same.clone();
            found[5] = replid.replace("own", &world.replid);
            asked.write(Some(&found));
            let (found, now) = asked.ask(&world.known(&[(Own, 1)]), quarantine, None);
            let world = World { now, ..world };
            let lost = world.record((Own, Now, Own, false, Now));
            assert_eq!(asked.read(), if is_lost { lost } else { same }, "{replid}");
            let is_promoted = found.loss.is_some_and(|loss| loss.sign == Sign::Promoted);
            assert_eq!(is_promoted, is_lost, "{replid}");
        }
    }
}
