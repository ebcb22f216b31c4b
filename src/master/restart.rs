//! Asks a server, on every dial, whether it may have forgotten locks; and whether it is one that we have already.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use parking_lot::Mutex;

use super::known_origins::KnownOrigins;
use crate::core::restart::RestartGuard;

/// What a dialer goes by.
#[derive(Clone, Debug)]
pub(crate) struct RestartTracker {
    pub(crate) guard: RestartGuard,
    /// Whether masters are said to keep everything over restarts, so that they are asked whether they do.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "servers are asked")
    )]
    pub(super) expects_durable: bool,
    now: fn() -> Instant,
    masters: Arc<Mutex<BTreeMap<usize, Met>>>,
    /// What this process remembers of the master that is dialled.
    known_origins: KnownOrigins,
}

/// A master of this coordinator, as it was found.
#[derive(Debug)]
struct Met {
    /// The run id of the server that it was found to be: none may vote twice. `None` once it was refused as the twin of
    /// another, which may have moved.
    server: Option<String>,
    /// What it remembers goes back to the process with this run id.
    origin: String,
    /// What all coordinators of this process remember of it.
    known_origins: KnownOrigins,
}

/// What a master is told on a dial.
#[derive(Debug)]
pub(super) struct GuardQuery {
    pub(super) master: usize,
    known_origins: KnownOrigins,
    /// The origins that the master is known by, and for how many milliseconds each has not been
    /// heard from.
    pub(super) known: Vec<(String, u64)>,
    asked: Instant,
}

impl RestartTracker {
    pub(crate) fn new(guard: RestartGuard, expects_durable: bool, now: fn() -> Instant) -> Self {
        Self {
            guard,
            expects_durable,
            now,
            masters: Arc::default(),
            known_origins: KnownOrigins::default(),
        }
    }

    /// Returns the same for the dialer of a master of which there are `known_origins`.
    pub(super) fn with(&self, known_origins: &KnownOrigins) -> Self {
        Self {
            known_origins: known_origins.clone(),
            ..self.clone()
        }
    }

    /// Returns the same for the dialer of the master at `place`: its address and database, each of
    /// which has a guard key of its own.
    #[cfg(feature = "redis")]
    pub(super) fn at(&self, place: &str) -> Self {
        match self.guard {
            RestartGuard::Off => self.clone(),
            RestartGuard::Observed | RestartGuard::Strict => self.with(&KnownOrigins::of(place)),
        }
    }

    /// Returns what to tell `master` before it serves.
    pub(super) fn question(&self, master: usize) -> GuardQuery {
        let asked = (self.now)();
        GuardQuery {
            master,
            known_origins: self.known_origins.clone(),
            known: self.known_origins.known(asked),
            asked,
        }
    }

    /// Notes that a master is the server with this run id, and what it remembers, unless another
    /// one is that server.
    pub(super) fn meet(
        &self,
        question: &GuardQuery,
        run_id: &str,
        origin: &str,
    ) -> Result<(), String> {
        let (mut masters, master) = (self.masters.lock(), question.master);
        let is_twin = |met: &Met| met.server.as_deref() == Some(run_id);
        let mut twins = masters.iter().filter(|(_, met)| is_twin(met));
        let twin = twins.find_map(|(other, _)| (*other != master).then_some(other + 1));
        if let Some(twin) = twin {
            // What it was known by stays: it may come back, and have forgotten.
            if let Some(met) = masters.get_mut(&master) {
                met.server = None;
            }
            return Err(format!(
                "it is the same server as master {twin}: every master needs one of its own"
            ));
        }
        let known_origins = question.known_origins.clone();
        known_origins.meet(origin, question.asked, (self.now)())?;
        let met = Met {
            server: Some(run_id.to_owned()),
            origin: origin.to_owned(),
            known_origins,
        };
        masters.insert(master, met);
        Ok(())
    }

    /// Notes when a connection to `master` last had an answer.
    pub(super) fn heard(&self, master: usize, at: Instant) {
        if let Some(met) = self.masters.lock().get(&master) {
            met.known_origins.hear(&met.origin, at);
        }
    }
}

#[cfg(feature = "redis")]
pub(super) use ask::Durability;

#[cfg(feature = "redis")]
mod ask {
    use super::{GuardQuery, RestartGuard, RestartTracker};
    use crate::{
        core::{command::Reply, restart::Incarnation},
        master::redis::encode::encode,
        user_code::shielded,
    };

