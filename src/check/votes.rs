//! Whether enough masters can vote now for anybody to have a lock.

use std::time::Duration;

use super::{
    Asked, Notes, Ours,
    Severity::{Refuse, Warn},
    durability, rights,
};
use crate::core::quorum::majority;

/// What is about single masters does not say that there are too many of them, and one that is down may be fine.
pub(super) fn check(masters: &[Asked], ours: &Ours, notes: &mut Notes<'_>) {
    let (count, need) = (masters.len(), majority(masters.len()));
    let waits = masters.iter().filter_map(|master| wait(master, ours));
    let mut waits: Vec<_> = waits.collect();
    waits.sort_unstable();
    let now = waits.iter().filter(|wait| wait.is_zero()).count();
    if now >= need {
        return;
    }
    let (setting, value) = ("votes", format!("only {now} of {count} now (need {need})"));
    if let Some(wait) = waits.get(need - 1) {
        let value = format!("{value}, for {wait:.1?} still");
        let why = "no lock can be had until quarantines are over";
        notes.add(Warn, setting, value, why, "wait");
    } else {
        let why = "no lock can be had";
        notes.add(Refuse, setting, value, why, "see the other findings");
    }
}

/// In how long a master has a vote, if waiting helps.
fn wait(master: &Asked, ours: &Ours) -> Option<Duration> {
    let facts = master.facts.as_ref().ok()?;
    rights::may_lock(facts).then(|| durability::quarantine_left(facts, ours))
}
