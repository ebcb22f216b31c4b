//! `quorlock status` without a name: all locks that are held.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use quorlock::{Coordinator, LockKind};
use quorlock_check::{CheckSettings, MasterLocks, find_locks};
use serde::Serialize;
use tokio::time::sleep;

use super::{Report, worst};
use crate::{
    args::Status,
    exit::Exit,
    failure::Failure,
    holders::clients,
    lists::{ListReport, Tallies},
    look::{Look, Verdict, look_at_all},
    masters::Masters,
    outage::all_reasons,
    output::{print_json, say},
    rights::with_all_rights,
    style::{Cell, Colour, Style, heading},
    words::{ADVICE, in_words_of_the_file},
};

/// What the JSON of a list says beside the locks.
#[derive(Serialize)]
pub(super) struct Rest {
    is_cut_short: bool,
    /// The number of locks that are free, although some masters still have them.
    leftovers: usize,
}

pub(super) async fn list(masters: &Masters, args: &Status) -> Result<Exit, Failure> {
    let locks = masters.clone().coordinator()?;
    let settings = masters.settings.clone().read_files()?;
    let shared = CheckSettings::from(&settings);
    if shared.key_template == "{name}" && !args.all_keys {
        return Err(Failure::new(Exit::Usage, ANY_KEY));
    }
    let (lists, old) = (&settings.masters, &settings.old_masters);
    let found = find_locks(lists, old, &shared, MOST, LIMIT).await?;
    let (looks, rest) = look_at(&locks, &found).await?;
    let exit = match worst(&looks) {
        Some(Verdict::NoQuorum) => Exit::Unavailable,
        _ => Exit::Code(rest.is_cut_short.into()),
    };
    match args.json {
        true => print_json(&Report {
            source: &masters.source,
            lists: ListReport::all(&locks),
            locks: &looks,
            rest: Some(rest),
        })?,
        false => say(text(&looks, &rest, &found, &masters.source))?,
    }
    Ok(exit)
}

/// Looks at the locks that the masters have. Leaves out those that are free, and other keys.
async fn look_at(locks: &Coordinator, found: &[MasterLocks]) -> Result<(Vec<Look>, Rest), Failure> {
    let is_all = are_all(locks, found)?;
    let names: BTreeSet<_> = found.iter().flat_map(|one| &one.names).collect();
    let mut looks = look_in_time(locks, names.iter().copied().cloned()).await?;
    let is_free = |look: &Look| matches!(look.verdict, Verdict::Free | Verdict::Quarantined);
    let is_left = |look: &&Look| is_free(look) && look.is_held_anywhere();
    let rest = Rest {
        is_cut_short: !is_all || looks.len() < names.len(),
        leftovers: looks.iter().filter(is_left).count(),
    };
    let is_lock = |look: &Look| {
        look.verdict != Verdict::Held || look.holders.iter().any(|one| one.kind.is_some())
    };
    looks.retain(|look| !is_free(look) && is_lock(look));
    Ok((looks, rest))
}

/// Returns whether a majority of masters has shown all its keys.
///
/// # Errors
///
/// Too few masters have shown any.
fn are_all(locks: &Coordinator, found: &[MasterLocks]) -> Result<bool, Failure> {
    let tallies = |counts: fn(&MasterLocks) -> bool| {
        let counted = found.iter().filter(|one| counts(one));
        Tallies::of(locks, counted.map(|one| &*one.master))
    };
    let answered = tallies(|one| one.failure().is_none());
    if answered.has_quorum() {
        return Ok(tallies(|one| one.is_all).has_quorum());
    }
    let exit = match tallies(|one| !one.is_refused()).has_quorum() {
        true => Exit::Unavailable,
        false => Exit::Configuration,
    };
    let why = reasons(found).unwrap_or_default();
    let few = answered.too_few("listed them");
    let sentence = format!("cannot list the locks: only {few}; {why}; {ADVICE}");
    let with_rights = with_all_rights(&sentence, locks, ["*", ""]);
    Err(Failure::new(exit, with_rights.unwrap_or(sentence)))
}

