//! What a restart leaves, and whether it is noticed.

use std::time::Duration;

use super::{
    Notes, Ours,
    Severity::{self, Info, Refuse, Warn},
    facts::Facts,
};
use crate::core::restart::RestartGuard;

const GUARD: &str = "quorlock:guard";

pub(super) fn check(facts: &Facts, ours: &Ours, notes: &mut Notes<'_>) {
    disk(facts, notes);
    match ours.guard {
        RestartGuard::Off => unguarded(facts, notes),
        RestartGuard::Observed | RestartGuard::Strict => {
            guarded(facts, ours, notes);
            if ours.is_durable {
                keeps_all(facts, notes);
            } else {
                forgets(facts, notes);
            }
        }
    }
}

/// For how long it has no vote.
pub(super) fn quarantine_left(facts: &Facts, ours: &Ours) -> Duration {
    let age = match ours.guard {
        RestartGuard::Off => None,
        // It counts from when the master was first seen.
        RestartGuard::Strict if facts.is("guard_age", "never") => facts.number("guard_seen"),
        RestartGuard::Observed | RestartGuard::Strict => facts.number("guard_age"),
    };
    age.map(Duration::from_millis)
        .map_or(Duration::ZERO, |age| ours.quarantine.saturating_sub(age))
}

/// Whether it can write what it has.
fn disk(facts: &Facts, notes: &mut Notes<'_>) {
    let fix = "look at its log and its disk";
    for setting in ["aof_last_write_status", "rdb_last_bgsave_status"] {
        if facts.get(setting).is_some_and(|status| status != "ok") {
            let goes_on =
                setting.starts_with("rdb") && facts.is("stop-writes-on-bgsave-error", "no");
            let (level, why) = if goes_on {
                (Info, "it cannot save its data; locks go on")
            } else {
                (Warn, "it cannot write its data, and may refuse to lock")
            };
            notes.add(level, setting, facts.said(setting), why, fix);
        }
    }
}

/// Nobody notices a restart, so it must not forget anything.
fn unguarded(facts: &Facts, notes: &mut Notes<'_>) {
    let Some((level, setting, value)) = first_gap(facts) else {
        return;
    };
    let why = "a restart forgets locks, and nobody notices";
    let fix = "Builder::restart_guard; or appendonly yes, appendfsync always, \
                no-appendfsync-on-rewrite no";
    notes.add(level, setting, value, why, fix);
}

/// The first setting by which a restart may forget locks. What is not known is taken for the default. A log that is torn
/// is no matter: what is behind the last fsync was never answered.
fn first_gap(facts: &Facts) -> Option<(Severity, &'static str, String)> {
    for (level, setting, good) in [
        (Refuse, "aof_enabled", "1"),
        (Warn, "appendfsync", "always"),
        (Warn, "no-appendfsync-on-rewrite", "no"),
    ] {
        if !facts.is(setting, good) {
            return Some((level, setting, facts.said(setting)));
        }
    }
    None
}

/// Restarts are noticed, if the guard can look and is there.
fn guarded(facts: &Facts, ours: &Ours, notes: &mut Notes<'_>) {
    let left = quarantine_left(facts, ours);
    let (value, why, fix) = match facts.get("guard_age") {
        Some("none") => (
            "gone",
            "it lost its keys since it was dialled, and locks with them",
            "CLIENT KILL TYPE normal there, before a new program comes: those that knew it dial again and give it no \
             vote; or keep programs away for a quarantine; and no FLUSHALL or FLUSHDB while locks are held",
        ),
        Some("another") => (
            "another server's",
            "it has another server's data since it was dialled, and forgot its own locks",
            "CLIENT KILL TYPE normal there: programs dial again and give it no vote; or keep programs away for a \
             quarantine",
        ),
        None => (
            "not to be looked at",
            "nobody notices when it restarts without its locks",
            "ACL SETUSER <user> +eval +info +time +hmget +hset ~quorlock:guard",
        ),
        Some(_) if left.is_zero() => return,
        Some(_) => {
            let why = "it may have forgotten locks, and has no vote until those are over";
            let value = format!("in quarantine for {left:.1?}");
            return notes.add(Warn, GUARD, value, why, "wait");
        }
    };
    notes.add(Refuse, GUARD, value, why, fix);
}

/// What its guard is needed for.
fn forgets(facts: &Facts, notes: &mut Notes<'_>) {
    let gap = first_gap(facts).filter(|(_, setting, _)| facts.get(setting).is_some());
    if let Some((_, setting, value)) = gap {
        let why = "a restart forgets locks: the guard keeps it from voting until they are over, for programs that knew \
                   the master, or are Strict";
        let fix = if setting == "aof_enabled" {
            "nothing to fix for locks; with appendonly yes the guard's own key survives"
        } else {
            "nothing to fix for locks"
        };
        notes.add(Info, setting, value, why, fix);
    }
}

/// It is said to forget nothing: whether that was so when it was dialled, and is.
fn keeps_all(facts: &Facts, notes: &mut Notes<'_>) {
    // Where the guard's key says nothing, that is a finding of its own.
    let Some(was_durable) = facts.get("guard_durable").map(|said| said == "1") else {
        return;
    };
    let gap = first_gap(facts).filter(|(_, setting, _)| facts.get(setting).is_some());
    match gap {
        Some((_, setting, value)) if was_durable => {
            let why = "it was found durable when it was dialled and is not now: a restart is trusted and forgets locks";
            let fix = "set it back, in the configuration file too";
            notes.add(Refuse, setting, value, why, fix);
        }
        Some((_, setting, value)) => {
            let why =
                "it is said to keep everything and does not: a restart is a quarantine as ever";
            let fix = "in its configuration file: appendonly yes, appendfsync always, \
                        no-appendfsync-on-rewrite no";
            notes.add(Warn, setting, value, why, fix);
        }
        None if was_durable => {}
        None => {
            let why = "it is said to keep everything and was not found to: a restart is a quarantine as ever";
            let fix = "the log says why, at the dial: replicas now or before, a log that is being rewritten, \
                        a version before 7, no right to CONFIG GET; dial again when that is mended";
            notes.add(Warn, GUARD, "not durable", why, fix);
        }
    }
}
