//! What matters between masters, and of our own settings.

use std::collections::BTreeMap;

use super::{
    Asked, Notes, Ours,
    Severity::{Info, Refuse, Warn},
    facts::Reading,
};
use crate::core::{ballot::Ballot, quorum::majority, restart::RestartGuard};

pub(super) fn check(masters: &[Asked], ours: &Ours, notes: &mut Notes<'_>) {
    identities(masters, notes);
    data(masters, ours, notes);
    number(masters, notes);
    hosts(masters, notes);
    clocks(masters, notes);
}

pub(super) fn our_own(ours: &Ours, notes: &mut Notes<'_>) {
    ttl(ours, notes);
    drift(ours, notes);
}

/// Whether each is a server of its own.
fn identities(masters: &[Asked], notes: &mut Notes<'_>) {
    let mut seen = BTreeMap::new();
    for master in masters {
        let id = id(master, "run_id");
        if let Some(other) = id.and_then(|id| seen.insert(id, &master.address)) {
            let value = format!("the same on {other} and {}", master.address);
            let why = "one server listed twice votes twice";
            notes.add(Refuse, "run_id", value, why, "list every server once");
        }
    }
}

/// Whether each has data of its own, and always had.
fn data(masters: &[Asked], ours: &Ours, notes: &mut Notes<'_>) {
    for (number, master) in masters.iter().enumerate() {
        for other in &masters[..number] {
            pair(other, master, ours, notes);
        }
    }
}

fn pair(one: &Asked, other: &Asked, ours: &Ours, notes: &mut Notes<'_>) {
    let ids = |master| ["master_replid", "master_replid2"].map(|field| id(master, field));
    let ([now, before], theirs) = (ids(one), ids(other));
    let is_theirs = |id: Option<&str>| id.is_some() && theirs.contains(&id);
    let (level, value, why) = if now.is_some() && now == theirs[0] {
        let why = "masters that share their data forget it together";
        (Refuse, "the same on", why)
    } else if is_theirs(now) || is_theirs(before) {
        let why = "one of them took the data of the other, and forgot its own locks then";
        let level = match ours.guard {
            RestartGuard::Off => Refuse,
            RestartGuard::Observed | RestartGuard::Strict => Warn,
        };
        (level, "of one origin on", why)
    } else {
        return;
    };
    let value = format!("{value} {} and {}", one.address, other.address);
    let fix = "stop replication and start one of them empty";
    notes.add(level, "master_replid", value, why, fix);
}

fn id<'a>(master: &'a Asked, setting: &str) -> Option<&'a str> {
    let id = master.facts.as_ref().ok()?.get(setting)?;
    // Servers without a former one say so in zeros.
    Some(id).filter(|id| id.bytes().any(|digit| digit != b'0'))
}

fn number(masters: &[Asked], notes: &mut Notes<'_>) {
    let count = masters.len().to_string();
    match masters.len() {
        1 | 2 => {
            let why = "the loss of one master is the loss of all locks";
            notes.add(Warn, "masters", count, why, "list 3 or 5");
        }
        even if even % 2 == 0 => {
            let why = "it survives no more failures than one master less";
            notes.add(Info, "masters", count, why, "list an odd number");
        }
        _ => {}
    }
}

/// Whether a majority is left when a machine goes, as far as addresses tell.
fn hosts(masters: &[Asked], notes: &mut Notes<'_>) {
    let mut hosts = BTreeMap::<&str, usize>::new();
    for master in masters {
        *hosts.entry(host(&master.address)).or_default() += 1;
    }
    let count = masters.len();
    for (host, on_it) in hosts {
        if count > 2 && count - on_it < majority(count) {
            let why = "its loss is the loss of all locks";
            let fix = "give each master a machine of its own";
            notes.add(Warn, "hosts", format!("{host} for {on_it}"), why, fix);
        }
    }
}

/// Memory masters are for tests, and have nothing to share.
fn host(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, _)) if host != "memory" => {
            address.strip_prefix("unix:").map_or(host, |_| "unix")
        }
        _ => address,
    }
}

/// Whether clocks are within the window that tickets and candidates must be in. What only lives for a TTL does not
/// mind.
fn clocks(masters: &[Asked], notes: &mut Notes<'_>) {
    let clocks = masters.iter().filter_map(|master| {
        let clock = master.facts.as_ref().ok()?.clock?;
        Some((&master.address, clock))
    });
    let mut clocks: Vec<_> = clocks.collect();
    clocks.sort_by_key(|(_, clock)| clock.ahead());
    let Some(middle) = clocks.get(clocks.len() / 2).map(|(_, clock)| *clock) else {
        return;
    };
    let known = clocks.len();
    clocks.retain(|(_, clock)| clock.apart(middle.ahead()) > Ballot::WINDOW);
    let majority = majority(masters.len());
    if known >= majority && known - clocks.len() < majority {
        let why = "no majority agrees on the time: no fencing tokens, and no order in fair locks";
        notes.add(Refuse, "TIME", "apart", why, SYNCHRONISE);
    }
    for (address, clock) in clocks {
        let why = "it counts as down for fencing tokens, and for places in fair locks";
        let value = format!("{:.1?} off on {address}", clock.apart(middle.ahead()));
        notes.add(Warn, "TIME", value, why, SYNCHRONISE);
    }
    ours_is_apart(middle, notes);
}

/// Whether our own clock is off. `middle` is in the middle of the masters'.
fn ours_is_apart(middle: Reading, notes: &mut Notes<'_>) {
    let apart = middle.apart(0);
    if apart > Ballot::WINDOW {
        let why = "places in fair locks and fencing tokens cost this process a round more";
        let value = format!("{apart:.1?} off on this machine");
        notes.add(Warn, "TIME", value, why, SYNCHRONISE);
    }
}

const SYNCHRONISE: &str = "synchronise the clocks; chronyc tracking says how far they are off";

fn ttl(ours: &Ours, notes: &mut Notes<'_>) {
    /// So many slow masters a lock should survive.
    const LEAST: u32 = 10;
    if ours.ttl / LEAST < ours.node_timeout {
        let why = "a few slow answers use it up";
        let value = format!(
            "{:?} with a node timeout of {:?}",
            ours.ttl, ours.node_timeout
        );
        let fix = "Builder::ttl of ten node timeouts or more";
        notes.add(Warn, "ttl", value, why, fix);
    }
}

fn drift(ours: &Ours, notes: &mut Notes<'_>) {
    /// Time daemons slew by 500 ppm, on both sides.
    const SLEW: u32 = 1_000;
    if ours.drift.ppm() < SLEW {
        let why = "clocks that are being set right run apart by more";
        let value = format!("{} ppm", ours.drift.ppm());
        notes.add(
            Warn,
            "drift",
            value,
            why,
            "Builder::drift_ppm of 1000 or more",
        );
    }
}
