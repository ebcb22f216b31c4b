//! The programs that the masters show, and what that means for the next step.

use std::{collections::BTreeMap, sync::Arc};

use quorlock::Coordinator;
use quorlock_check::{Finding, MasterPrograms, Severity};
use serde::Serialize;

use super::{
    change::{Change, Part},
    steps::{LEAVE_OLD, Step},
};
use crate::{
    client_name::Program,
    exit::Exit,
    style::{Cell, Colour, Style},
    words::in_words_of_the_file,
};

/// The programs that use the same masters, in the JSON.
#[derive(Serialize)]
pub(super) struct PartReport {
    uses: Part,
    clients: Vec<String>,
    /// The number of connections without a client name.
    unnamed: usize,
}

/// What the masters show.
pub(super) struct Seen {
    /// For each client name, the largest number of connections with one master.
    programs: BTreeMap<Part, BTreeMap<Option<String>, usize>>,
    /// The masters that show nothing, and why.
    pub(super) unseen: BTreeMap<Arc<str>, String>,
    /// Whether a program with a majority of the masters of a list is seen by one of them.
    is_enough: bool,
}

impl Seen {
    pub(super) fn of(locks: &Coordinator, change: &Change, masters: &[MasterPrograms]) -> Self {
        let unseen = masters.iter().filter_map(|master| {
            let why = master.programs.as_ref().err()?;
            Some((master.master.clone(), why.clone()))
        });
        let unseen: BTreeMap<_, _> = unseen.collect();
        let tallies = locks.tally(|health| !unseen.contains_key(&health.master));
        Self {
            programs: programs(masters, change),
            is_enough: tallies
                .iter()
                .all(|seen| seen.count + seen.quorum > seen.masters),
            unseen,
        }
    }

    /// Returns whether a program is connected that says which lists it uses.
    pub(super) fn has_any(&self) -> bool {
        self.programs.keys().any(|part| *part != Part::Unknown)
    }

    pub(super) fn has(&self, part: Part) -> bool {
        self.programs.contains_key(&part)
    }

    pub(super) fn step(&self) -> Step {
        let [old, both, new] = [Part::Old, Part::Both, Part::New].map(|part| self.has(part));
        match (old, both, new) {
            (true, _, true) => Step::Unsafe,
            (false, false, false) if self.has(Part::Other) => Step::Unknown,
            (_, false, false) => Step::Begin,
            (true, true, false) => Step::EndOld,
            (false, true, false) => Step::LeaveOld,
            (false, true, true) => Step::EndBoth,
            (false, false, true) => Step::StopOld,
        }
    }

    pub(super) fn summary(&self, step: Step, findings: &[&Finding], change: &Change) -> Summary {
        let has = |severity| findings.iter().any(|one| one.severity == severity);
        let cannot_see = !self.is_enough
            || self.has(Part::Other)
            || self.has(Part::Unknown)
            || has(Severity::Unknown);
        let [old, new] = [Part::Old, Part::New].map(Part::word);
        let text = |text: &str| text.to_owned();
        let (text, code) = match step {
            Step::Unsafe => (
                format!(
                    "Stop the programs with {new} at once: they and those with {old} may hold the \
                     same lock."
                ),
                3,
            ),
            Step::Unknown => (text(UNKNOWN_LISTS), 3),
            _ if has(Severity::Critical) => (text("Not now: first do what the findings say."), 3),
            Step::Begin | Step::EndOld | Step::LeaveOld if has_no_majority(findings) => {
                (text(NO_VOTES), 1)
            }
            Step::EndOld => (format!("Not yet: programs with {old} must end."), 1),
            Step::EndBoth => (text("Not yet: programs with both lists must end."), 1),
            _ if cannot_see => (
                text("Not all can be seen. Make sure yourself before the next step."),
                1,
            ),
            Step::LeaveOld => (
                format!("No program with {old} is connected. {LEAVE_OLD}"),
                1,
            ),
            Step::StopOld if self.is_stopped(change) => (text("The change is done."), 0),
            Step::Begin | Step::StopOld => (text("Go on with the marked step."), 0),
        };
        Summary {
            text,
            exit: Exit::Code(code),
        }
    }

    /// Returns whether no old master that was left answers any more.
    fn is_stopped(&self, change: &Change) -> bool {
        let left = change.left();
        left.iter().all(|master| self.unseen.contains_key(master))
    }

    /// Returns the programs, for the JSON.
    pub(super) fn reports(&self) -> Vec<PartReport> {
        let parts = self.programs.iter();
        let parts = parts.map(|(part, names)| PartReport {
            uses: *part,
            clients: names.keys().flatten().cloned().collect(),
            unnamed: names.get(&None).copied().unwrap_or_default(),
        });
        parts.collect()
    }

    pub(super) fn text(&self, style: Style) -> String {
        let rows = Part::ALL.into_iter().filter_map(|part| {
            let is_always = part < Part::Other;
            let who = match self.programs.get(&part) {
                Some(names) => who(names),
                None if is_always => "none".to_owned(),
                None => return None,
            };
            let word = part.word();
            Some(vec![Cell::new(Colour::Dim, word), Cell::plain(who)])
        });
        let unseen = self.unseen.iter().map(|(master, why)| {
            let why = format!("shows no programs: {}", in_words_of_the_file(why));
            vec![Cell::new(Colour::Yellow, &**master), Cell::plain(why)]
        });
        style.table(&rows.chain(unseen).collect::<Vec<_>>())
    }
}

const UNKNOWN_LISTS: &str = "\
The programs that are connected use neither the old nor the new list. Look at --from and --to, and \
write each host as these programs do: localhost and 127.0.0.1 are different lists.";

const NO_VOTES: &str = "\
Not yet: too few masters can vote, as the findings say. Wait until they do, and run this again.";

fn has_no_majority(findings: &[&Finding]) -> bool {
    let mut of_all = findings.iter().filter(|one| one.masters.is_empty());
    of_all.any(|one| one.setting == "votes")
}

/// Returns the programs that all masters show and the change concerns.
fn programs(
    masters: &[MasterPrograms],
    change: &Change,
) -> BTreeMap<Part, BTreeMap<Option<String>, usize>> {
    let mut parts = BTreeMap::<_, BTreeMap<_, usize>>::new();
    let shown = masters
        .iter()
        .flat_map(|master| master.programs.iter().flatten());
    for program in shown {
        let name = program.name.as_ref();
        let Some(part) = name.map_or(Some(Part::Unknown), |name| change.part(name)) else {
            continue;
        };
        let names = parts.entry(part).or_default();
        let client = program.client.as_deref();
        let client = client.and_then(|client| Program::parse(client).client);
        let most = names.entry(client).or_default();
        *most = program.connections.max(*most);
    }
    parts
}

/// Returns the names of programs, and the number of those without a name.
fn who(names: &BTreeMap<Option<String>, usize>) -> String {
    const MOST: usize = 10;
    let named: Vec<_> = names.keys().flatten().cloned().collect();
    let mut who: Vec<_> = named.iter().take(MOST).cloned().collect();
    if named.len() > MOST {
        who.push(format!("{} more", named.len() - MOST));
    }
    who.extend(
        names
            .get(&None)
            .map(|count| format!("{count} without a name")),
    );
    who.join(", ")
}

/// What to do now.
pub(super) struct Summary {
    pub(super) text: String,
    pub(super) exit: Exit,
}
