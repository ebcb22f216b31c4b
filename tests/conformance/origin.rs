//! The origin script: it must keep the same record on a memory master and on a server.

use std::array;

use super::{plain::Plain, *};
use crate::core::{
    kind::script::{LOOK, ORIGIN},
    protocol::connection_name::ConnectionName,
    restart::{DataLoss, Incarnation, ORIGIN_KEY, Quarantine, Sign, origin_arguments},
};

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

/// Three fields of an origin record in their order: `run_id`, `since` and `seen`. The fourth,
/// `replid`, is that of the process that is asked.
type Row = (Id, At, At);
/// The record before, the process that the caller knows, the caller's quarantine, and the record
/// after.
type Case = (Option<Row>, Id, Quarantine, Row);

/// The name of the caller's connections.
const NAME: &str = "quorlock:e257988200000000:26610b92:60000:-";

/// The milliseconds since the known process last answered. This is longer than the time since
/// [`Then`].
const LONG_AGO: u64 = 1 << 50;

const OBSERVED: Quarantine = Quarantine::Observed;
const STRICT: Quarantine = Quarantine::Strict;
const NEVER: Option<Row> = Some((Own, Never, Then));
const THEN: Option<Row> = Some((Own, Then, Then));

const CASES: &[Case] = &[
    // There is no key.
    (None, Nobody, OBSERVED, (Own, Never, Now)),
    (None, Nobody, STRICT, (Own, Now, Now)),
    (None, Own, OBSERVED, (Own, Now, Now)),
    (None, Old, OBSERVED, (Own, Now, Now)),
    (None, Own, STRICT, (Own, Now, Now)),
    // The process that is asked wrote the record.
    (NEVER, Nobody, OBSERVED, (Own, Never, Then)),
    (NEVER, Own, OBSERVED, (Own, Never, Then)),
    (NEVER, Nobody, STRICT, (Own, Never, Then)),
    (NEVER, Own, STRICT, (Own, Never, Then)),
    (THEN, Nobody, OBSERVED, (Own, Then, Then)),
    (THEN, Own, STRICT, (Own, Then, Then)),
    (THEN, Old, OBSERVED, (Own, Then, Then)),
    // The clock was set back.
    (Some((Own, Later, Then)), Own, OBSERVED, (Own, Now, Then)),
    (Some((Own, Never, Later)), Nobody, STRICT, (Own, Never, Now)),
    // The client that saw the process first had met no other. The second client has.
    (NEVER, Old, OBSERVED, (Own, Now, Now)),
    // Another process wrote the record.
    (Some((Old, Never, Then)), Nobody, OBSERVED, (Own, Now, Now)),
    (Some((Old, Never, Then)), Old, OBSERVED, (Own, Now, Now)),
    (Some((Old, Then, Then)), Nobody, STRICT, (Own, Now, Now)),
    (Some((Old, Then, Then)), Own, OBSERVED, (Own, Now, Now)),
    (Some((Old, Later, Later)), Old, OBSERVED, (Own, Now, Now)),
];

/// The fields of an origin record.
const FIELDS: [&str; 4] = ["run_id", "since", "seen", "replid"];

type Record = [String; 4];

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

    fn record(&self, (run_id, since, seen): Row) -> Record {
        [
            self.id(run_id),
            self.at(since).to_string(),
            self.at(seen).to_string(),
            self.replid.clone(),
        ]
    }

    /// Returns the record of a process that lost its locks `age` milliseconds ago.
    fn lost(&self, age: u64) -> Record {
        let mut record = self.record((Own, Now, Then));
        record[1] = (self.now - age).to_string();
        record
    }

    /// Returns the processes that a caller knows.
    fn known(&self, ids: &[(Id, u64)]) -> Vec<(String, u64)> {
        let ids = ids.iter().filter(|(id, _)| *id != Nobody);
        ids.map(|(id, away)| (self.id(*id), *away)).collect()
    }
}

/// A master that runs the script.
struct Asked(Plain);

impl Asked {
    /// Returns a memory master, whose clock stands still, and a server if one can be started.
    fn all() -> Vec<Self> {
        let memory = MemoryMaster::new();
        memory.set_clock(0, -1_000_000);
        let mut all = vec![Self(Plain::Memory(memory))];
        if !server::only_urls() {
            all.push(Self(Plain::Server(Server::start())));
        }
        all
    }

