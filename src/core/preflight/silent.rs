//! Masters that said nothing of themselves, and why.

use super::{
    Level::{self, Refuse, Unknown, Warn},
    Notes,
};
use crate::core::quorum::Failure;

/// What goes wrong at a dial, how bad that is, what it is about, why it matters, and what mends it. The first that fits.
const DIALS: [(&str, Level, &str, &str, &str); 6] = [
    (
        "LOADING",
        Warn,
        "loading",
        "it answers nothing until it has read its data",
        "wait",
    ),
    (
        "refused the login",
        Refuse,
        "login",
        "it is up, and has no vote",
        "look at its users and passwords, protected mode, and the URL",
    ),
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
        "it is up, and has no vote",
        "ACL SETUSER <user> +eval +info +time +hmget +hset ~quorlock:guard",
    ),
    (
        "cannot be known",
        Warn,
        "votes",
        "it has no vote now",
        "look at its log",
    ),
];

pub(super) fn check(failure: &Failure, notes: &mut Notes<'_>) {
    if let Failure::Rejected(error) = failure {
        return rejected(error, failure, notes);
    }
    let value = in_short(failure);
    let mut dials = DIALS.iter().filter(|(says, ..)| value.contains(says));
    if let Some((_, level, setting, why, mend)) = dials.next() {
        return notes.add(*level, setting, value, why, mend);
    }
    let why = "what it is cannot be found out";
    let mend = "see that it is up and can be reached";
    notes.add(Unknown, "connection", value, why, mend);
}

/// It is there, and does not run the script that asks.
fn rejected(error: &str, failure: &Failure, notes: &mut Notes<'_>) {
    let value = in_short(failure);
    if error.starts_with("NOPERM") || error.starts_with("ERR") {
        let mend = "ACL SETUSER <user> +evalsha +eval, and do not rename them";
        notes.add(Refuse, "EVALSHA", value, "all locks need it", mend);
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

/// What went wrong, in a sentence, without the name of the user.
pub(super) fn in_short(failure: &Failure) -> String {
    let text = failure.to_string();
    let text = text.split(". ").next().unwrap_or_default();
    if let Some((before, rest)) = text.split_once("User ")
        && let Some((_, after)) = rest.split_once(" has no permissions")
    {
        return format!("{before}its user has no permissions{after}");
    }
    text.to_owned()
}
