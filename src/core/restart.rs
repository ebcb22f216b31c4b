//! Masters that may have forgotten locks: when one may vote again.

use std::time::Duration;

use super::lease::{Drift, Ttl};

/// What is done about masters that may have forgotten the locks they held: by a restart, `FLUSHALL`, or a replica in
/// their place.
///
/// Such a master must not vote until every lock that it may have forgotten is over: that is its quarantine. The
/// coordinator keeps a key on every master, `quorlock:guard`, and looks at it on every dial. One that makes no sense
/// has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartGuard {
    /// Nothing. A master that restarts empty may grant a lock that others hold.
    Off,
    /// A master that has another run id than its key says, or no key where this process has seen it
    /// before (whichever coordinator it was), is quarantined. One that nobody has a memory of is
    /// taken for new. One that cannot be asked (no right to `INFO`, say) is not watched, and the
    /// log says so.
    #[default]
    Observed,
    /// As `Observed`, and a master without the key is quarantined, too; also when it is used for
    /// the first time. A master that others took for new is quarantined from when the first of them
    /// saw it. One that cannot be asked is not used.
    Strict,
}

/// For how long a master that forgot must not vote, where no lock lives longer than `max_ttl`.
pub(crate) fn quarantine(max_ttl: Ttl, drift: Drift) -> Duration {
    /// Candidates for fencing tokens may be a second off either way, and clocks of masters half a second.
    const TOKENS: Duration = Duration::from_secs(3);
    let ttl = max_ttl.duration();
    ttl.saturating_add(drift.allowance(ttl)).max(TOKENS)
}

/// What a master's guard key says; times in ms of the master's clock.
#[cfg(any(test, feature = "test-util"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardRecord {
    /// The process that was seen last.
    pub(crate) run_id: String,
    /// When the master was first seen to have forgotten; 0: never, as far as anybody knows.
    pub(crate) since: u64,
    /// The first one of the processes that have handed all they knew down to this one.
    pub(crate) origin: String,
    /// Whether it is known to lose nothing when it ends.
    pub(crate) is_durable: bool,
    /// When the key was written first; 0 if an earlier version wrote it, which did not store the
    /// time.
    pub(crate) seen: u64,
}

/// Who looks at a master.
#[cfg(any(test, feature = "test-util"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation<'a> {
    /// The origins that this one knows the master by, and for how many milliseconds it has not
    /// heard from each. Usually one; none where it has never seen the master.
    pub(crate) known: &'a [(String, u64)],
    pub(crate) is_strict: bool,
    /// Whether the master was found to be durable; `None`: nobody asked, or nobody may.
    pub(crate) is_durable: Option<bool>,
}

#[cfg(any(test, feature = "test-util"))]
impl GuardRecord {
    /// What the key of a master says after a look at the process `run_id`, and before it was `found` to say: what
    /// `lua/shared/guard.lua` makes of it, when the log of the master is in order.
    pub(crate) fn looked_at(
        found: Option<Self>,
        look: Observation<'_>,
        run_id: &str,
        now: u64,
    ) -> Self {
        let is_new = found.is_none() && look.known.is_empty() && !look.is_strict;
        let since = if is_new { 0 } else { now.max(1) };
        let mut fresh = Self::begin(run_id, now, look.is_durable.unwrap_or_default());
        fresh.since = since;
        let Some(mut mark) = found else {
            return fresh;
        };
        let strangers = look.known.iter().filter(|(known, _)| *known != mark.origin);
        let away = strangers.map(|(_, away)| *away).min();
        if mark.run_id == run_id {
            mark.is_durable = look.is_durable.unwrap_or(mark.is_durable);
            let age = now.saturating_sub(mark.since);
            // Whoever saw it first did not know it; or what it was handed down is not what this one knows; or it forgot
            // before the one that is known was last heard from, so it is another server.
            let is_another = |away| mark.since == 0 || mark.origin != run_id || age > away;
            if away.is_some_and(is_another) {
                mark = Self::begin(run_id, now, mark.is_durable);
            }
        } else if mark.is_durable && look.is_durable == Some(true) && away.is_none() {
            run_id.clone_into(&mut mark.run_id);
        } else {
            return fresh;
        }
        // A clock that was set back.
        mark.since = mark.since.min(now);
        mark.seen = if mark.seen == 0 {
            now
        } else {
            mark.seen.min(now)
        };
        mark
    }

