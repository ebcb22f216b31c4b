//! Masters that may have lost locks, and when they may vote again.

use std::time::Duration;

use super::time::lease::{Drift, Ttl};

/// The protection against masters that may have lost locks. A master can lose locks by a restart or
/// by `FLUSHALL`, or because a replica takes its place or it was a replica meanwhile.
///
/// A master that may have lost locks is quarantined. It must not vote until no client holds a lock
/// that it may have lost. The coordinator stores the key `quorlock:guard` on every master, and
/// reads the key on every dial. A key whose contents make no sense counts as changed. A connection
/// ends when the master reports that all of its keys were deleted or replaced, so that the next
/// dial reads the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartGuard {
    /// No protection. A master that restarts without its data may grant a lock that another client
    /// holds.
    Off,
    /// Quarantines a master whose run id or replication id differs from that in its key. Also
    /// quarantines a master without the key, if any coordinator of this process has used the master
    /// before. Otherwise, a master without the key counts as new. If a master cannot be asked, for
    /// example without the right to `INFO`, it is used without protection, and the log says so.
    #[default]
    Observed,
    /// Does the same as `Observed`, but quarantines every master without the key, even if the
    /// master is used for the first time. If other processes counted a master as new, its
    /// quarantine starts at the time when the first of them saw it. A master that cannot be asked
    /// is not used.
    Strict,
}

/// Returns the length of a quarantine. No client holds a lock for longer than `max_ttl` without
/// another vote. Only locks that were left in place for a minimum time, which no client holds, may
/// stay for longer.
pub(crate) fn quarantine(max_ttl: Ttl, drift: Drift) -> Duration {
    /// The minimum for fencing tokens. A candidate may be one second above or below a master's
    /// clock. The clock of a master may be wrong by half a second, before and after the loss.
    const TOKENS: Duration = Duration::from_secs(3);
    let ttl = max_ttl.duration();
    ttl.saturating_add(drift.allowance(ttl)).max(TOKENS)
}

/// The contents of a master's guard key. Times are in milliseconds of the master's clock.
#[cfg(any(test, feature = "test-util"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestartRecord {
    /// The run id of the server process that was seen last.
    pub(crate) run_id: String,
    /// The time when the master was first seen to have lost locks. 0 if the master is not known to
    /// have lost any.
    pub(crate) since: u64,
    /// The run id of the first process in the chain of processes that handed all their data down to
    /// this one.
    pub(crate) origin: String,
    /// `true` if the process is known to lose nothing when it ends.
    pub(crate) is_durable: bool,
    /// The time when the key was first written. Never 0.
    pub(crate) seen: u64,
    /// The replication id of that process.
    pub(crate) replid: String,
}

/// The server process that a client asks.
#[cfg(any(test, feature = "test-util"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process<'a> {
    pub(crate) run_id: &'a str,
    /// The replication id. A process gets a new one whenever it is promoted.
    pub(crate) replid: &'a str,
}

/// The facts that a client knows when it observes a master.
#[cfg(any(test, feature = "test-util"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation<'a> {
    /// The origins that the client has seen at this master. Each origin comes with the number of
    /// milliseconds since the client last heard from that origin. Usually there is one origin.
    /// There is none if the client has never seen the master.
    pub(crate) known: &'a [(String, u64)],
    pub(crate) is_strict: bool,
    /// `Some(true)` if the client found the master to be durable. `None` if the client did not ask,
    /// or lacks the right to ask.
    pub(crate) is_durable: Option<bool>,
}

