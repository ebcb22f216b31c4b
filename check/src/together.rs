//! The findings about all masters together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use quorlock::Quarantine;

use crate::{CheckSettings, facts::Master, report::Finding, table::*};

/// A list of masters: its name, and the numbers of its masters. Every decision needs a majority of
/// each list.
pub(crate) type List = (&'static str, BTreeSet<usize>);

/// Finds what concerns several masters. A list without masters is no list.
///
/// `waits` comes from [`waits`].
pub(crate) fn find(
    masters: &[Master],
    lists: &[List],
    waits: &[Option<Duration>],
    shared: &CheckSettings,
) -> Vec<Finding> {
    let mut findings: Vec<_> = votes(lists, waits).into_iter().collect();
    findings.extend(related(masters, is_twin).map(|on| TWIN.with("the same").on(on)));
    let shared_data = match shared.quarantine {
        Quarantine::Off => SHARED_DATA_UNNOTICED,
        _ => SHARED_DATA,
    };
    findings
        .extend(related(masters, have_shared).map(|on| shared_data.with("of one origin").on(on)));
    findings.extend(lists.iter().filter_map(size));
    findings.extend(counters(masters, lists));
    findings
}

/// Returns a finding about the length of a list.
fn size((name, list): &List) -> Option<Finding> {
    let row = match list.len() {
        0..3 => FEW_MASTERS,
        count if count.is_multiple_of(2) => EVEN_MASTERS,
        _ => return None,
    };
    Some(row.with(format!("{} in the list of {name}", list.len())))
}

/// Returns whether the masters for which `is_in` returns `true` are a majority of each list.
fn is_majority(lists: &[List], is_in: impl Fn(usize) -> bool) -> bool {
    lists
        .iter()
        .all(|list| count(list, &is_in) * 2 > list.1.len())
}

fn count((_, list): &List, is_in: impl Fn(usize) -> bool) -> usize {
    list.iter().filter(|number| is_in(**number)).count()
}

/// Returns the time until each master has a vote. `None` for a master that takes no locks.
pub(crate) fn waits(masters: &[Master], shared: &CheckSettings) -> Vec<Option<Duration>> {
    let waits = (0..masters.len()).map(|number| {
        let (master, mut others) = (&masters[number], masters[..number].iter());
        // The quarantine gives no vote to a server that is listed a second time.
        let is_second =
            shared.quarantine != Quarantine::Off && others.any(|other| is_twin(other, master));
        let facts = master.facts().filter(|_| !is_second)?;
        facts.no_vote_for(shared)
    });
    waits.collect()
}

/// Returns a finding if no majority of every list can vote now. The findings about single masters
/// do not show that: if one master is down, the others may still be a majority.
fn votes(lists: &[List], waits: &[Option<Duration>]) -> Option<Finding> {
    let lacking = lists.iter().filter_map(|list| {
        let now = count(list, |number| waits[number] == Some(Duration::ZERO));
        let (name, all) = list;
        let (all, need) = (all.len(), all.len() / 2 + 1);
        (now < need).then(|| format!("{now} of {all} {name} now (need {need})"))
    });
    let lacking: Vec<_> = lacking.collect();
    let row = match is_majority(lists, |number| waits[number].is_some()) {
        true => QUARANTINES,
        false => NO_MAJORITY,
    };
    (!lacking.is_empty()).then(|| row.with(format!("only {}", lacking.join(", "))))
}

fn is_twin(one: &Master, other: &Master) -> bool {
    let run_id = one.id("run_id");
    run_id.is_some() && run_id == other.id("run_id")
}

/// Returns whether two masters have the same data, or once had the same data.
fn have_shared(one: &Master, other: &Master) -> bool {
    let [ours, theirs] =
        [one, other].map(|one| ["master_replid", "master_replid2"].map(|field| one.id(field)));
    let is_shared = ours.iter().any(|id| id.is_some() && theirs.contains(id));
    is_shared && !is_twin(one, other)
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

/// Returns a finding if the counter of one lock is ahead of time on so many masters of a list that
/// the rest are no majority. Masters with that counter take no candidate of the present, because it
/// is below the counter. The rest take no candidate above the counter, because it is too far from
/// the time. So programs with both lists may get no fencing token, and programs with only the other
/// list may get smaller ones.
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