    fn world(&self) -> World {
        let info = self.0.command(&["INFO"]);
        let id = |name| {
            let id = info.lines().find_map(|line| line.strip_prefix(name));
            id.unwrap().trim().to_owned()
        };
        World {
            own: id("run_id:"),
            replid: id("master_replid:"),
            now: self.0.clock(),
        }
    }

    fn write(&self, record: Option<&Record>) {
        self.0.command(&["DEL", ORIGIN_KEY]);
        let Some(record) = record else {
            return;
        };
        let fields = FIELDS.into_iter().zip(record.iter().map(String::as_str));
        let fields: Vec<_> = fields.flat_map(|(field, value)| [field, value]).collect();
        self.0
            .command(&[&["HSET", ORIGIN_KEY][..], &fields].concat());
    }

    fn read(&self) -> Record {
        let reply = self
            .0
            .command(&[&["HMGET", ORIGIN_KEY][..], &FIELDS].concat());
        let mut lines = reply.lines().map(str::to_owned);
        array::from_fn(|_| lines.next().unwrap())
    }

    /// Runs the script. Also returns the clock that the script saw.
    fn ask(&self, known: &[(String, u64)], quarantine: Quarantine) -> (Incarnation, u64) {
        self.ask_as(NAME, known, quarantine)
    }

    /// Runs the script for a connection with this `name`.
    fn ask_as(
        &self,
        name: &str,
        known: &[(String, u64)],
        quarantine: Quarantine,
    ) -> (Incarnation, u64) {
        let arguments = origin_arguments(name, known, quarantine);
        let mut words = vec!["EVAL", ORIGIN.text(), "1", ORIGIN_KEY];
        words.extend(arguments.iter().map(String::as_str));
        let reply = self.0.command(&words);
        let now = reply.split(' ').nth(1).and_then(|now| now.parse().ok());
        (Incarnation::parse(&reply).expect(&reply), now.unwrap())
    }

    fn check(&self, case: &Case) {
        let (found, known, quarantine, expected) = *case;
        let world = self.world();
        self.write(found.map(|found| world.record(found)).as_ref());
        let known = world.known(&[(known, LONG_AGO)]);
        let (incarnation, now) = self.ask(&known, quarantine);
        let world = World { now, ..world };
        let record = world.record(expected);
        assert_eq!(self.read(), record, "{case:?}");
        let from = match expected.1 {
            Never if quarantine == STRICT => expected.2,
            since => since,
        };
        let loss = (from != Never).then(|| DataLoss {
            age: Duration::from_millis(now - world.at(from)),
            sign: sign(found, expected),
        });
        let expected = Incarnation {
            run_id: world.own,
            loss,
            others: Vec::new(),
        };
        assert_eq!(incarnation, expected, "{case:?}");
        assert!(loss.is_some() || quarantine != STRICT, "{case:?}");
        // A second observation changes nothing. The second client may know the process or not.
        for known in [vec![], vec![(expected.run_id, LONG_AGO)]] {
            self.ask(&known, quarantine);
            assert_eq!(self.read(), record, "{case:?}");
        }
    }
}

/// Returns the sign that a master lost its locks, if its record was `found` and then is `expected`.
fn sign(found: Option<Row>, expected: Row) -> Sign {
    let is_reset = expected.1 == Now;
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
        CASES.iter().for_each(|case| asked.check(case));
    }
}

/// A master that lost its locks before a known process last answered is another server. Each row
/// has the milliseconds since the loss, two processes that the caller knows with the milliseconds
/// since their last answers, and whether the master is another server.
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
        let exact = match asked.0 {
            Plain::Memory(_) => EXACT,
            Plain::Server(_) => &[],
        };
        for &(age, known, is_another) in OTHERS.iter().chain(exact) {
            for quarantine in [OBSERVED, STRICT] {
                let world = asked.world();
                let found = world.lost(age);
                asked.write(Some(&found));
                let (_, now) = asked.ask(&world.known(&known), quarantine);
                let world = World { now, ..world };
                let expected = match is_another {
                    true => world.record((Own, Now, Now)),
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
            let same = world.record((Own, since, Then));
            let mut found = same.clone();
            found[3] = replid.replace("own", &world.replid);
            asked.write(Some(&found));
            let (found, now) = asked.ask(&world.known(&[(Own, 1)]), quarantine);
            let world = World { now, ..world };
            let lost = world.record((Own, Now, Now));
            assert_eq!(asked.read(), if is_lost { lost } else { same }, "{replid}");
            let is_promoted = found.loss.is_some_and(|loss| loss.sign == Sign::Promoted);
            assert_eq!(is_promoted, is_lost, "{replid}");
        }
    }
}

