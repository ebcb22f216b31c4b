//! Masters that said nothing of themselves, and why.

use super::{
    Notes,
    Severity::{self, Refuse, Unknown, Warn},
    server::MORE_CLIENTS,
};
use crate::core::quorum::Failure;

/// What goes wrong at a dial, how bad that is, what it is about, why it matters, and what mends it. The first that fits.
const DIALS: [(&str, Severity, &str, &str, &str); 14] = [
    (
        "LOADING",
        Warn,
        "loading",
        "it answers nothing until it has read its data",
        "wait",
    ),
    (
        "max number of clients",
        Warn,
        "maxclients",
        "it has no vote while it takes no more connections",
        MORE_CLIENTS,
    ),
    ("login: ERR unknown command", Refuse, OLD.0, OLD.1, OLD.2),
    ("login: NOPROTO", Refuse, OLD.0, OLD.1, OLD.2),
    ("to HELLO 3 makes no sense", Refuse, OLD.0, OLD.1, OLD.2),
    ("refused the login", Refuse, "login", VOTELESS, LOGIN),
    ("refused the database", Refuse, "login", VOTELESS, LOGIN),
    (
        "not a master",
        Refuse,
        "role",
        "a replica forgets what its master forgets, and has no vote of its own",
        "list independent masters only",
    ),
    (
        "the same server",
        Refuse,
        "run_id",
        "one server listed twice votes twice",
        "list every server once",
    ),
    (
        "needs the rights",
        Refuse,
        "quorlock:guard",
        VOTELESS,
        "ACL SETUSER <user> +eval +info +time +hmget +hset ~quorlock:guard, or a guard that is not strict",
    ),
    (
        "cannot be known",
        Warn,
        "votes",
        "whether it restarted cannot be known, so it has no vote now",
        "look at its log",
    ),
    ("not RESP", Warn, "connection", NO_SERVER, URL),
    ("failed to lookup", Warn, "connection", NO_HOST, URL),
    ("No such host", Warn, "connection", NO_HOST, URL),
];

const VOTELESS: &str = "it is up, and has no vote";
const LOGIN: &str = "look at its users and passwords, protected mode, and the URL";
const NO_SERVER: &str = "what is there is no Redis server, or it wants TLS";
const NO_HOST: &str = "nobody knows a host of that name";
const URL: &str = "look at the URL";
const OLD: (&str, &str, &str) = (
    "redis_version",
    "it does not know HELLO 3, which Redis has since version 6",
    "use Redis 7 or later, or Valkey; and do not rename HELLO",
);

pub(super) fn check(failure: &Failure, notes: &mut Notes<'_>) {
    if let Failure::Rejected(error) = failure {
        return rejected(error, failure, notes);
    }
    let (value, text) = (in_short(failure), failure.to_string());
    let mut dials = DIALS.iter().filter(|(says, ..)| text.contains(says));
    if let Some((_, level, setting, why, fix)) = dials.next() {
        return notes.add(*level, setting, value, why, fix);
    }
    let why = "what it is cannot be found out";
    let fix = "see that it is up and can be reached";
    notes.add(Unknown, "connection", value, why, fix);
}

/// It is there, and does not run the script that asks.
fn rejected(error: &str, failure: &Failure, notes: &mut Notes<'_>) {
    let value = in_short(failure);
    if error.starts_with("NOPERM") || error.starts_with("ERR") {
        let fix = "ACL SETUSER <user> +evalsha +eval, and do not rename them";
        notes.add(Refuse, "EVALSHA", value, "all locks need it", fix);
    } else {
        notes.add(
            Warn,
            "votes",
            value,
            "it has no vote now",
            "look at its log",
        );
    }
}

/// What went wrong, in a sentence, without the name of the user, and without what a finding says anyway.
pub(super) fn in_short(failure: &Failure) -> String {
    let text = failure.to_string();
    let text = text.split(". ").next().unwrap_or_default();
    let text = text.split("; its user needs").next().unwrap_or_default();
    let mut text = text.trim_end_matches('.');
    for said in [
        "unreachable: ",
        "refused the login: ",
        "refused the database: ",
        "whether it restarted cannot be known: ",
        "it is ",
    ] {
        text = text.strip_prefix(said).unwrap_or(text);
    }
    if let Some((before, rest)) = text.split_once("User ")
        && let Some((_, after)) = rest.split_once(" has no permissions")
    {
        return format!("{before}its user has no permissions{after}");
    }
    text.to_owned()
}
