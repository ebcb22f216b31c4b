//! What a restart leaves, and whether it is noticed.

use std::time::Duration;

use super::{
    Level::{self, Info, Refuse, Warn},
    Notes, Ours,
    facts::Facts,
};
use crate::core::guard::RestartGuard;

pub(super) fn check(facts: &Facts, ours: &Ours, notes: &mut Notes<'_>) {
    disk(facts, notes);
    match ours.guard {
        RestartGuard::Off => unguarded(facts, notes),
        RestartGuard::Observed | RestartGuard::Strict => {
            guarded(facts, ours, notes);
            if ours.is_durable {
                is_not_durable(facts, notes);
            } else {
                forgets(facts, notes);
            }
        }
    }
}

/// Whether it can write what it has.
fn disk(facts: &Facts, notes: &mut Notes<'_>) {
    let mend = "look at its log and its disk";
    for setting in ["aof_last_write_status", "rdb_last_bgsave_status"] {
        if facts.get(setting).is_some_and(|status| status != "ok") {
            let goes_on =
                setting.starts_with("rdb") && facts.is("stop-writes-on-bgsave-error", "no");
            let (level, why) = if goes_on {
                (Info, "it cannot save its data; locks go on")
            } else {
                (Warn, "it cannot write its data, and may refuse to lock")
            };
            notes.add(level, setting, facts.said(setting), why, mend);
        }
    }
}

/// Nobody notices a restart, so it must not forget anything.
fn unguarded(facts: &Facts, notes: &mut Notes<'_>) {
    let Some((level, setting, value)) = first_gap(facts) else {
        return;
    };
    let why = "a restart forgets locks, and nobody notices";
    let mend = "Builder::restart_guard; or appendonly yes, appendfsync always, \
                no-appendfsync-on-rewrite no, aof-load-truncated no";
    notes.add(level, setting, value, why, mend);
}

/// The first setting by which a restart may forget locks. What is not known is taken for the default.
fn first_gap(facts: &Facts) -> Option<(Level, &'static str, String)> {
    for (level, setting, good) in [
        (Refuse, "aof_enabled", "1"),
        (Warn, "appendfsync", "always"),
        (Warn, "no-appendfsync-on-rewrite", "no"),
        (Warn, "aof-load-truncated", "no"),
    ] {
        if !facts.is(setting, good) {
            return Some((level, setting, facts.said(setting)));
        }
    }
    None
}

/// Restarts are noticed, if the guard can look and is there.
fn guarded(facts: &Facts, ours: &Ours, notes: &mut Notes<'_>) {
    let setting = "quorlock:guard";
    let age = facts.number("guard_age").map(Duration::from_millis);
    let left = age.map(|age| ours.quarantine.saturating_sub(age));
    match (facts.get("guard_age"), left) {
        (_, Some(left)) if !left.is_zero() => {
            let why = "it may have forgotten locks, and has no vote until those are over";
            let value = format!("in quarantine for {left:.1?}");
            notes.add(Warn, setting, value, why, "wait");
        }
        (_, Some(_)) | (Some("never"), _) => {}
        (Some("none"), _) => {
            let why = "it lost its keys since it was dialled, and locks with them";
            let mend = "keep FLUSHALL and FLUSHDB away from masters that hold locks";
            notes.add(Refuse, setting, "gone", why, mend);
        }
        _ => {
            let why = "nobody notices when it restarts without its locks";
            let mend = "ACL SETUSER <user> +eval +info +time +hmget +hset ~quorlock:guard";
            notes.add(Refuse, setting, "not to be looked at", why, mend);
        }
    }
}

/// What its guard is needed for.
fn forgets(facts: &Facts, notes: &mut Notes<'_>) {
    let gap = first_gap(facts).filter(|(_, setting, _)| facts.get(setting).is_some());
    if let Some((_, setting, value)) = gap {
        let why = "a restart forgets locks: the guard keeps it from voting until they are over";
        let mend = "nothing to mend for locks; with appendonly yes the guard's own key survives";
        notes.add(Info, setting, value, why, mend);
    }
}

/// It is said to forget nothing.
fn is_not_durable(facts: &Facts, notes: &mut Notes<'_>) {
    if let Some((_, setting, value)) = first_gap(facts) {
        let level = match setting {
            "aof-load-truncated" => Warn,
            _ => Refuse,
        };
        let why = "it is said to keep everything, and may not";
        let mend = "in its configuration file: appendonly yes, appendfsync always, \
                    no-appendfsync-on-rewrite no, aof-load-truncated no";
        notes.add(level, setting, value, why, mend);
    }
}
