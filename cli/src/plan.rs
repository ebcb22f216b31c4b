//! `quorlock plan`: the steps to other masters, and whether it is time for the next one.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use quorlock::{
    CheckReport, Coordinator, Finding, ListsId, MasterPrograms, Membership, Setting, Severity,
};

use crate::{
    args::{Common, Plan},
    exit::Exit,
    failure::Failure,
    masters::Masters,
    report::say,
    runtime::block_on,
    style::{Cell, Colour, Style, clean, wrap},
    times::rounded,
    words::in_words_of_the_file,
};

pub(crate) fn plan(args: &Plan, common: &Common) -> Result<Exit, Failure> {
    // A process in another container may have the same host name and process ID.
    let ours = format!("plan-{:016x}", RandomState::new().hash_one(()));
    let masters = Masters::find_change(common, &args.from, &args.to, &ours)?;
    block_on(async {
        let locks = masters.coordinator()?;
        let change = Change::of(&locks);
        let style = Style::of_stdout();
        if change.is_none() && args.from.is_empty() {
            return Err(Failure::new(Exit::Usage, NOT_OLD));
        }
        if change.is_none() {
            say(paragraph(SAME, style))?;
            return Ok(Exit::Success);
        }
        let checked = locks.check().await;
        let seen = Seen::of(&locks, &change, &ours).await;
        let step = seen.step();
        let findings = step.findings(&checked);
        let verdict = seen.verdict(step, &findings);
        let shown = [
            change.text(style),
            seen.text(style),
            steps(&change, &locks, step, style),
            notes(&seen, &locks, step, &findings, style),
            paragraph(verdict.text, style),
        ];
        let shown: Vec<_> = shown.into_iter().filter(|part| !part.is_empty()).collect();
        say(shown.join("\n"))?;
        Ok(verdict.exit)
    })
}

const NOT_OLD: &str =
    "the masters of the settings are the new ones already; give the old ones with --from";

const SAME: &str = "\
Both lists have the same masters, so no program has to change. To put another server at the \
address of a master, stop the old one and start the new one empty. Programs that knew the old one \
give the new one no vote for the time of a quarantine. Do so with one master after the other.";

/// The two lists, as addresses.
struct Change {
    old: Vec<Arc<str>>,
    new: Vec<Arc<str>>,
    /// The old masters that are not among the new ones.
    left: Vec<Arc<str>>,
}

impl Change {
    fn of(locks: &Coordinator) -> Self {
        let health = locks.health();
        let of = |is_it: fn(Membership) -> bool| {
            let masters = health.iter().filter(|master| is_it(master.membership));
            masters.map(|master| master.master.clone()).collect()
        };
        Self {
            old: of(|part| part != Membership::Joins),
            new: of(|part| part != Membership::Leaves),
            left: of(|part| part == Membership::Leaves),
        }
    }

    fn is_none(&self) -> bool {
        self.left.is_empty() && self.old.len() == self.new.len()
    }

    /// Returns the part of programs with these lists.
    fn part(&self, lists: ListsId) -> Part {
        let id = |masters: &[Arc<str>], leaving: &[Arc<str>]| {
            ListsId::of(
                masters.iter().map(|address| &**address),
                leaving.iter().map(|address| &**address),
            )
        };
        let (old, new) = (&self.old, &self.new);
        match lists {
            _ if lists == id(old, &[]) => Part::Old,
            _ if lists == id(new, &[]) => Part::New,
            // The second is that of programs on the way back.
            _ if lists == id(new, old) || lists == id(old, new) => Part::Both,
            _ => Part::Other,
        }
    }

    fn text(&self, style: Style) -> String {
        let row = |word, masters: &[Arc<str>]| {
            vec![
                Cell::new(Colour::Dim, word),
                Cell::plain(masters.join(", ")),
            ]
        };
        style.table(&[row("old", &self.old), row("new", &self.new)])
    }
}

/// The masters that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Old,
    Both,
    New,
    /// Other lists than the old and the new one.
    Other,
    /// The connections say nothing of lists.
    Unknown,
}

