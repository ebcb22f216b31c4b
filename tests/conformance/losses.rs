//! The rule of the quarantine, as its script applies it after random events.

use std::collections::BTreeMap;

use quorlock_memory::heart::{Data, Server, Version};

use super::{
    origin::{FIELDS, TEXT},
    plain::text,
    *,
};
use crate::core::restart::{DataLoss, Incarnation, ORIGIN_KEY, Quarantine, origin_arguments};

/// The origins that clients know: those of other servers, and of the processes of the master.
fn ids() -> [String; 4] {
    let mut server = Server::new(NAME, Version::default());
    let first = info(&mut server, "run_id:");
    server.restart(Data::new());
    let second = info(&mut server, "run_id:");
    ["a0".to_owned(), first, second, "a3".to_owned()]
}

const NAME: &str = "losses";

/// Returns the value of a line in the reply to INFO.
fn info(server: &mut Server, name: &str) -> String {
    let info = text(&server.run(&["INFO"], 0));
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap().to_owned()
}

/// An event on a master.
#[derive(Clone, Debug)]
enum Event {
    Wait(u64),
    /// The process ends, and a new one starts. The keys come back if they were saved.
    Restart {
        is_saved: bool,
    },
    /// A `FLUSHALL`. It breaks no connection.
    Flush,
    /// The process becomes a replica, and a master again. It takes over earlier keys, or none.
    Resync {
        has_keys: bool,
    },
    /// A client process dials the master. It knows the run id that its last dial found.
    Dial {
        process: usize,
        quarantine: Quarantine,
    },
}

fn any_quarantine() -> impl Strategy<Value = Quarantine> {
    prop_oneof![Just(Quarantine::Observed), Just(Quarantine::Strict)]
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (1..50u64).prop_map(Event::Wait),
        1 => any::<bool>().prop_map(|is_saved| Event::Restart { is_saved }),
        1 => Just(Event::Flush),
        1 => any::<bool>().prop_map(|has_keys| Event::Resync { has_keys }),
        4 => (0..4usize, any_quarantine()).prop_map(|(process, quarantine)| Event::Dial { process, quarantine }),
    ]
}

/// A master, and the knowledge of its clients.
struct DialledMaster {
    master: Server,
    now: u64,
    /// The keys after the first dial, as a replica has copied them.
    copied: Option<Data>,
    /// The time when locks were last lost.
    lost: u64,
    /// For each client process, the run id that it knows, and the time when it last heard from it.
    known: [Option<(String, u64)>; 4],
}

impl DialledMaster {
    fn new() -> Self {
        Self {
            master: Server::new(NAME, Version::default()),
            now: 0,
            copied: None,
            lost: 0,
            known: Default::default(),
        }
    }

    /// Runs `event`. For a dial, returns the time from which the client counts the quarantine.
    fn run(&mut self, event: &Event) -> Option<u64> {
        self.now += 1;
        if let Event::Wait(millis) = *event {
            self.now += millis;
        }
        match *event {
            Event::Wait(_) => return None,
            Event::Dial {
                process,
                quarantine,
            } => return Some(self.dial(process, quarantine)),
            Event::Restart { is_saved } => {
                let saved = self.master.snapshot();
                let saved = if is_saved { saved } else { Data::new() };
                self.master.restart(saved);
            }
            Event::Flush => self.master.flush(),
            Event::Resync { has_keys } => {
                let copied = self.copied.clone().filter(|_| has_keys);
                self.master.resync(copied.unwrap_or_default());
            }
        }
        self.lost = self.now;
        None
    }

    fn dial(&mut self, process: usize, quarantine: Quarantine) -> u64 {
        let known = self.known[process].iter();
        let known: Vec<_> = known
            .map(|(run_id, answered)| (run_id.clone(), self.now - answered + 1))
            .collect();
        let found = ask(&mut self.master, self.now, &known, quarantine);
        self.known[process] = Some((found.run_id.clone(), self.now));
        self.copied.get_or_insert_with(|| self.master.snapshot());
        counted_from(&found, self.now)
    }
}

/// Runs the script at `now`, in milliseconds.
fn ask(
    master: &mut Server,
    now: u64,
    known: &[(String, u64)],
    quarantine: Quarantine,
) -> Incarnation {
    let arguments = origin_arguments(known, quarantine);
    let mut words = vec!["EVAL", TEXT, "1", ORIGIN_KEY];
    words.extend(arguments.iter().map(String::as_str));
    let reply = text(&master.run(&words, now * 1_000));
    Incarnation::parse(&reply).expect(&reply)
}

