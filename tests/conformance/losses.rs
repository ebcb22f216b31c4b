//! The rule of the quarantine, as its script applies it after random events.

use std::collections::BTreeMap;

use super::{origin::FIELDS, *};
use crate::core::restart::{Incarnation, Loss, ORIGIN_KEY, Quarantine, origin_arguments};

/// The run ids of processes.
const IDS: [&str; 4] = ["a0", "a1", "a2", "a3"];

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
    master: MemoryMaster,
    now: u64,
    restarts: usize,
    /// A replica that has copied the keys after the first dial.
    copied: Option<MemoryMaster>,
    /// The time when locks were last lost.
    lost: u64,
    /// For each client process, the run id that it knows, and the time when it last heard from it.
    known: [Option<(String, u64)>; 4],
}

impl DialledMaster {
    fn new() -> Self {
        Self {
            master: MemoryMaster::new(),
            now: 0,
            restarts: 0,
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
        self.master.set_millis(self.now);
        match *event {
            Event::Wait(_) => return None,
            Event::Dial {
                process,
                quarantine,
            } => return Some(self.dial(process, quarantine)),
            Event::Restart { is_saved } => {
                self.restarts += 1;
                self.master.set_run_id(&format!("b{}", self.restarts));
                if !is_saved {
                    self.master.delete(ORIGIN_KEY);
                }
            }
            Event::Flush => self.master.forget(),
            Event::Resync { has_keys } => {
                let copied = self.copied.clone().filter(|_| has_keys);
                self.master.resync(&copied.unwrap_or_default());
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
        let found = ask(&self.master, &known, quarantine);
        self.known[process] = Some((found.run_id.clone(), self.now));
        self.copied.get_or_insert_with(|| {
            let replica = MemoryMaster::new();
            replica.resync(&self.master);
            replica
        });
        counted_from(&found, self.now)
    }
}

fn ask(master: &MemoryMaster, known: &[(String, u64)], quarantine: Quarantine) -> Incarnation {
    master.ask_guard(&origin_arguments(known, quarantine))
}

/// Returns the time from which a client counts the quarantine, or 0.
fn counted_from(found: &Incarnation, now: u64) -> u64 {
    let age = |loss: Loss| u64::try_from(loss.age.as_millis()).unwrap();
    found.loss.map_or(0, |loss| now - age(loss))
}

fn record(master: &MemoryMaster) -> BTreeMap<String, String> {
    master.hash(ORIGIN_KEY).unwrap_or_default()
}

/// Returns a strategy for observations. Each has the known run id and the quarantine.
fn any_observation() -> impl Strategy<Value = (Option<usize>, Quarantine)> {
    (prop::option::of(0..4usize), any_quarantine())
}

fn knows(known: Option<usize>, away: u64) -> Vec<(String, u64)> {
    let known = known.into_iter();
    known.map(|known| (IDS[known].to_owned(), away)).collect()
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
        let master = MemoryMaster::new();
        master.set_run_id(IDS[1]);
        for (now, (known, quarantine)) in (1..).zip(observations) {
            master.set_millis(now);
            ask(&master, &knows(known, u64::MAX), quarantine);
        }
        let before = record(&master);
        master.set_run_id(IDS[2]);
        master.set_millis(100);
        ask(&master, &knows(known, u64::MAX), quarantine);
        let after = record(&master);
        prop_assert_eq!(&after["run_id"], IDS[2]);
        let is_new = before.is_empty() && known.is_none() && quarantine == Quarantine::Observed;
        prop_assert_eq!(&after["since"], if is_new { "0" } else { "100" });
        prop_assert_eq!(&after["seen"], "100");
    }

    /// If a second observation counted as another loss, every connection would start another
    /// quarantine.
    #[test]
    fn a_second_observation_changes_nothing(
        found in prop::option::of(("a[0-2]", 0..200u64, 1..200u64, any::<bool>())),
        (known, quarantine) in any_observation(),
    ) {
        let master = MemoryMaster::new();
        master.set_run_id(IDS[1]);
        master.set_millis(100);
        ask(&master, &[], quarantine); // writes the replication id
        let replid = record(&master).remove("replid").unwrap();
        master.delete(ORIGIN_KEY);
        if let Some((run_id, since, seen, is_promoted)) = found {
            let replid = if is_promoted { "0".to_owned() } else { replid };
            let (since, seen) = (since.to_string(), seen.to_string());
            let values = [run_id, since, seen, replid];
            master.set_hash(ORIGIN_KEY, FIELDS.into_iter().zip(values), None);
        }
        let run_id = ask(&master, &knows(known, 50), quarantine).run_id;
        let expected = record(&master);
        let number = |field: &str| expected[field].parse::<u64>().unwrap();
        prop_assert!(number("since") <= 100 && (1..=100).contains(&number("seen")));
        master.set_millis(150);
        ask(&master, &[(run_id, 0)], quarantine);
        prop_assert_eq!(&record(&master), &expected);
        ask(&master, &[], quarantine);
        prop_assert_eq!(&record(&master), &expected);
    }
}