#[cfg(any(test, feature = "test-util"))]
impl RestartRecord {
    /// Returns the record after a client has observed `process`. `found` is the record before. This
    /// function does the same as `lua/shared/guard.lua` for a master whose append-only log is
    /// complete and was loaded at the start.
    pub(crate) fn observed(
        found: Option<Self>,
        observation: Observation<'_>,
        process: Process<'_>,
        now: u64,
    ) -> Self {
        let is_new = found.is_none() && observation.known.is_empty() && !observation.is_strict;
        let since = if is_new { 0 } else { now.max(1) };
        let mut fresh = Self::begin(process, now, observation.is_durable.unwrap_or_default());
        fresh.since = since;
        let Some(mut record) = found else {
            return fresh;
        };
        let strangers = observation
            .known
            .iter()
            .filter(|(known, _)| *known != record.origin);
        let away = strangers.map(|(_, away)| *away).min();
        if record.run_id == process.run_id || mutant!(RunIdIgnored) {
            if record.replid != process.replid && !mutant!(ReplidIgnored) {
                return fresh;
            }
            record.is_durable = observation.is_durable.unwrap_or(record.is_durable);
            let age = now.saturating_sub(record.since);
            // The client knows an origin that is not the origin of this process. The process counts
            // as another server in three cases:
            // - The client that saw the process first did not know that origin. Then `since` is 0.
            // - The process has the data of another origin.
            // - The process lost its locks before the known origin last answered.
            let is_another =
                |away| record.since == 0 || record.origin != process.run_id || age > away;
            if away.is_some_and(is_another) {
                record = Self::begin(process, now, record.is_durable);
            }
        } else if record.is_durable && observation.is_durable == Some(true) && away.is_none() {
            process.run_id.clone_into(&mut record.run_id);
        } else {
            return fresh;
        }
        process.replid.clone_into(&mut record.replid);
        // The clock may have been set back.
        record.since = record.since.min(now);
        record.seen = record.seen.min(now);
        record
    }

    /// Returns the time from which a client counts the quarantine. 0 if the master is not known to
    /// have lost locks.
    ///
    /// A `since` of 0 means that a client counted the master as new. That client knew nothing about
    /// the master, so a strict client does not rely on it. A strict client counts from `seen`, the
    /// time when the record was first written. A master that loses locks after that time also loses
    /// the record, or gets another run id or replication id. So all other losses came before
    /// `seen`.
    pub(crate) fn counted_from(&self, is_strict: bool) -> u64 {
        if self.since == 0 && is_strict && !mutant!(StrictTrusts) {
            self.seen
        } else {
            self.since
        }
    }

    /// Returns what told the client that made this record of `found` that the master lost locks.
    pub(crate) fn sign(&self, found: Option<&Self>) -> Sign {
        let Some(found) = found else {
            return if self.since == 0 {
                Sign::Earlier
            } else {
                Sign::Missing
            };
        };
        if found.run_id != self.run_id && self.origin == self.run_id {
            Sign::Restarted
        } else if found.replid != self.replid {
            Sign::Promoted
        } else if found.origin != self.origin || found.since < self.since {
            Sign::Replaced
        } else {
            Sign::Earlier
        }
    }

    /// Returns the record of a process that has only data of its own.
    fn begin(process: Process<'_>, now: u64, is_durable: bool) -> Self {
        Self {
            run_id: process.run_id.to_owned(),
            since: now.max(1),
            origin: process.run_id.to_owned(),
            is_durable,
            seen: now.max(1),
            replid: process.replid.to_owned(),
        }
    }
}

/// A loss of locks, as a dial found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The time since the master was first seen to have lost locks.
    pub(crate) age: Duration,
    pub(crate) sign: Sign,
}

/// The sign that a master may have lost locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "redis", feature = "test-util")),
    expect(dead_code, reason = "there are no masters")
)]
pub(crate) enum Sign {
    /// The record is that of an earlier dial, which does not tell.
    Earlier,
    Missing,
    Promoted,
    Replaced,
    Restarted,
}

impl Sign {
    /// Returns the sign for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Earlier => "as an earlier connection found, perhaps of another program",
            Self::Missing => {
                "its guard key is missing: it restarted without its data, its keys were deleted, \
                 or it is new"
            }
            Self::Promoted => "its replication id is new: it may have been a replica",
            Self::Replaced => "it is not the server that was here before",
            Self::Restarted => "its run id is new: it restarted, or a replica took its place",
        }
    }
}

/// The state in which a dial found a master.
#[cfg(any(test, feature = "redis"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incarnation {
    pub(crate) run_id: String,
    pub(crate) origin: String,
    /// `None` if the master is not known to have lost any locks.
    pub(crate) loss: Option<Loss>,
    pub(crate) is_durable: bool,
}