    const KEY: &[u8] = b"quorlock:guard";
    const TEXT: &str = include_str!("../../lua/shared/guard.lua");

    impl RestartTracker {
        /// Appends the question. `durability` is what the server said of its settings.
        pub(in crate::master) fn ask(
            &self,
            question: &GuardQuery,
            durability: &Durability,
            out: &mut Vec<u8>,
        ) {
            let mode: &[u8] = match self.guard {
                RestartGuard::Strict => b"strict",
                RestartGuard::Off | RestartGuard::Observed => b"observed",
            };
            let durability: &[u8] = match durability {
                Durability::Durable => b"durable",
                Durability::Volatile(_) => b"volatile",
                Durability::Unknown(_) | Durability::Unasked => b"",
            };
            let known = question.known.iter();
            let known: Vec<_> = known
                .map(|(origin, away)| (origin.as_bytes(), away.to_string()))
                .collect();
            let (first, away) = known
                .first()
                .map_or((&b""[..], &b"0"[..]), |(first, away)| {
                    (*first, away.as_bytes())
                });
            let text = TEXT.as_bytes();
            let mut words = vec![b"EVAL", text, b"1", KEY, first, mode, durability, away];
            for (origin, away) in known.iter().skip(1) {
                words.extend([*origin, away.as_bytes()]);
            }
            encode(out, &words);
        }

        /// What the answer says. `None` when it cannot be known, and need not.
        pub(in crate::master) fn answered(
            &self,
            (question, address): (&GuardQuery, &str),
            durability: &Durability,
            reply: &Reply<'_>,
        ) -> Result<Option<Incarnation>, String> {
            let why = match reply {
                Reply::Text(text) => match Incarnation::parse(text) {
                    Some(found) => {
                        self.meet(question, &found.run_id, &found.origin)?;
                        durability.warn_unless(found.is_durable, address);
                        return Ok(Some(found));
                    }
                    None => "it says nothing of use",
                },
                Reply::Error(error) => error,
                _ => "it says nothing of use",
            };
            self.unanswered(address, why)
        }

        fn unanswered(&self, address: &str, why: &str) -> Result<Option<Incarnation>, String> {
            const RIGHTS: &str =
                "its user needs the rights +eval +info +time +hmget +hset ~quorlock:guard";
            let is_denied = is_denied(why);
            if is_denied && self.guard != RestartGuard::Strict {
                shielded(|| {
                    tracing::warn!(master = %address, %why, "nobody would notice if it restarted empty: {RIGHTS}");
                });
                return Ok(None);
            }
            let mut error = format!("whether it restarted cannot be known: {why}");
            if is_denied {
                error.push_str("; ");
                error.push_str(RIGHTS);
                error.push_str(", or the guard must not be strict");
            }
            Err(error)
        }
    }

    /// Whether a server says that it will not answer, however often it is asked. All else may pass: it would serve
    /// unwatched then. Within a script servers of each version say it in words of their own.
    fn is_denied(error: &str) -> bool {
        [
            "NOPERM",
            "no permissions",
            "can't run this command",
            "can't access at least one",
            "nknown command",
            "nsupported command",
            "Unknown Redis command",
            "not allowed from script",
            "no run_id",
        ]
        .iter()
        .any(|word| error.contains(word))
    }

    /// What a server says of its settings.
    #[derive(Debug, PartialEq, Eq)]
    pub(in crate::master) enum Durability {
        /// It fsyncs every write before it answers.
        Durable,
        /// It does not, as this says.
        Volatile(String),
        /// It does not say.
        Unknown(String),
        Unasked,
    }

    impl Durability {
        /// The settings that it takes. The first is also checked by the script.
        pub(in crate::master) const SETTINGS: [(&str, &str); 3] = [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
        ];

        /// Appends the question, which no script may put.
        pub(in crate::master) fn ask(out: &mut Vec<u8>) {
            let settings = Self::SETTINGS.map(|(setting, _)| setting.as_bytes());
            let [first, second, third] = settings;
            encode(out, &[b"CONFIG", b"GET", first, second, third]);
        }