/// Looks at the first locks, as far as the time suffices.
async fn look_in_time(
    locks: &Coordinator,
    names: impl Iterator<Item = String>,
) -> Result<Vec<Look>, Failure> {
    let (start, mut looks) = (Instant::now(), Vec::new());
    for some in Vec::from_iter(names.take(MOST)).chunks(AT_ONCE) {
        let mut seen = look_at_all(locks, some).await?;
        for _ in 0..3 {
            let refused = |look: &Look| {
                let outage = look.outage.as_ref()?;
                outage.denial(locks, "cannot look at the locks", ["*", ""])
            };
            seen.iter().find_map(refused).map_or(Ok(()), Err)?;
            // Busy masters may answer too late.
            if worst(&seen) == Some(Verdict::NoQuorum) {
                sleep(Duration::from_millis(100)).await;
                seen = look_at_all(locks, some).await?;
            }
        }
        looks.extend(seen);
        if start.elapsed() > LIMIT {
            break;
        }
    }
    Ok(looks)
}

const ANY_KEY: &str = "the key template is {name}, so any key may be that of a lock; name the \
    locks, or give --all-keys: then each master looks at the values of all keys of the database";
/// Returns why masters do not show their locks.
fn reasons(found: &[MasterLocks]) -> Option<String> {
    let why = |one: &MasterLocks| Some(in_words_of_the_file(&one.failure()?));
    all_reasons(found.iter().map(|one| (&*one.master, why(one))))
}

fn text(looks: &[Look], rest: &Rest, found: &[MasterLocks], source: &str) -> String {
    let style = Style::of_stdout();
    let mut rows = vec![heading(["NAME", "KIND", "TTL LEFT", "WAITING", "HELD BY"])];
    rows.extend(looks.iter().map(row));
    let table = match looks {
        [] => "no lock is held\n".to_owned(),
        _ => style.table(&rows),
    };
    let left = (rest.leftovers > 0).then(|| format!("{LEFT}{}", rest.leftovers));
    let notes = [
        rest.is_cut_short.then(|| CUT.to_owned()),
        left,
        reasons(found).map(|why| format!("without an answer: {why}")),
        Some(format!("the masters are those of {source}")),
    ];
    let notes = notes.iter().flatten();
    let notes = notes.map(|note| style.paint(Colour::Dim, note) + "\n");
    table + &notes.collect::<String>()
}

fn row(look: &Look) -> Vec<Cell> {
    let name = Cell::new(Colour::Bold, &look.name);
    let seen = look.inspection.as_ref();
    let holders = seen.map_or(&[][..], |seen| &seen.holders);
    let ([first, ..], Verdict::Held) = (holders, look.verdict) else {
        return vec![name, Cell::wide(Colour::Red, look.sentence())];
    };
    let kind = first.kind.map_or("", LockKind::as_str);
    let (_, left) = look.holders.columns().unwrap_or_default();
    let named = first.client.as_ref().and_then(|_| clients(holders));
    let who = named.or(first.owner.clone());
    let who = who.unwrap_or_else(|| "no name".to_owned());
    let who = who.trim_end_matches(',').to_owned() + look.holders.note();
    let cells = [kind.to_owned(), left, waiters(look, first.kind), who].map(Cell::plain);
    [name].into_iter().chain(cells).collect()
}

fn waiters(look: &Look, kind: Option<LockKind>) -> String {
    match (&look.waiters, kind) {
        (Some(waiters), _) => waiters.len().to_string(),
        (None, None | Some(LockKind::Mutex | LockKind::Reentrant)) => "-".to_owned(),
        (None, Some(_)) => "denied".to_owned(),
    }
}

const CUT: &str = "cut short: there are more than 1,000 locks, or more keys than a majority of \
    masters shows in 10s; name the locks, or their beginning: --key-template 'job{name}'";
const LEFT: &str = "left out, because too few masters still have them: ";
/// The most locks that are shown.
const MOST: usize = 1_000;
/// The longest time for the keys, and then for the locks.
const LIMIT: Duration = Duration::from_secs(10);
/// The number of locks that masters are asked about at once.
const AT_ONCE: usize = 20;