    /// Returns when the master may last have forgotten locks, as far as a look may rely on this; 0:
    /// never.
    ///
    /// Whoever took the master for new knew nothing about it, which is not enough for a strict
    /// look. But what the master forgot, it forgot before the key was there: what loses locks loses
    /// the key, or has another run id.
    pub(crate) fn counted_from(&self, is_strict: bool) -> u64 {
        if self.since == 0 && is_strict {
            self.seen
        } else {
            self.since
        }
    }

    /// A process that was handed nothing down.
    fn begin(run_id: &str, now: u64, is_durable: bool) -> Self {
        Self {
            run_id: run_id.to_owned(),
            since: now.max(1),
            origin: run_id.to_owned(),
            is_durable,
            seen: now.max(1),
        }
    }
}

/// A master as it was found on a dial.
#[cfg(any(test, feature = "redis"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incarnation {
    pub(crate) run_id: String,
    pub(crate) origin: String,
    /// How long ago it may have forgotten locks; `None`: not that anybody knows.
    pub(crate) age: Option<Duration>,
    pub(crate) is_durable: bool,
}

#[cfg(any(test, feature = "redis"))]
impl Incarnation {
    /// See `lua/shared/guard.lua`. `None` when it makes no sense.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split(' ').collect();
        let [since, now, run_id, origin, durability] = words[..] else {
            return None;
        };
        let (since, now): (u64, u64) = (since.parse().ok()?, now.parse().ok()?);
        if run_id.is_empty() || origin.is_empty() {
            return None;
        }
        Some(Self {
            run_id: run_id.to_owned(),
            origin: origin.to_owned(),
            age: (since > 0).then(|| Duration::from_millis(now.saturating_sub(since))),
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
    fn longer_than_any_lock_and_than_clocks_are_apart() {
        let drift = Drift::from_ppm(10_000).unwrap();
        let ttl =
            |seconds| Ttl::parse(Duration::from_secs(seconds), Duration::ZERO, drift).unwrap();
        assert_eq!(quarantine(ttl(60), drift), Duration::from_millis(60_602));
        assert_eq!(quarantine(ttl(1), drift), Duration::from_secs(3));
    }

    #[test]
    fn incarnation_table() {
        for (text, run_id, origin, age, is_durable) in [
            ("0 5 abc abc volatile", "abc", "abc", None, false),
            ("5 1005 abc def durable", "abc", "def", Some(1_000), true),
            ("9 5 abc abc volatile", "abc", "abc", Some(0), false),
        ] {
            let found = Incarnation::parse(text).unwrap();
            assert_eq!((&*found.run_id, &*found.origin), (run_id, origin));
            assert_eq!(found.age, age.map(Duration::from_millis), "{text}");
            assert_eq!(found.is_durable, is_durable);
        }
        for text in [
            "",
            "0 5",
            "0 5 ",
            "0 5 abc",
            "0 5  abc durable",
            "0 5 abc  durable",
            "x 5 abc abc durable",
            "0 5 abc abc lasting",
            "0 5 abc abc durable ",
        ] {
            assert_eq!(Incarnation::parse(text), None, "{text}");
        }
    }

    /// Whoever comes in whatever order, with or without a memory, allowed to ask or not.
    fn any_look() -> impl Strategy<Value = (Option<usize>, bool, Option<bool>)> {
        let known = prop::option::of(0..4usize);
        (known, any::<bool>(), any::<Option<bool>>())
    }

    /// What happens to a master whose locks do not last, and who comes.
    #[derive(Clone, Debug)]
    enum Event {
        Wait(u64),
        /// Its process ends. The key may come back with what was saved.
        Restart {
            is_saved: bool,
        },
        /// `FLUSHALL`, for which no connection breaks.
        Flush,
        /// A process dials it, which goes by what it was told the last time it did.
        Observation {
            process: usize,
            is_strict: bool,
        },
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            2 => (1..50u64).prop_map(Event::Wait),
            1 => any::<bool>().prop_map(|is_saved| Event::Restart { is_saved }),
            1 => Just(Event::Flush),
            4 => (0..4usize, any::<bool>())
                .prop_map(|(process, is_strict)| Event::Observation { process, is_strict }),
        ]
    }

    /// A master, and what its visitors remember.
    #[derive(Default)]
    struct Visited {
        now: u64,
        restarts: usize,
        key: Option<GuardRecord>,
        /// When locks were last forgotten.
        forgot: u64,
        /// For each process, the origin that it knows and when it heard from it.
        known: [Option<(String, u64)>; 4],
    }

    impl Visited {
        /// Returns when a look counts from, if `event` is one.
        fn run(&mut self, event: &Event) -> Option<u64> {
            self.now += 1;
            match *event {
                Event::Wait(millis) => self.now += millis,
                Event::Restart { is_saved } => {
                    self.restarts += 1;
                    self.forgot = self.now;
                    self.key = self.key.take().filter(|_| is_saved);
                }
                Event::Flush => {
                    self.forgot = self.now;
                    self.key = None;
                }
                Event::Observation { process, is_strict } => {
                    return Some(self.look(process, is_strict));
                }
            }
            None
        }

        fn look(&mut self, process: usize, is_strict: bool) -> u64 {
            let known = self.known[process].iter();
            let known: Vec<_> = known
                .map(|(origin, heard)| (origin.clone(), self.now - heard + 1))
                .collect();
            let look = Observation {
                known: &known,
                is_strict,
                is_durable: None,
            };
            let run_id = format!("r{}", self.restarts);
            let mark = GuardRecord::looked_at(self.key.take(), look, &run_id, self.now);
            self.known[process] = Some((mark.origin.clone(), self.now));
            let from = mark.counted_from(is_strict);
            self.key = Some(mark);
            from
        }
    }

    proptest! {
        /// Whoever else came before, and however little they knew.
        #[test]
        fn a_strict_look_counts_from_after_whatever_was_forgotten(
            events in prop::collection::vec(any_event(), 1..30),
        ) {
            let mut master = Visited::default();
            for event in events {
                let from = master.run(&event);
                if let (Some(from), Event::Observation { is_strict: true, .. }) = (from, &event) {
                    prop_assert!(from > 0 && from >= master.forgot, "{from} {}", master.forgot);
                    prop_assert!(from <= master.now);
                }
            }
        }

        /// So that masters which others have used for long are used at once.
        #[test]
        fn a_strict_look_counts_from_the_first_look_where_nothing_was_forgotten(
            looks in prop::collection::vec((1..50u64, 0..4usize, any::<bool>()), 1..10),
        ) {
            let mut master = Visited::default();
            let mut first = None;
            for (wait, process, is_strict) in looks {
                master.run(&Event::Wait(wait));
                let from = master.run(&Event::Observation { process, is_strict }).unwrap();
                let first = *first.get_or_insert(master.now);
                prop_assert!(from == first || (from == 0 && !is_strict), "{from} {first}");
            }
        }

        /// As long as nobody saw the process before as durable, a restart is noticed by the first who looks.
        #[test]
        fn a_restart_is_a_quarantine_unless_it_was_durable_before_and_is_now(
            looks in prop::collection::vec(any_look(), 0..6),
            (known, is_strict, is_durable) in any_look(),
        ) {
            let ids = ["r0", "r1", "r2", "r3"];
            let knows = |known: Option<usize>| -> Vec<_> {
                known.iter().map(|known| (ids[*known].to_owned(), u64::MAX)).collect()
            };
            let mut mark = None;
            for (now, (known, is_strict, is_durable)) in looks.into_iter().enumerate() {
                let look = Observation { known: &knows(known), is_strict, is_durable };
                mark = Some(GuardRecord::looked_at(mark, look, "r1", now as u64 + 1));
            }
            let before = mark.clone();
            let look = Observation { known: &knows(known), is_strict, is_durable };
            let after = GuardRecord::looked_at(mark, look, "r2", 100);
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

        /// Else every connection would begin a quarantine anew.
        #[test]
        fn who_looks_again_finds_what_there_was(
            found in prop::option::of(("r[0-2]", 0..200u64, "r[0-2]", any::<bool>(), 0..200u64)),
            (known, is_strict, is_durable) in any_look(),
        ) {
            let found = found.map(|(run_id, since, origin, is_durable, seen)| GuardRecord {
                run_id, since, origin, is_durable, seen,
            });
            let known: Vec<_> = known.iter().map(|known| (format!("r{known}"), 50)).collect();
            let look = Observation { known: &known, is_strict, is_durable };
            let mark = GuardRecord::looked_at(found, look, "r1", 100);
            prop_assert!(mark.since <= 100 && (1..=100).contains(&mark.seen));
            let known = [(mark.origin.clone(), 0)];
            let again = Observation { known: &known, is_strict, is_durable };
            prop_assert_eq!(&GuardRecord::looked_at(Some(mark.clone()), again, "r1", 150), &mark);
            let newcomer = Observation { known: &[], is_strict, is_durable: None };
            prop_assert_eq!(&GuardRecord::looked_at(Some(mark.clone()), newcomer, "r1", 150), &mark);
        }
    }
}
