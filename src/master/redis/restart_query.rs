//! Asks a server whether it restarted. The script `lua/shared/origin.lua` returns the answer.

use super::{encode::encode, greeting::entry, resp::reply};
use crate::{
    core::{
        protocol::{command::Reply, script::ORIGIN},
        restart::{Incarnation, ORIGIN_KEY, Quarantine, origin_arguments},
    },
    master::{
        dial_error::DialError,
        observer::{MasterEvent, MasterObserver},
        restart::{RestartQuery, RestartTracker},
        server_error::ServerError,
    },
};

/// Appends the query to `out`. `durability` is the server's answer about its settings.
pub(super) fn ask(
    tracker: &RestartTracker,
    query: &RestartQuery,
    durability: &Durability,
    out: &mut Vec<u8>,
) {
    let is_durable = match durability {
        Durability::Durable => Some(true),
        Durability::Volatile(_) => Some(false),
        Durability::Unknown(_) | Durability::Unasked => None,
    };
    let arguments = origin_arguments(&query.known, tracker.quarantine, is_durable);
    let mut words = vec!["EVAL", ORIGIN.text(), "1", ORIGIN_KEY];
    words.extend(arguments.iter().map(String::as_str));
    let words: Vec<_> = words.into_iter().map(str::as_bytes).collect();
    encode(out, &words);
}

/// Reads the answer. Returns `None` if the server denies the question and quarantine is not strict.
pub(super) fn read(
    tracker: &RestartTracker,
    (query, observer): (&RestartQuery, &MasterObserver),
    durability: &Durability,
    reply: &Reply<'_>,
) -> Result<Option<Incarnation>, DialError> {
    const NONSENSE: &str = "its answer makes no sense";
    let why = match reply {
        Reply::Text(text) => match Incarnation::parse(text) {
            Some(found) => {
                tracker.meet(query, &found.run_id, &found.origin)?;
                durability.warn_unless(found.is_durable, observer);
                return Ok(Some(found));
            }
            None => NONSENSE,
        },
        Reply::Error(error) => error,
        _ => NONSENSE,
    };
    let kind = ServerError::of(why);
    if kind.is_denial() && tracker.quarantine != Quarantine::Strict {
        observer.on(MasterEvent::OriginDenied { why });
        return Ok(None);
    }
    let why = why.to_owned();
    Err(match kind {
        ServerError::Loading => DialError::Loading(why),
        kind if kind.is_denial() => DialError::RightsMissing { why },
        _ => DialError::RestartUnknown { why },
    })
}

/// The settings that decide whether a server keeps all data over a restart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// The server fsyncs every write before it answers.
    Durable,
    Unasked,
    /// The server does not say what its settings are, for this reason.
    Unknown(String),
    /// The server may answer before it has written to disk, for this reason.
    Volatile(String),
}

impl Durability {
    /// The settings, each with the value that a durable server has. The script also checks the
    /// first setting.
    const SETTINGS: [(&str, &str); 3] = [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("no-appendfsync-on-rewrite", "no"),
    ];

    /// Appends the question about the settings.
    pub(super) fn ask(out: &mut Vec<u8>) {
        let [first, second, third] = Self::SETTINGS.map(|(setting, _)| setting.as_bytes());
        encode(out, &[b"CONFIG", b"GET", first, second, third]);
    }

    /// Reads the answer.
    pub(super) fn read(settings: &[u8]) -> Self {
        if let Reply::Error(error) = reply(settings) {
            return Self::Unknown(error.into_owned());
        }
        for (setting, wanted) in Self::SETTINGS {
            match entry(settings, setting) {
                Some(value) if value == wanted => {}
                Some(value) => {
                    return Self::Volatile(format!("{setting} is {value}, not {wanted}"));
                }
                None => return Self::Unknown(format!("it does not say what {setting} is")),
            }
        }
        Self::Durable
    }

    fn warn_unless(&self, is_durable: bool, observer: &MasterObserver) {
        let why = match self {
            Self::Unasked => return,
            Self::Durable if is_durable => return,
            Self::Durable => {
                "it has or had replicas, is a replica that was promoted, is rewriting its log, or \
                 is older than version 7"
            }
            Self::Volatile(why) | Self::Unknown(why) => why,
        };
        observer.on(MasterEvent::NotDurable { why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{core::vote::lists::Membership, driver::time::clock};

    /// The error texts are those of Redis 6 and 7, and of Valkey.
    #[test]
    fn a_denied_question_fails_the_dial_only_under_strict() {
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
            "ERR the origin key is of another type and cannot be deleted",
        ];
        let denied = denied.map(|error| (error, true));
        for (error, is_denied) in denied
            .into_iter()
            .chain(passing.map(|error| (error, false)))
        {
            let answer = |quarantine| {
                let tracker = RestartTracker::new(quarantine, false, clock::monotonic);
                let query = tracker.query(0);
                let reply = Reply::Error(error.into());
                read(
                    &tracker,
                    (
                        &query,
                        &MasterObserver::new(None, "m".into(), Membership::Stays),
                    ),
                    &Durability::Unasked,
                    &reply,
                )
            };
            assert_eq!(answer(Quarantine::Observed).is_ok(), is_denied, "{error}");
            let refused = answer(Quarantine::Strict).unwrap_err();
            let is_typed = matches!(refused, DialError::RightsMissing { .. });
            assert_eq!(is_typed, is_denied, "{refused}");
            let text = refused.to_string();
            assert!(text.contains(error), "{text}");
            assert_eq!(text.contains("+hset"), is_denied, "{text}");
        }
    }

    #[test]
    fn durability_follows_from_three_settings() {
        let said = |values: [&str; 3]| {
            let [log, fsync, pause] = values;
            let map = format!(
                "%3\r\n$10\r\nappendonly\r\n+{log}\r\n$11\r\nappendfsync\r\n+{fsync}\r\n\
                 $25\r\nno-appendfsync-on-rewrite\r\n+{pause}\r\n"
            );
            Durability::read(map.as_bytes())
        };
        let volatile = |why: &str| Durability::Volatile(why.to_owned());
        for (values, expected) in [
            (["yes", "always", "no"], Durability::Durable),
            (
                ["no", "always", "no"],
                volatile("appendonly is no, not yes"),
            ),
            (
                ["yes", "everysec", "no"],
                volatile("appendfsync is everysec, not always"),
            ),
            (
                ["yes", "always", "yes"],
                volatile("no-appendfsync-on-rewrite is yes, not no"),
            ),
        ] {
            assert_eq!(said(values), expected);
        }
        for (answer, why) in [
            ("-NOPERM no\r\n", "NOPERM no"),
            ("%0\r\n", "it does not say what appendonly is"),
            ("+OK\r\n", "it does not say what appendonly is"),
            (
                "%1\r\n+appendonly\r\n+yes\r\n",
                "it does not say what appendfsync is",
            ),
        ] {
            let expected = Durability::Unknown(why.to_owned());
            assert_eq!(Durability::read(answer.as_bytes()), expected);
        }
    }
}