#[cfg(any(test, feature = "redis"))]
impl Incarnation {
    /// Reads the reply of `lua/shared/guard.lua`. Returns `None` if the reply makes no sense.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split(' ').collect();
        let [since, now, run_id, origin, durability, sign] = words[..] else {
            return None;
        };
        let (since, now): (u64, u64) = (since.parse().ok()?, now.parse().ok()?);
        if run_id.is_empty() || origin.is_empty() {
            return None;
        }
        let sign = match sign {
            "earlier" => Sign::Earlier,
            "missing" => Sign::Missing,
            "promoted" => Sign::Promoted,
            "replaced" => Sign::Replaced,
            "restarted" => Sign::Restarted,
            _ => return None,
        };
        let age = Duration::from_millis(now.saturating_sub(since));
        Some(Self {
            run_id: run_id.to_owned(),
            origin: origin.to_owned(),
            loss: (since > 0).then_some(Loss { age, sign }),
            is_durable: match durability {
                "durable" => true,
                "volatile" => false,
                _ => return None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quarantine_outlasts_every_lock_and_the_difference_of_clocks() {
        let drift = Drift::from_ppm(10_000).unwrap();
        let ttl =
            |seconds| Ttl::parse(Duration::from_secs(seconds), Duration::ZERO, drift).unwrap();
        assert_eq!(quarantine(ttl(60), drift), Duration::from_millis(60_602));
        assert_eq!(quarantine(ttl(1), drift), Duration::from_secs(3));
    }

    #[test]
    fn incarnation_table() {
        let loss = |age, sign| {
            let age = Duration::from_millis(age);
            Some(Loss { age, sign })
        };
        let (old, gone) = (loss(1_000, Sign::Earlier), loss(0, Sign::Missing));
        for (text, run_id, origin, loss, is_durable) in [
            ("0 5 abc abc volatile earlier", "abc", "abc", None, false),
            ("5 1005 abc def durable earlier", "abc", "def", old, true),
            ("9 5 abc abc volatile missing", "abc", "abc", gone, false),
        ] {
            let found = Incarnation::parse(text).unwrap();
            assert_eq!((&*found.run_id, &*found.origin), (run_id, origin));
            assert_eq!(found.loss, loss, "{text}");
            assert_eq!(found.is_durable, is_durable);
        }
        for text in [
            "",
            "0 5",
            "0 5 ",
            "0 5 abc",
            "0 5 abc abc durable",
            "0 5  abc durable earlier",
            "0 5 abc  durable earlier",
            "x 5 abc abc durable earlier",
            "0 5 abc abc lasting earlier",
            "0 5 abc abc durable later",
            "0 5 abc abc durable earlier ",
        ] {
            assert_eq!(Incarnation::parse(text), None, "{text}");
        }
    }

    /// Returns a process that never was a replica.
    fn process(run_id: &str) -> Process<'_> {
        Process {
            run_id,
            replid: "0",
        }
    }

    #[test]
    fn a_process_is_another_server_unless_it_lost_its_locks_after_the_known_origin_answered() {
        for (since, origin, away, is_another) in [
            (0, "b", 1_000, true),  // a client counted it as new
            (40, "a", 1_000, true), // its data is that of a third server
            (40, "b", 59, true),
            (40, "b", 60, false),
            (40, "b", 61, false),
        ] {
            let found = RestartRecord {
                since,
                origin: origin.to_owned(),
                ..RestartRecord::begin(process("b"), 40, false)
            };
            let observation = Observation {
                known: &[("known".to_owned(), away)],
                is_strict: false,
                is_durable: None,
            };
            let record =
                RestartRecord::observed(Some(found.clone()), observation, process("b"), 100);
            let expected = match is_another {
                true => RestartRecord::begin(process("b"), 100, false),
                false => found,
            };
            assert_eq!(record, expected, "{since} {origin} {away}");
        }
    }

    #[test]
    fn a_strict_client_counts_from_the_first_record_if_others_counted_the_master_as_new() {
        for (since, is_strict, from) in [(0, true, 10), (0, false, 0), (40, true, 40)] {
            let record = RestartRecord {
                since,
                ..RestartRecord::begin(process("b"), 10, false)
            };
            assert_eq!(record.counted_from(is_strict), from, "{since} {is_strict}");
        }
    }

    #[test]
    fn a_process_that_was_promoted_lost_its_locks() {
        for (replid, is_lost) in [("0", false), ("1", true)] {
            let found = RestartRecord {
                replid: replid.to_owned(),
                ..RestartRecord::begin(process("b"), 40, true)
            };
            let observation = Observation {
                known: &[],
                is_strict: false,
                is_durable: None,
            };
            let record = RestartRecord::observed(Some(found), observation, process("b"), 100);
            let expected = match is_lost {
                true => RestartRecord::begin(process("b"), 100, false),
                false => RestartRecord::begin(process("b"), 40, true),
            };
            assert_eq!(record, expected, "{replid}");
        }
    }

    /// Returns a strategy for observations. Each has the number of the known origin, `true` for a
    /// strict client, and the durability that the client found.
    fn any_observation() -> impl Strategy<Value = (Option<usize>, bool, Option<bool>)> {
        let known = prop::option::of(0..4usize);
        (known, any::<bool>(), any::<Option<bool>>())
    }

    fn any_record() -> impl Strategy<Value = RestartRecord> {
        let fields = (
            "r[0-2]",
            0..200u64,
            "r[0-2]",
            any::<bool>(),
            1..200u64,
            "[0-2]",
        );
        fields.prop_map(
            |(run_id, since, origin, is_durable, seen, replid)| RestartRecord {
                run_id,
                since,
                origin,
                is_durable,
                seen,
                replid,
            },
        )
    }

    /// An event on a master that is not durable.
    #[derive(Clone, Debug)]
    enum Event {
        Wait(u64),
        /// The process ends, and a new one starts. The key comes back if the data was saved.
        Restart {
            is_saved: bool,
        },
        /// A `FLUSHALL`. It breaks no connection.
        Flush,
        /// The process becomes a replica, and a master again. It takes over an earlier key, or
        /// none.
        Resync {
            has_key: bool,
        },
        /// A client process dials the master. The process knows the origin that its last dial
        /// found.
        Dial {
            process: usize,
            is_strict: bool,
        },
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            2 => (1..50u64).prop_map(Event::Wait),
            1 => any::<bool>().prop_map(|is_saved| Event::Restart { is_saved }),
            1 => Just(Event::Flush),
            1 => any::<bool>().prop_map(|has_key| Event::Resync { has_key }),
            4 => (0..4usize, any::<bool>())
                .prop_map(|(process, is_strict)| Event::Dial { process, is_strict }),
        ]
    }

    /// A master, and the knowledge of its clients.
    #[derive(Default)]
    struct DialledMaster {
        now: u64,
        restarts: usize,
        promotions: usize,
        key: Option<RestartRecord>,
        /// The first key, which a replica has copied.
        copied: Option<RestartRecord>,
        /// The time when locks were last lost.
        lost: u64,
        /// For each client process, the origin that it knows, and the time when it last heard from
        /// that origin.
        known: [Option<(String, u64)>; 4],
    }

    impl DialledMaster {
        /// Runs `event`. For a dial, returns the time from which the client counts the quarantine.
        fn run(&mut self, event: &Event) -> Option<u64> {
            self.now += 1;
            match *event {
                Event::Wait(millis) => self.now += millis,
                Event::Restart { is_saved } => {
                    self.restarts += 1;
                    self.lost = self.now;
                    self.key = self.key.take().filter(|_| is_saved);
                }
                Event::Flush => {
                    self.lost = self.now;
                    self.key = None;
                }
                Event::Resync { has_key } => {
                    self.promotions += 1;
                    self.lost = self.now;
                    self.key = self.copied.clone().filter(|_| has_key);
                }
                Event::Dial { process, is_strict } => {
                    return Some(self.dial(process, is_strict));
                }
            }
            None
        }

        fn dial(&mut self, process: usize, is_strict: bool) -> u64 {
            let known = self.known[process].iter();
            let known: Vec<_> = known
                .map(|(origin, answered)| (origin.clone(), self.now - answered + 1))
                .collect();
            let observation = Observation {
                known: &known,
                is_strict,
                is_durable: None,
            };
            let run_id = &format!("r{}", self.restarts);
            let replid = &format!("p{}", self.promotions);
            let asked = Process { run_id, replid };
            let record = RestartRecord::observed(self.key.take(), observation, asked, self.now);
            self.known[process] = Some((record.origin.clone(), self.now));
            let from = record.counted_from(is_strict);
            self.copied.get_or_insert_with(|| record.clone());
            self.key = Some(record);
            from
        }
    }

    proptest! {
        /// This is true for any clients that came before, regardless of what they knew.
        #[test]
        fn a_strict_client_counts_from_after_the_last_loss(
            events in prop::collection::vec(any_event(), 1..30),
        ) {
            let mut master = DialledMaster::default();
            for event in events {
                let from = master.run(&event);
                if let (Some(from), Event::Dial { is_strict: true, .. }) = (from, &event) {
                    prop_assert!(from > 0 && from >= master.lost, "{from} {}", master.lost);
                    prop_assert!(from <= master.now);
                }
            }
        }

        /// So a master that others have used for longer than a quarantine can vote at once.
        #[test]
        fn a_strict_client_counts_from_the_first_dial_if_nothing_was_lost(
            dials in prop::collection::vec((1..50u64, 0..4usize, any::<bool>()), 1..10),
        ) {
            let mut master = DialledMaster::default();
            let mut first = None;
            for (wait, process, is_strict) in dials {
                master.run(&Event::Wait(wait));
                let from = master.run(&Event::Dial { process, is_strict }).unwrap();
                let first = *first.get_or_insert(master.now);
                prop_assert!(from == first || (from == 0 && !is_strict), "{from} {first}");
            }
        }

        /// The first observation after a restart notices the restart, except if the process before
        /// was recorded as durable.
        #[test]
        fn a_restart_is_a_quarantine_unless_it_was_durable_before_and_is_now(
            observations in prop::collection::vec(any_observation(), 0..6),
            (known, is_strict, is_durable) in any_observation(),
        ) {
            let ids = ["r0", "r1", "r2", "r3"];
            let knows = |known: Option<usize>| -> Vec<_> {
                known.iter().map(|known| (ids[*known].to_owned(), u64::MAX)).collect()
            };
            let mut record = None;
            for (now, (known, is_strict, is_durable)) in observations.into_iter().enumerate() {
                let observation = Observation { known: &knows(known), is_strict, is_durable };
                record = Some(RestartRecord::observed(record, observation, process("r1"), now as u64 + 1));
            }
            let before = record.clone();
            let observation = Observation { known: &knows(known), is_strict, is_durable };
            let after = RestartRecord::observed(record, observation, process("r2"), 100);
            prop_assert_eq!(&after.run_id, "r2");
            let is_kept = after.since != 100;
            match before {
                Some(before) if is_kept => {
                    prop_assert!(before.is_durable && is_durable == Some(true));
                    prop_assert!(known.is_none_or(|known| ids[known] == before.origin));
                    let is_same = (after.since, after.seen) == (before.since, before.seen);
                    prop_assert!(is_same && after.origin == before.origin);
                }
                Some(_) => prop_assert_eq!(after.origin, "r2"),
                None => prop_assert_eq!(is_kept, known.is_none() && !is_strict),
            }
        }

        /// If a second observation counted as another loss, every connection would start another
        /// quarantine.
        #[test]
        fn a_second_observation_changes_nothing(
            found in prop::option::of(any_record()),
            (known, is_strict, is_durable) in any_observation(),
        ) {
            let known: Vec<_> = known.iter().map(|known| (format!("r{known}"), 50)).collect();
            let observation = Observation { known: &known, is_strict, is_durable };
            let record = RestartRecord::observed(found, observation, process("r1"), 100);
            prop_assert!(record.since <= 100 && (1..=100).contains(&record.seen));
            let known = [(record.origin.clone(), 0)];
            let again = Observation { known: &known, is_strict, is_durable };
            prop_assert_eq!(&RestartRecord::observed(Some(record.clone()), again, process("r1"), 150), &record);
            let newcomer = Observation { known: &[], is_strict, is_durable: None };
            prop_assert_eq!(&RestartRecord::observed(Some(record.clone()), newcomer, process("r1"), 150), &record);
        }
    }
}
