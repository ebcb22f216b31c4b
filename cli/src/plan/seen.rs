//! The programs that the masters show, and what that means for the next step.

use std::collections::{BTreeMap, BTreeSet};

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

/// The programs that use the same masters. The fields are those of the JSON.
#[derive(Serialize)]
pub(super) struct PartReport {
    uses: Part,
    clients: BTreeSet<String>,
    /// The largest number of connections without a client name that a master has.
    unnamed: usize,
}

/// What the masters show.
pub(super) struct Seen {
    pub(super) programs: BTreeMap<Part, PartReport>,
    /// The masters that show nothing, and why.
    pub(super) unseen: BTreeMap<String, String>,
    /// Whether a program with a majority of the masters of a list is seen by one of them.
    is_enough: bool,
}

impl Seen {
    pub(super) fn of(locks: &Coordinator, change: &Change, masters: &[MasterPrograms]) -> Self {
        let unseen = masters.iter().filter_map(|master| {
            let why = master.programs.as_ref().err()?;
            Some((master.master.to_string(), in_words_of_the_file(why)))
        });
        let unseen: BTreeMap<_, _> = unseen.collect();
        let tallies = locks.tally(|health| !unseen.contains_key(&*health.master));
        Self {
            programs: programs(masters, change),
            is_enough: tallies
                .iter()
                .all(|seen| seen.count + seen.quorum > seen.masters),
            unseen,
        }
    }

    pub(super) fn has(&self, part: Part) -> bool {
        self.programs.contains_key(&part)
    }

    pub(super) fn step(&self, findings: &[Finding]) -> Step {
        let [old, both, new] = [Part::Old, Part::Both, Part::New].map(|part| self.has(part));
        // A warning: programs with only the old list came after programs with both.
        let tells = |severity| {
            (findings.iter()).any(|one| one.setting == "lists" && one.severity == severity)
        };
        match (old, both, new) {
            (true, _, true) => Step::Unsafe,
            (false, false, false) if self.has(Part::Other) => Step::Unknown,
            _ if tells(Severity::Warn) => Step::EndOld,
            (_, false, false) => Step::Begin,
            // Programs without a list in common with others must end before any other step.
            _ if old || tells(Severity::Critical) => Step::EndOld,
            (_, true, false) => Step::LeaveOld,
            (_, true, true) => Step::EndBoth,
            (_, false, true) => Step::StopOld,
        }
    }

    /// Says what to do now, with the exit status.
    pub(super) fn summary(
        &self,
        step: Step,
        findings: &[&Finding],
        change: &Change,
    ) -> (String, Exit) {
        let has = |severity| findings.iter().any(|one| one.severity == severity);
        let is_no_majority = |one: &&Finding| one.setting == "votes" && one.masters.is_empty();
        let has_no_majority = findings.iter().any(is_no_majority);
        let cannot_see = !self.is_enough
            || self.has(Part::Other)
            || self.has(Part::Unknown)
            || has(Severity::Unknown);
        let [old, new] = [Part::Old, Part::New].map(Part::word);
        let mut left = change.left().into_iter();
        let are_down = left.len() == self.unseen.len()
            && left.all(|master| self.unseen.contains_key(&*master));
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
            // Without them, the old list has no majority.
            Step::StopOld if are_down => (text("The change is done."), 0),
            Step::Begin if are_down && !change.left().is_empty() => (text(ALL_DOWN), 1),
            _ if has(Severity::Critical) => (text("Not now: first do what the findings say."), 3),
            Step::Begin | Step::EndOld | Step::LeaveOld if has_no_majority => (text(NO_VOTES), 1),
            Step::EndOld if !self.has(Part::Old) => (text(STILL_COME), 1),
            Step::EndOld => (format!("Not yet: programs with {old} must end."), 1),
            Step::EndBoth => (text("Not yet: programs with both lists must end."), 1),
            _ if cannot_see => (text(CANNOT_SEE), 1),
            Step::LeaveOld => (
                format!("No program with {old} is connected. {LEAVE_OLD}"),
                1,
            ),
            Step::Begin | Step::StopOld => (text("Go on with the marked step."), 0),
        };
        (text, Exit::Code(code))
    }

    pub(super) fn text(&self, style: Style) -> String {
        let rows = Part::ALL.into_iter().filter_map(|part| {
            let none = (part < Part::Other).then(|| "none".to_owned());
            let who = self.programs.get(&part).map(who).or(none)?;
            Some(vec![Cell::new(Colour::Dim, part.word()), Cell::plain(who)])
        });
        let unseen = self.unseen.iter().map(|(master, why)| {
            let why = format!("shows no programs: {why}");
            vec![Cell::new(Colour::Yellow, master), Cell::plain(why)]
        });
        style.table(&rows.chain(unseen).collect::<Vec<_>>())
    }
}

const UNKNOWN_LISTS: &str = "\
The programs that are connected use neither the old nor the new list. Look at --from and --to, and \
write each host as these programs do: localhost and 127.0.0.1 are different lists.";

const ALL_DOWN: &str = "\
The old masters are down. If all programs have only the new list, the change is done.";
const STILL_COME: &str =
    "Not yet: step 2 is not done, because programs with only the old masters still come.";
const CANNOT_SEE: &str = "Not all can be seen. Make sure yourself before the next step.";
const NO_VOTES: &str = "\
Not yet: too few masters can vote, as the findings say. Wait until they do, and run this again.";

/// Returns the programs that all masters show and the change concerns.
fn programs(masters: &[MasterPrograms], change: &Change) -> BTreeMap<Part, PartReport> {
    let mut parts = BTreeMap::new();
    let shown = masters
        .iter()
        .flat_map(|master| master.programs.iter().flatten());
    for program in shown {
        let name = program.name.as_ref();
        let Some(uses) = name.map_or(Some(Part::Unknown), |name| change.part(name)) else {
            continue;
        };
        let part = parts.entry(uses).or_insert_with(|| PartReport {
            uses,
            clients: BTreeSet::new(),
            unnamed: 0,
        });
        let client = program.client.as_deref();
        match client.map(|client| Program::parse(client).shown(None)) {
            Some(client) => drop(part.clients.insert(client)),
            None => part.unnamed = part.unnamed.max(program.connections),
        }
    }
    parts
}

/// Returns the names of programs, and the number of those without a name.
fn who(part: &PartReport) -> String {
    const MOST: usize = 10;
    let names = part.clients.iter().take(MOST).cloned();
    let more = [
        (part.clients.len().saturating_sub(MOST), "more"),
        (part.unnamed, "without a name"),
    ];
    let more = more.iter().filter(|(count, _)| *count > 0);
    let more = more.map(|(count, what)| format!("{count} {what}"));
    Vec::from_iter(names.chain(more)).join(", ")
}