type Others = Vec<ConnectionName>;

/// The text of an entry of programs that were seen at their last dial. The times are in milliseconds
/// before now.
fn entry(now: u64, first: u64, last: u64, name: &str) -> String {
    seen_later(now, first, last, last, name)
}

fn seen_later(now: u64, first: u64, last: u64, seen: u64, name: &str) -> String {
    let [first, last, seen] = [first, last, seen].map(|age| now - age);
    format!("{first} {last} {seen} {name}")
}

impl Asked {
    /// Writes these entries, and returns the others that the caller is told of, and all entries.
    fn note(&self, entries: &[(usize, String)]) -> (Others, Vec<(usize, String)>) {
        self.noted(entries, || self.ask(&[], OBSERVED).0.others)
    }

    /// Does the same with a look.
    fn note_look(&self, entries: &[(usize, String)]) -> (Others, Vec<(usize, String)>) {
        let look = || {
            self.0
                .command(&["EVAL", LOOK.text(), "1", ORIGIN_KEY, NAME])
        };
        self.noted(entries, || {
            look()
                .split(' ')
                .filter_map(ConnectionName::parse)
                .collect()
        })
    }

    fn noted(
        &self,
        entries: &[(usize, String)],
        note: impl FnOnce() -> Others,
    ) -> (Others, Vec<(usize, String)>) {
        self.write(None);
        for (at, text) in entries {
            let field = format!("lists.{at}");
            self.0.command(&["HSET", ORIGIN_KEY, &field, text]);
        }
        let others = note();
        let kept = (0..32).filter_map(|at| {
            let text = self
                .0
                .command(&["HGET", ORIGIN_KEY, &format!("lists.{at}")]);
            (!["", "(nil)"].contains(&&*text)).then_some((at, text))
        });
        (others, kept.collect())
    }
}

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Each dial leaves an entry, which tells of the program when it is gone.
#[test]
fn a_dial_leaves_its_lists() {
    let own = format!("{}a/1", NAME.trim_end_matches('-'));
    let old_lists = NAME.replace("e2579882", "00000001");
    let longer = NAME.replace("60000", "70000");
    for asked in Asked::all() {
        let now = asked.0.clock();
        let at = |text: &str| text.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
        let is_now = |text: &str| at(text) >= now && text.ends_with(NAME);

        let (others, kept) = asked.note(&[]);
        assert_eq!((others.len(), kept.len(), kept[0].0), (0, 1, 0));
        assert!(is_now(&kept[0].1), "{kept:?}");

        // A program that takes no lock leaves nothing, and begins the quarantine all the same.
        asked.write(None);
        let (looked, _) = asked.ask_as("", &[], STRICT);
        assert!(looked.loss.is_some() && looked.others.is_empty());
        let left = asked.0.command(&["HGET", ORIGIN_KEY, "lists.0"]);
        assert!(["", "(nil)"].contains(&&*left), "{left}");

        // It takes the place of other programs with the same settings.
        let (_, kept) = asked.note(&[(7, entry(now, DAY, 1, &own))]);
        assert!(
            kept.len() == 1 && kept[0].0 == 7 && is_now(&kept[0].1),
            "{kept:?}"
        );
        let first = kept[0].1.split(' ').next().unwrap();
        assert_eq!(first, (now - DAY).to_string(), "the first dial stays known");

        // What is a week old, in the future or no entry goes. The oldest entry gives way.
        let gone = [
            (1, entry(now, 9 * DAY, 7 * DAY + MINUTE, &old_lists)),
            (2, format!("{now} {now} {} {longer}", now + HOUR)),
            (5, "x".to_owned()),
            (
                6,
                entry(now, 1, 1, &format!("{old_lists}{}", "x".repeat(1_000))),
            ),
            (7, entry(now, 1, 2, &longer)),
        ];
        let (others, kept) = asked.note(&gone);
        assert_eq!((others.len(), kept.len()), (0, 1), "{kept:?}");
        let full = (0..32).map(|at| {
            let other = NAME.replace("e2579882", &format!("{:08x}", at + 1));
            (
                at,
                entry(now, DAY, 5 * HOUR + if at == 9 { HOUR } else { 0 }, &other),
            )
        });
        let full: Vec<_> = full.collect();
        let (_, kept) = asked.note(&full);
        assert_eq!(kept.len(), 32);
        let changed = kept.iter().zip(&full).filter(|(kept, full)| kept != full);
        let changed: Vec<_> = changed.map(|(kept, _)| (kept.0, is_now(&kept.1))).collect();
        assert_eq!(changed, [(9, true)]);
    }
}

