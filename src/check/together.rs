//! The findings about all masters together, and about the settings of this program.

use std::{collections::BTreeMap, time::Duration};

use super::{
    about::{self, About},
    change,
    facts::{MasterAnswer, Ours},
    report::{Finding, Severity},
    rights,
};
use crate::core::{
    time::lease::CLOCK_WINDOW,
    vote::{lists::MasterList, master_set::MasterSet, quorum::Quorum},
};

pub(super) fn find(masters: &[MasterAnswer], ours: &Ours<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = votes(masters, ours).into_iter().collect();
    findings.extend(groups(masters, is_twin).map(|on| about::TWIN.with(format!("the same {on}"))));
    findings.extend(shared_data(masters, ours));
    findings.extend(ours.quorum.lists().filter_map(|(list, set)| {
        let about = match set.len() {
            1 | 2 => about::FEW_MASTERS,
            even if even % 2 == 0 => about::EVEN_NUMBER,
            _ => return None,
        };
        Some(about.with(match list {
            MasterList::Masters => set.len().to_string(),
            MasterList::Leaving => format!("{} leaving", set.len()),
        }))
    }));
    findings.extend(hosts(masters, ours.quorum));
    findings.extend(clocks(masters, ours.quorum));
    findings.extend(change::counters(masters, ours.quorum));
    findings.extend(our_own(ours));
    findings
}

/// Returns a finding if no majority of every set can vote now. The findings about single masters do
/// not show that: if one master is down, the others may still be a majority.
fn votes(masters: &[MasterAnswer], ours: &Ours<'_>) -> Option<Finding> {
    let wait = |number: usize| {
        let (master, mut others) = (&masters[number], masters[..number].iter());
        // The quarantine gives no vote to a server that is listed a second time.
        let is_second = ours.has_quarantine() && others.any(|other| is_twin(other, master));
        let facts = master.facts.as_ref().ok()?;
        let may_vote = !is_second && facts.restart_unknown.is_none() && rights::may_lock(facts);
        may_vote.then(|| facts.quarantine_left(ours))
    };
    let now = (0..masters.len()).filter(|number| wait(*number) == Some(Duration::ZERO));
    let tallies = ours.quorum.tallies(now.collect());
    let lacking = tallies.filter(|tally| !tally.has_quorum());
    let lacking: Vec<_> = lacking.map(|tally| tally.text(" now")).collect();
    let value = format!("only {}", lacking.join(", "));
    match ours.quorum.least_of_every(wait) {
        Some(Duration::ZERO) => None,
        Some(wait) => Some(about::QUARANTINES.with(format!("{value}, for another {wait:.1?}"))),
        None => Some(about::NO_MAJORITY.with(value)),
    }
}

fn is_twin(other: &MasterAnswer, master: &MasterAnswer) -> bool {
    let run_id = id(master, "run_id");
    run_id.is_some() && run_id == id(other, "run_id")
}

/// Finds masters that have the same data, or once had the same data.
fn shared_data(masters: &[MasterAnswer], ours: &Ours<'_>) -> impl Iterator<Item = Finding> {
    let has_quarantine = ours.has_quarantine();
    let is_counted =
        move |one: &MasterAnswer, other: &MasterAnswer| !(has_quarantine && is_twin(one, other));
    let same = groups(masters, move |one, other| {
        has_same_data(one, other) && is_counted(one, other)
    });
    let took = groups(masters, move |one, other| {
        shared_once(one, other) && !has_same_data(one, other) && is_counted(one, other)
    });
    let mut about = about::TOOK_DATA;
    if !has_quarantine {
        about.severity = Severity::Refuse;
    }
    let same = same.map(|on| about::SHARED_DATA.with(format!("the same {on}")));
    same.chain(took.map(move |on| about.with(format!("of one origin {on}"))))
}

fn has_same_data(one: &MasterAnswer, other: &MasterAnswer) -> bool {
    let now = id(one, "master_replid");
    now.is_some() && now == id(other, "master_replid")
}

/// Returns whether the masters have the same data, or had it once.
fn shared_once(one: &MasterAnswer, other: &MasterAnswer) -> bool {
    let ids = |master| ["master_replid", "master_replid2"].map(|field| id(master, field));
    let theirs = ids(other);
    let ours = ids(one);
    ours.iter().any(|id| id.is_some() && theirs.contains(id))
}