impl Part {
    const ALL: [(Self, &str); 5] = [
        (Self::Old, "only the old masters"),
        (Self::Both, "both lists"),
        (Self::New, "only the new masters"),
        (Self::Other, "other lists"),
        (Self::Unknown, "connections that do not say"),
    ];
}

/// What the masters show.
struct Seen {
    /// For each client name, the largest number of connections with one master.
    programs: BTreeMap<Part, BTreeMap<Option<String>, usize>>,
    /// The masters that show nothing, and why.
    unseen: Vec<(Arc<str>, String)>,
    /// Whether a program with a majority of the masters of a list is seen by one of them.
    is_enough: bool,
}

impl Seen {
    /// `ours` is the client name of this process.
    async fn of(locks: &Coordinator, change: &Change, ours: &str) -> Self {
        let masters = locks.programs().await;
        let unseen = masters.iter().filter_map(|master| {
            let why = master.programs.as_ref().err()?;
            Some((master.master.clone(), why.clone()))
        });
        let unseen: Vec<_> = unseen.collect();
        let tallies = locks.tally(|health| unseen.iter().all(|(one, _)| *one != health.master));
        Self {
            programs: programs(&masters, change, ours),
            is_enough: tallies
                .iter()
                .all(|seen| seen.count + seen.quorum > seen.masters),
            unseen,
        }
    }

    fn has(&self, part: Part) -> bool {
        self.programs.contains_key(&part)
    }

    fn step(&self) -> Step {
        let [old, both, new] = [Part::Old, Part::Both, Part::New].map(|part| self.has(part));
        match (old, both, new) {
            (true, _, true) => Step::Unsafe,
            (_, false, false) => Step::Begin,
            (true, true, false) => Step::EndOld,
            (false, true, false) => Step::LeaveOld,
            (false, true, true) => Step::EndBoth,
            (false, false, true) => Step::StopOld,
        }
    }

    fn verdict(&self, step: Step, findings: &[&Finding]) -> Verdict {
        let has = |severity| findings.iter().any(|one| one.severity == severity);
        let cannot_see = !self.is_enough
            || self.has(Part::Other)
            || self.has(Part::Unknown)
            || has(Severity::Unknown);
        let (text, code) = match step {
            Step::Unsafe => (UNSAFE, 3),
            _ if has(Severity::Refuse) => ("Not now: first do what the findings say.", 3),
            Step::EndOld => ("Not yet: programs with only the old masters must end.", 1),
            Step::EndBoth => ("Not yet: programs with both lists must end.", 1),
            _ if cannot_see => (
                "Not all can be seen. Make sure yourself before the next step.",
                1,
            ),
            Step::LeaveOld => (LEAVE_OLD, 1),
            Step::Begin | Step::StopOld => ("Go on with the marked step.", 0),
        };
        let exit = if code == 0 {
            Exit::Success
        } else {
            Exit::Code(code)
        };
        Verdict { text, exit }
    }

    fn text(&self, style: Style) -> String {
        let rows = Part::ALL.iter().filter_map(|(part, word)| {
            let is_always = *part < Part::Other;
            let who = match self.programs.get(part) {
                Some(names) => who(names),
                None if is_always => "none".to_owned(),
                None => return None,
            };
            Some(vec![Cell::new(Colour::Dim, *word), Cell::plain(who)])
        });
        let unseen = self.unseen.iter().map(|(master, why)| {
            let why = format!("shows no programs: {}", in_words_of_the_file(why));
            vec![Cell::new(Colour::Yellow, &**master), Cell::plain(why)]
        });
        style.table(&rows.chain(unseen).collect::<Vec<_>>())
    }
}

