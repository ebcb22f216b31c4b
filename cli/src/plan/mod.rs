//! `quorlock plan`: the steps to other masters, and whether it is time for the next one.

use std::collections::BTreeMap;

use quorlock::Coordinator;
use quorlock_check::Finding;
use serde::Serialize;

use self::{
    change::{Change, Part},
    seen::{PartReport, Seen},
    steps::Step,
};
use crate::{
    args::{Common, Plan},
    client_name::in_words_for_people,
    doctor::FindingReport,
    exit::Exit,
    failure::Failure,
    lists::ListReport,
    masters::{Masters, ToCheck},
    output::{print_json, say},
    runtime::block_on,
    style::Style,
    times::rounded,
    words::in_words_of_the_file,
};

mod change;
mod seen;
mod steps;

#[derive(Default, Serialize)]
struct PlanReport {
    source: String,
    lists: Vec<ListReport>,
    programs: Vec<PartReport>,
    /// The masters that show no programs, and why.
    unseen: BTreeMap<String, String>,
    /// What to do in each step.
    steps: Vec<String>,
    /// The number of the marked step, from 1.
    step: Option<usize>,
    findings: Vec<FindingReport>,
    summary: String,
}

pub(crate) fn plan(args: &Plan, common: &Common) -> Result<Exit, Failure> {
    let masters = Masters::find_change(common, &args.from, &args.to)?;
    let source = masters.source.clone();
    let subject = masters.into_check()?;
    block_on(async {
        let (change, locks) = (Change::of(&subject.lists, subject.keys()?), &subject.locks);
        let style = Style::of_stdout();
        if change.is_none() && args.from.is_empty() {
            return Err(Failure::new(Exit::Usage, NOT_OLD));
        }
        if change.is_none() {
            return say_same(source, &subject, args.json);
        }
        let checked = subject.check().await?;
        let seen = Seen::of(locks, &change, &checked.programs);
        let step = seen.step(&checked.findings);
        let findings = step.findings(&checked);
        let (summary, exit) = seen.summary(step, &findings, &change);
        let steps = steps::steps(&change, &subject);
        if args.json {
            let marked = steps.iter().position(|(at, _)| *at == step);
            print_json(&PlanReport {
                source,
                lists: ListReport::all(locks),
                programs: seen.programs.into_values().collect(),
                unseen: seen.unseen,
                steps: steps.map(|(_, text)| text).into(),
                step: marked.map(|index| index + 1),
                findings: findings.into_iter().map(FindingReport::of).collect(),
                summary,
            })?;
            return Ok(exit);
        }
        let shown = [
            change.text(style),
            seen.text(style),
            steps::text(&steps, step, style),
            notes(&seen, locks, step, &findings),
            style.indented(&summary, 0),
        ];
        let shown: Vec<_> = shown.into_iter().filter(|part| !part.is_empty()).collect();
        say(shown.join("\n"))?;
        Ok(exit)
    })
}

/// Says what to do if both lists have the same masters.
fn say_same(source: String, subject: &ToCheck, is_json: bool) -> Result<Exit, Failure> {
    let vote = match rounded(subject.locks.quarantine_length()) {
        wait if subject.has_quarantine() => format!("{NO_VOTE} {wait}."),
        _ => VOTE_AT_ONCE.to_owned(),
    };
    let summary = format!("{SAME} {vote}");
    match is_json {
        true => print_json(&PlanReport {
            source,
            summary,
            ..PlanReport::default()
        })?,
        false => say(Style::of_stdout().indented(&summary, 0))?,
    }
    Ok(Exit::Success)
}

const NOT_OLD: &str =
    "the masters of the settings are the new ones already; give the old ones with --from";

const SAME: &str = "\
Both lists have the same masters, so no program has to change. To put another server at the \
address of a master, stop the old one and start the new one empty. Do so with one master after the \
other.";
const NO_VOTE: &str = "Programs that knew the old one give the new one no vote for";
const VOTE_AT_ONCE: &str = "\
With quarantine off, the new one votes at once, so two programs may get one lock: turn quarantine on \
in all programs first.";

/// Returns what to know about what was seen.
fn notes(seen: &Seen, locks: &Coordinator, step: Step, findings: &[&Finding]) -> String {
    let style = Style::of_stdout();
    let wait = rounded(locks.quarantine_length());
    let nobody = format!(
        "No program is connected. If none runs anywhere and {wait} have passed since the last one \
         ended, start all with the new masters: then no step is needed."
    );
    let has_none = seen.programs.keys().all(|part| *part == Part::Unknown);
    let was_nobody = findings.iter().all(|one| one.setting != "lists");
    let is_nobody = step == Step::Begin && has_none && was_nobody && seen.unseen.is_empty();
    let unseen = (!seen.unseen.is_empty()).then(|| UNSEEN.to_owned());
    let notes = is_nobody.then_some(nobody).into_iter().chain(unseen);
    let findings = findings.iter();
    let findings = findings.map(|one| in_words_for_people(&in_words_of_the_file(&one.to_string())));
    let notes = findings.chain(notes).map(|note| style.indented(&note, 0));
    notes.collect()
}

const UNSEEN: &str = "\
Masters show their programs to a user with the rights +client|list and +client|setname. A master \
that is down shows none.";