/// Programs that are there now, or were together with those with the settings of the caller, may hold
/// one lock with it.
#[test]
fn a_dial_is_told_of_programs_with_other_settings() {
    let old_lists = NAME.replace("e2579882", "00000001");
    let longer = NAME.replace("60000", "70000");
    let own = format!("{}a/1", NAME.trim_end_matches('-'));
    for asked in Asked::all() {
        let now = asked.0.clock();
        let ours = |first, seen| Some((3, entry(now, first, seen, NAME)));
        for (ours, (first, seen, name), is_told) in [
            (ours(DAY, MINUTE), (2 * DAY, 2 * MINUTE, &old_lists), true),
            (ours(DAY, MINUTE), (2 * DAY, HOUR, &old_lists), true),
            (
                ours(DAY, MINUTE),
                (2 * DAY, HOUR + 2 * MINUTE, &old_lists),
                false,
            ),
            (ours(DAY, MINUTE), (2 * DAY, 2 * MINUTE, &longer), true),
            (ours(DAY, MINUTE), (2 * DAY, 2 * MINUTE, &own), false),
            // A change of the masters: these ended before ours began, or ours before they began.
            (ours(MINUTE, 0), (DAY, MINUTE + 1, &old_lists), false),
            (None, (DAY, MINUTE + 1, &old_lists), false),
            (ours(2 * DAY, DAY), (HOUR, MINUTE + 1, &old_lists), false),
            // They have not ended.
            (None, (DAY, MINUTE / 2, &old_lists), true),
            (ours(2 * DAY, DAY), (HOUR, MINUTE / 2, &old_lists), true),
        ] {
            let theirs = (4, entry(now, first, seen, name));
            let entries: Vec<_> = ours.into_iter().chain([theirs]).collect();
            let told: Vec<_> = asked
                .note(&entries)
                .0
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(told.contains(name), is_told, "{entries:?}");
        }
        // With a short longest TTL, a new program comes soon after those before it, but no old one.
        let short = NAME.replace("60000", "10000");
        let told = |entries: &[_]| {
            let ask = || asked.ask_as(&short, &[], OBSERVED).0.others;
            asked.noted(entries, ask).0.len()
        };
        let theirs = (4, entry(now, HOUR, MINUTE / 2, &old_lists));
        assert_eq!(told(std::slice::from_ref(&theirs)), 0);
        assert_eq!(told(&[(3, entry(now, 2 * DAY, DAY, &short)), theirs]), 1);
    }
}

/// A program that stays connected is no job that dials again, but others must know of it.
#[test]
fn a_look_leaves_that_the_program_is_still_there() {
    let other_lists = NAME.replace("e2579882", "00000001");
    for asked in Asked::all() {
        let now = asked.0.clock();
        let times = |text: &str| -> Vec<u64> {
            let words = text.split(' ').take(3);
            words.map(|word| word.parse().unwrap()).collect()
        };
        let ours = |seen| (3, seen_later(now, 2 * DAY, DAY, seen, NAME));
        let (_, kept) = asked.note_look(&[ours(MINUTE / 2 + 1)]);
        let noted = times(&kept[0].1);
        assert_eq!(noted[..2], [now - 2 * DAY, now - DAY], "no dial");
        assert!(noted[2] >= now, "{kept:?}");
        let young = [ours(MINUTE / 4)];
        assert_eq!(asked.note_look(&young).1, young);
        // Others are told of it, and it is told of others.
        let theirs = (3, seen_later(now, 2 * DAY, DAY, MINUTE / 2, &other_lists));
        assert_eq!(asked.note(std::slice::from_ref(&theirs)).0.len(), 1);
        assert_eq!(asked.note_look(&[theirs]).0.len(), 1);

        // A look leaves nothing by which a master without a record would count as known.
        asked.note_look(&[]);
        assert_eq!(asked.ask(&[], OBSERVED).0.loss, None);
    }
}

/// A name of another library makes no sense, and the dial works all the same.
#[test]
fn an_entry_that_cannot_be_left_fails_no_dial() {
    for asked in Asked::all() {
        asked.write(None);
        let (found, _) = asked.ask_as("redlock", &[], OBSERVED);
        assert_eq!((found.loss, found.others), (None, vec![]));
    }
}
