//! The findings about all masters together, and about the settings of this program.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use quorlock::Quarantine;

use crate::{Shared, facts::Master, report::Finding, table::*};

/// A list of masters: its name, and the numbers of its masters. Every decision needs a majority of
/// each list.
pub(crate) type List = (&'static str, BTreeSet<usize>);

/// Finds what concerns several masters. A list without masters is no list.
pub(crate) fn find(masters: &[Master], lists: &[List], shared: &Shared) -> Vec<Finding> {
    let mut findings: Vec<_> = votes(masters, lists, shared).into_iter().collect();
    findings.extend(related(masters, is_twin).map(|on| TWIN.with("the same").on(on)));
    findings.extend(shared_data(masters, shared));
    findings.extend(lists.iter().filter_map(|(name, list)| {
        let row = match list.len() {
            1 | 2 => FEW_MASTERS,
            even if even % 2 == 0 => EVEN_NUMBER,
            _ => return None,
        };
        Some(row.with(format!("{} in the list of {name}", list.len())))
    }));
    findings.extend(hosts(masters, lists));
    findings.extend(counters(masters, lists));
    /// The rate at which two clocks run apart, in ppm, while time daemons slew one clock forward
    /// and the other clock back by 500 ppm each.
    const SLEW: u32 = 1_000;
    let ppm = shared.drift_ppm;
    findings.extend((ppm < SLEW).then(|| SLOW_DRIFT.with(format!("{ppm} ppm"))));
    findings
}

/// Returns whether the masters that `is_in` are a majority of each list.
fn is_majority(lists: &[List], is_in: impl Fn(usize) -> bool) -> bool {
    lists
        .iter()
        .all(|list| count(list, &is_in) * 2 > list.1.len())
}

fn count((_, list): &List, is_in: impl Fn(usize) -> bool) -> usize {
    list.iter().filter(|number| is_in(**number)).count()
}

/// Returns a finding if no majority of every list can vote now. The findings about single masters
/// do not show that: if one master is down, the others may still be a majority.
fn votes(masters: &[Master], lists: &[List], shared: &Shared) -> Option<Finding> {
    let waits = (0..masters.len()).map(|number| {
        let (master, mut others) = (&masters[number], masters[..number].iter());
        // The quarantine gives no vote to a server that is listed a second time.
        let is_second =
            shared.quarantine != Quarantine::Off && others.any(|other| is_twin(other, master));
        let facts = master.facts().filter(|_| !is_second)?;
        facts.no_vote_for(shared)
    });
    let waits: Vec<_> = waits.collect();
    let is_by = |number: usize, by| waits[number].is_some_and(|wait| wait <= by);
    let is_now = |number| is_by(number, Duration::ZERO);
    if is_majority(lists, is_now) {
        return None;
    }
    let lacking = lists
        .iter()
        .filter(|list| count(list, is_now) * 2 <= list.1.len());
    let lacking = lacking.map(|list| {
        let (name, masters) = list;
        let (all, need) = (masters.len(), masters.len() / 2 + 1);
        format!("{} of {all} {name} now (need {need})", count(list, is_now))
    });
    let value = format!("only {}", lacking.collect::<Vec<_>>().join(", "));
    let mut later: Vec<_> = waits.iter().flatten().copied().collect();
    later.sort();
    let enough = later
        .into_iter()
        .find(|wait| is_majority(lists, |number| is_by(number, *wait)));
    Some(match enough {
        Some(wait) => QUARANTINES.with(format!("{value}, for another {wait:.1?}")),
        None => NO_MAJORITY.with(value),
    })
}

fn is_twin(one: &Master, other: &Master) -> bool {
    let run_id = one.id("run_id");
    run_id.is_some() && run_id == other.id("run_id")
}

/// Finds masters that have the same data, or once had the same data.
fn shared_data(masters: &[Master], shared: &Shared) -> impl Iterator<Item = Finding> {
    let shared_once = |one: &Master, other: &Master| {
        let [ours, theirs] =
            [one, other].map(|one| ["master_replid", "master_replid2"].map(|field| one.id(field)));
        let is_shared = ours.iter().any(|id| id.is_some() && theirs.contains(id));
        is_shared && !is_twin(one, other)
    };
    let row = match shared.quarantine {
        Quarantine::Off => SHARED_DATA_UNNOTICED,
        _ => SHARED_DATA,
    };
    related(masters, shared_once).map(move |on| row.with("of one origin").on(on))
}

/// Puts masters together that are related in pairs. Returns the addresses of each group of several
/// masters.
fn related(
    masters: &[Master],
    is_related: impl Fn(&Master, &Master) -> bool,
) -> impl Iterator<Item = Vec<Arc<str>>> {
    let mut groups: Vec<Vec<&Master>> = Vec::new();
    for master in masters {
        let is_its = |group: &mut Vec<&Master>| group.iter().any(|other| is_related(other, master));
        let mut joined: Vec<_> = groups.extract_if(.., is_its).flatten().collect();
        joined.push(master);
        groups.push(joined);
    }
    groups.retain(|group| group.len() > 1);
    groups
        .into_iter()
        .map(|group| group.iter().map(|master| master.address.clone()).collect())
}

/// Finds hosts whose loss leaves no majority of some list. The addresses of the masters name the
/// hosts.
fn hosts(masters: &[Master], lists: &[List]) -> Vec<Finding> {
    let mut hosts = BTreeMap::<&str, BTreeSet<usize>>::new();
    for (number, master) in masters.iter().enumerate() {
        hosts
            .entry(host(&master.address))
            .or_default()
            .insert(number);
    }
    if masters.len() <= 2 {
        hosts.clear(); // another finding says that every master is needed
    }
    hosts.retain(|_, on_it| !is_majority(lists, |number| !on_it.contains(&number)));
    let found = hosts.into_iter().map(|(host, on_it)| {
        let on = on_it.iter().map(|number| masters[*number].address.clone());
        HOST.with(host).on(on)
    });
    found.collect()
}

/// Returns the host of an address. Each memory master counts as a host of its own, because memory
/// masters are for tests.
fn host(address: &str) -> &str {
    match address.rsplit_once(':') {
        Some((host, _)) if host != "memory" => {
            address.strip_prefix("unix:").map_or(host, |_| "unix")
        }
        _ => address,
    }
}

/// Returns a finding if so many masters of a list have a counter of one lock that is ahead of time
/// that the others are no majority. Those take no candidate of the present, because it is below the
/// counter. The masters without the counter take no candidate above it, because it is too far from
/// the time. So programs of both lists may get no fencing token, and those of the other list
/// smaller ones.
fn counters(masters: &[Master], lists: &[List]) -> Option<Finding> {
    let mut counters = BTreeMap::<&str, (BTreeSet<usize>, Duration)>::new();
    for (number, master) in masters.iter().enumerate() {
        let ahead = master
            .facts()
            .and_then(|facts| facts.counters.as_ref()?.as_ref().ok());
        for (key, ahead) in ahead.into_iter().flatten() {
            let (on, most) = counters.entry(key).or_default();
            on.insert(number);
            *most = (*ahead).max(*most);
        }
    }
    // A master that does not answer may have the counter, too.
    counters.retain(|_, (on, _)| {
        !is_majority(lists, |number| {
            masters[number].answer.is_ok() && !on.contains(&number)
        })
    });
    let key = *counters.first_key_value()?.0;
    let most = counters.values().map(|(_, most)| *most).max()?;
    let count = counters.len();
    let value = format!("up to {most:.1?} ahead of time, {count} in all, such as {key}");
    Some(COUNTERS_AHEAD.with(value))
}