        /// What the values of the settings come to.
        pub(in crate::master) fn of(value: impl Fn(&str) -> Option<String>) -> Self {
            for (setting, wanted) in Self::SETTINGS {
                match value(setting) {
                    Some(value) if value == wanted => {}
                    Some(value) => {
                        return Self::Volatile(format!("{setting} is {value}, not {wanted}"));
                    }
                    None => return Self::Unknown(format!("it does not say what {setting} is")),
                }
            }
            Self::Durable
        }

        fn warn_unless(&self, is_durable: bool, address: &str) {
            let why = match self {
                Self::Unasked => return,
                Self::Durable if is_durable => return,
                Self::Durable => {
                    "it has or had replicas, is a replica that was promoted, is rewriting its log, or is older than \
                     version 7"
                }
                Self::Volatile(why) | Self::Unknown(why) => why,
            };
            shielded(|| {
                tracing::warn!(master = %address, %why, "a restart will cost it its vote for a while: it is not durable");
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::clock;

    /// In the words of Redis 6 and 7, and of Valkey.
    #[cfg(feature = "redis")]
    #[test]
    fn only_who_is_denied_an_answer_may_do_without() {
        use crate::core::command::Reply;

        let denied = [
            "NOPERM this user has no permissions to run the 'eval' command",
            "ERR The user executing the script can't run this command or subcommand script: 9f, on @user_script:1.",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
            "ERR ACL failure in script: User lock has no permissions to run the 'info' command script: 9f",
            "ERR unknown command 'EVAL'",
            "ERR Unknown Redis command called from script script: 9f",
            "ERR This Redis command is not allowed from script",
            "ERR its INFO has no run_id",
        ];
        let passing = [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "MISCONF Errors writing to the AOF file: No space left on device script: 9f",
            "OOM command not allowed when used memory > 'maxmemory'. script: 9f, on @user_script:1.",
            "READONLY You can't write against a read only replica. script: 9f",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "ERR the guard is of another type and cannot be deleted",
        ];
        let denied = denied.map(|error| (error, true));
        for (error, is_denied) in denied
            .into_iter()
            .chain(passing.map(|error| (error, false)))
        {
            let said = |guard| {
                let guarding = RestartTracker::new(guard, false, clock::monotonic);
                let question = guarding.question(0);
                guarding.answered((&question, "m"), &Durability::Unasked, &Reply::Error(error))
            };
            assert_eq!(said(RestartGuard::Observed).is_ok(), is_denied, "{error}");
            let refused = said(RestartGuard::Strict).unwrap_err();
            assert!(refused.contains(error), "{refused}");
            assert_eq!(refused.contains("+hset"), is_denied, "{refused}");
        }
    }

    #[test]
    fn a_twin_is_refused_and_what_it_was_known_by_stays() {
        let guarding = RestartTracker::new(RestartGuard::Observed, false, clock::monotonic);
        let places = [KnownOrigins::default(), KnownOrigins::default()];
        let origin = |master: usize| {
            let mut known = places[master].known(clock::monotonic()).into_iter();
            (known.next().map(|(origin, _)| origin), known.next())
        };
        let meet = |master: usize, run_id, origin| {
            let question = guarding.with(&places[master]).question(master);
            guarding.meet(&question, run_id, origin)
        };
        meet(0, "a", "a").unwrap();
        meet(1, "b", "b").unwrap();
        let refused = meet(1, "a", "a").unwrap_err();
        assert!(refused.contains("the same server as master 1"), "{refused}");
        assert_eq!(origin(1), (Some("b".to_owned()), None));
        // It is nobody's twin meanwhile: the two may have changed places.
        meet(0, "b", "b").unwrap();
        meet(1, "a", "a").unwrap();
        // Other processes, with what those had.
        meet(0, "c", "b").unwrap();
        assert_eq!(origin(0), (Some("b".to_owned()), None));
        assert!(meet(1, "c", "b").is_err());
        meet(0, "c", "b").unwrap();
    }

    /// Each of them has a vote of its own.
    #[test]
    fn coordinators_may_meet_the_same_server_and_share_what_they_know() {
        let place = KnownOrigins::default();
        let [one, other] =
            [0, 1].map(|_| RestartTracker::new(RestartGuard::Observed, false, clock::monotonic));
        let question = one.with(&place).question(0);
        assert_eq!(question.known, []);
        one.meet(&question, "a", "a").unwrap();
        let question = other.with(&place).question(1);
        assert_eq!(question.known[0].0, "a");
        other.meet(&question, "a", "a").unwrap();
    }
}