/// Returns the programs that all masters show, without this one.
fn programs(
    masters: &[MasterPrograms],
    change: &Change,
    ours: &str,
) -> BTreeMap<Part, BTreeMap<Option<String>, usize>> {
    let mut parts = BTreeMap::<_, BTreeMap<_, usize>>::new();
    let shown = masters
        .iter()
        .flat_map(|master| master.programs.iter().flatten());
    for program in shown.filter(|program| program.client.as_deref() != Some(ours)) {
        let part = program
            .lists
            .map_or(Part::Unknown, |lists| change.part(lists));
        let names = parts.entry(part).or_default();
        let most = names.entry(program.client.clone()).or_default();
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

/// The step that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Begin,
    EndOld,
    LeaveOld,
    EndBoth,
    StopOld,
    /// Programs share no list.
    Unsafe,
}

const LEAVE_OLD: &str = "\
No program with only the old masters is connected. Go on with the marked step if none lives, as \
step 2 says, and if the wait is over. No master can tell.";

const UNSAFE: &str = "\
Stop the programs with only the new masters at once: they and those with only the old masters may \
hold the same lock.";

impl Step {
    /// Returns the findings that stand in the way of this step.
    fn findings(self, checked: &CheckReport) -> Vec<&Finding> {
        let is_change = |finding: &&Finding| {
            finding.severity == Severity::Refuse || finding.setting == Setting::FenceCounters
        };
        // Later, nothing needs the old masters.
        let findings = checked.findings.iter().filter(|_| self <= Self::LeaveOld);
        findings.filter(is_change).collect()
    }
}

/// What to do now.
struct Verdict {
    text: &'static str,
    exit: Exit,
}

/// Returns the steps, with a mark at the next one.
fn steps(change: &Change, locks: &Coordinator, step: Step, style: Style) -> String {
    let wait = rounded(locks.quarantine_length());
    let old = change.old.len();
    let barred = old - old / 2; // then the others are no majority
    let stop = match &*change.left.join(", ") {
        "" => "the change is done".to_owned(),
        left => format!("stop {left}"),
    };
    let texts = [
        (
            Step::Begin,
            "In all programs, set masters to the new list and leaving to the old list. No wait is \
             needed."
                .to_owned(),
        ),
        (
            Step::EndOld,
            format!(
                "Wait until all programs with only the old masters have ended, also those that \
                 cannot reach a master, and until none can start again. If one may live, delete \
                 its user (ACL DELUSER) on all old masters, and at least on {barred} of the {old}."
            ),
        ),
        (
            Step::LeaveOld,
            format!(
                "Wait for {wait} after that (longer if a program has a longer max_ttl than these \
                 settings), and until the minimum times (--min-hold) are over. Then set masters to the new list in all programs, without leaving."
            ),
        ),
        (
            Step::EndBoth,
            "Wait until all programs with both lists have ended.".to_owned(),
        ),
        (Step::StopOld, format!("Then {stop}.")),
    ];
    let lines = texts.iter().zip(1..).map(|((at, text), number)| {
        let mark = if *at == step { "->" } else { "  " };
        let lines = wrap(text, style.text_width() - 8);
        format!("  {mark} {number}  {}\n", lines.join("\n        "))
    });
    lines.collect()
}

/// Returns what to know about what was seen.
fn notes(
    seen: &Seen,
    locks: &Coordinator,
    step: Step,
    findings: &[&Finding],
    style: Style,
) -> String {
    let wait = rounded(locks.quarantine_length());
    let nobody = format!(
        "No program is connected. If none runs anywhere and {wait} have passed since the last one \
         ended, start all with the new masters: then no step is needed."
    );
    let is_nobody = step == Step::Begin && !seen.has(Part::Old) && seen.unseen.is_empty();
    let notes = [
        (is_nobody, nobody.as_str()),
        (seen.has(Part::Unknown), UNKNOWN),
        (seen.has(Part::Other), OTHER),
        (!seen.unseen.is_empty(), UNSEEN),
    ];
    let notes = notes.into_iter().filter(|(is_true, _)| *is_true);
    let notes = notes.map(|(_, note)| note.to_owned());
    let findings = findings
        .iter()
        .map(|one| in_words_of_the_file(&one.to_string()));
    let notes = findings.chain(notes).map(|note| paragraph(&note, style));
    notes.collect()
}

const UNKNOWN: &str = "\
Connections that do not say which masters they use are those of redis-cli, of other libraries, of \
older programs, and of users without the right +client|setname.";
const OTHER: &str = "\
Programs with other lists may hold the same locks as all others, unless they are for other locks.";
const UNSEEN: &str = "\
Masters show their programs to a user with the rights +client|list and +client|setname. A master \
that is down shows none.";

fn paragraph(text: &str, style: Style) -> String {
    wrap(&clean(text), style.text_width()).join("\n") + "\n"
}