/// Returns the time from which a client counts the quarantine, or 0.
fn counted_from(found: &Incarnation, now: u64) -> u64 {
    let age = |loss: DataLoss| u64::try_from(loss.age.as_millis()).unwrap();
    found.loss.map_or(0, |loss| now - age(loss))
}

fn record(master: &mut Server) -> BTreeMap<String, String> {
    let reply = text(&master.run(&["HGETALL", ORIGIN_KEY], 0));
    let lines: Vec<_> = reply.lines().map(str::to_owned).collect();
    let pairs = lines.chunks(2);
    pairs
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

/// Returns a strategy for observations. Each has the known run id and the quarantine.
fn any_observation() -> impl Strategy<Value = (Option<usize>, Quarantine)> {
    (prop::option::of(0..4usize), any_quarantine())
}

fn knows(known: Option<usize>, away: u64) -> Vec<(String, u64)> {
    let known = known.into_iter();
    known.map(|known| (ids()[known].clone(), away)).collect()
}

proptest! {
    /// This is true for any clients that came before, regardless of what they knew.
    #[test]
    fn a_strict_client_counts_from_after_the_last_loss(
        events in prop::collection::vec(any_event(), 1..30),
    ) {
        let mut master = DialledMaster::new();
        for event in events {
            let from = master.run(&event);
            if let (Some(from), Event::Dial { quarantine: Quarantine::Strict, .. }) = (from, &event) {
                prop_assert!(from > 0 && from >= master.lost, "{from} {}", master.lost);
                prop_assert!(from <= master.now);
            }
        }
    }

    /// So a master that others have used for longer than a quarantine can vote at once.
    #[test]
    fn a_strict_client_counts_from_the_first_dial_if_nothing_was_lost(
        dials in prop::collection::vec((1..50u64, 0..4usize, any_quarantine()), 1..10),
    ) {
        let mut master = DialledMaster::new();
        let mut first = None;
        for (wait, process, quarantine) in dials {
            master.run(&Event::Wait(wait));
            let from = master.run(&Event::Dial { process, quarantine }).unwrap();
            let first = *first.get_or_insert(master.now);
            let is_trusted = from == 0 && quarantine == Quarantine::Observed;
            prop_assert!(from == first || is_trusted, "{from} {first}");
        }
    }

    /// The first observation after a restart notices the restart, except if there was none before.
    #[test]
    fn a_restart_is_a_quarantine(
        observations in prop::collection::vec(any_observation(), 0..6),
        (known, quarantine) in any_observation(),
    ) {
        let mut master = Server::new(NAME, Version::default());
        for (now, (known, quarantine)) in (1..).zip(observations) {
            ask(&mut master, now, &knows(known, u64::MAX), quarantine);
        }
        let before = record(&mut master);
        let saved = master.snapshot();
        master.restart(saved);
        ask(&mut master, 100, &knows(known, u64::MAX), quarantine);
        let after = record(&mut master);
        prop_assert_eq!(&after["run_id"], &ids()[2]);
        let is_new = before.is_empty() && known.is_none() && quarantine == Quarantine::Observed;
        prop_assert_eq!(&after["since"], if is_new { "0" } else { "100" });
        prop_assert_eq!(&after["seen"], "100");
    }

    /// If a second observation counted as another loss, every connection would start another
    /// quarantine.
    #[test]
    fn a_second_observation_changes_nothing(
        found in prop::option::of((0..3usize, 0..200u64, 1..200u64, any::<bool>())),
        (known, quarantine) in any_observation(),
    ) {
        let mut master = Server::new(NAME, Version::default());
        let replid = info(&mut master, "master_replid:");
        if let Some((run_id, since, seen, is_promoted)) = found {
            let replid = if is_promoted { "0".to_owned() } else { replid };
            let (since, seen) = (since.to_string(), seen.to_string());
            let values = [ids()[run_id].clone(), since, seen, replid];
            let fields = FIELDS.into_iter().zip(&values);
            let fields: Vec<_> = fields.flat_map(|(field, value)| [field, value]).collect();
            master.run(&[&["HSET", ORIGIN_KEY][..], &fields].concat(), 0);
        }
        let run_id = ask(&mut master, 100, &knows(known, 50), quarantine).run_id;
        let expected = record(&mut master);
        let number = |field: &str| expected[field].parse::<u64>().unwrap();
        prop_assert!(number("since") <= 100 && (1..=100).contains(&number("seen")));
        ask(&mut master, 150, &[(run_id, 0)], quarantine);
        prop_assert_eq!(&record(&mut master), &expected);
        ask(&mut master, 150, &[], quarantine);
        prop_assert_eq!(&record(&mut master), &expected);
    }
}