/// Puts masters together that are related in pairs. Returns the words for each group of several
/// masters, such as `on a, b and c`.
fn groups(
    masters: &[MasterAnswer],
    is_related: impl Fn(&MasterAnswer, &MasterAnswer) -> bool,
) -> impl Iterator<Item = String> {
    let mut groups: Vec<Vec<&MasterAnswer>> = Vec::new();
    for master in masters {
        let is_its =
            |group: &mut Vec<&MasterAnswer>| group.iter().any(|other| is_related(other, master));
        let mut joined: Vec<_> = groups.extract_if(.., is_its).flatten().collect();
        joined.push(master);
        groups.push(joined);
    }
    groups.retain(|group| group.len() > 1);
    groups.into_iter().map(|group| {
        let names: Vec<_> = group.iter().map(|master| &*master.address).collect();
        let (last, others) = names.split_last().unwrap_or((&"", &[]));
        format!("on {} and {last}", others.join(", "))
    })
}

fn id<'a>(master: &'a MasterAnswer, field: &str) -> Option<&'a str> {
    let id = master.facts.as_ref().ok()?.get(field)?;
    // A server that never had another id shows zeros in `master_replid2`.
    Some(id).filter(|id| id.bytes().any(|digit| digit != b'0'))
}

/// Finds hosts whose loss leaves no majority of some set. The addresses of the masters name the
/// hosts.
fn hosts(masters: &[MasterAnswer], quorum: &Quorum) -> impl Iterator<Item = Finding> {
    let mut hosts = BTreeMap::<&str, MasterSet>::new();
    for (number, master) in masters.iter().enumerate() {
        hosts
            .entry(host(&master.address))
            .or_default()
            .insert(number);
    }
    if masters.len() <= 2 {
        hosts.clear(); // another finding says that every master is needed
    }
    hosts.retain(|_, on_it| !quorum.is_every_majority_in(MasterSet::ALL - *on_it));
    hosts
        .into_iter()
        .map(|(host, on_it)| about::HOST.with(format!("{host} for {}", on_it.len())))
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

/// Finds clocks that are too far off for tickets and for candidates for fencing tokens. Other locks
/// do not depend on the time of day, because a TTL is a length of time.
fn clocks(masters: &[MasterAnswer], quorum: &Quorum) -> Vec<Finding> {
    let clocks = masters.iter().enumerate().filter_map(|(number, master)| {
        let clock = master.facts.as_ref().ok()?.clock?;
        Some((number, clock))
    });
    let mut clocks: Vec<_> = clocks.collect();
    clocks.sort_by_key(|(_, clock)| clock.ahead());
    let Some(middle) = clocks.get(clocks.len() / 2).map(|(_, clock)| *clock) else {
        return Vec::new();
    };
    let of = |clocks: &[(usize, _)]| clocks.iter().map(|(number, _)| *number).collect();
    let known: MasterSet = of(&clocks);
    clocks.retain(|(_, clock)| clock.apart(middle.ahead()) > CLOCK_WINDOW);
    let agreed = known - of(&clocks);
    let is_no_majority = quorum.is_every_majority_in(known) && !quorum.is_every_majority_in(agreed);
    let apart = is_no_majority.then(|| about::CLOCKS_APART.with("apart"));
    let off = |about: About, apart: Duration, machine: &str| {
        (apart > CLOCK_WINDOW).then(|| about.with(format!("{apart:.1?} off on {machine}")))
    };
    let theirs = clocks.iter().filter_map(|(number, clock)| {
        let address = &masters[*number].address;
        off(about::CLOCK_OFF, clock.apart(middle.ahead()), address)
    });
    let ours = off(about::OUR_CLOCK, middle.apart(0), "this machine");
    apart.into_iter().chain(theirs).chain(ours).collect()
}

/// Finds settings of this program that leave too little margin.
fn our_own(ours: &Ours<'_>) -> impl Iterator<Item = Finding> {
    /// The number of slow answers that a lock should survive.
    const ANSWERS: u32 = 10;
    /// The rate at which two clocks run apart, in ppm, while time daemons slew one clock forward
    /// and the other clock back by 500 ppm each.
    const SLEW: u32 = 1_000;
    let (ttl, timeout) = (ours.config.ttl.duration(), ours.node_timeout);
    let ttl = (ttl / ANSWERS < timeout)
        .then(|| about::SHORT_TTL.with(format!("{ttl:?} with a node timeout of {timeout:?}")));
    let ppm = ours.config.drift.ppm();
    let drift = (ppm < SLEW).then(|| about::SLOW_DRIFT.with(format!("{ppm} ppm")));
    ttl.into_iter().chain(drift).map(|finding| Finding {
        subject: "this program",
        ..finding
    })
}
