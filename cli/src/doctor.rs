//! `quorlock doctor`: the check of all masters, with the commands that fix each finding.

use std::path::Path;

use quorlock::Coordinator;
use quorlock_check::{Finding, Severity};
use serde::Serialize;

use crate::{
    args::{Common, Doctor},
    exit::Exit,
    failure::Failure,
    lists::{ListReport, Part},
    masters::Masters,
    report::{print_json, say},
    runtime::block_on,
    style::{Colour, Style, clean, wrap},
    words::in_words_of_the_file,
};

/// The JSON of `doctor`.
#[derive(Serialize)]
struct Report {
    source: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lists: Vec<ListReport>,
    worst: Option<String>,
    findings: Vec<FindingReport>,
}

#[derive(Serialize)]
pub(crate) struct FindingReport {
    severity: String,
    masters: Vec<String>,
    setting: &'static str,
    value: String,
    why: String,
    fix: String,
    commands: Vec<String>,
}

pub(crate) fn doctor(args: &Doctor, common: &Common) -> Result<Exit, Failure> {
    let masters = Masters::find_to_check(common)?;
    let exposed = masters.exposed().map(Path::to_owned);
    let (source, is_strict) = (masters.source(), masters.is_strict());
    let subject = masters.into_check()?;
    block_on(async {
        let (checked, locks) = (subject.check().await?, &subject.locks);
        let worst = checked
            .worst()
            .max(exposed.as_ref().map(|_| Severity::Warn));
        let own = exposed.as_deref().map(FindingReport::of_password_file);
        // The findings are sorted, the worst first.
        let (before, after) = checked.findings.split_at(
            checked
                .findings
                .partition_point(|one| one.severity >= Severity::Warn),
        );
        if args.json {
            let findings = before.iter().map(FindingReport::of).chain(own);
            print_json(&Report {
                source,
                lists: ListReport::all(locks),
                worst: worst.map(|worst| worst.to_string()),
                findings: findings
                    .chain(after.iter().map(FindingReport::of))
                    .collect(),
            })?;
        } else {
            let style = Style::of_stdout();
            let count_own = usize::from(own.is_some());
            let own = own.map_or_else(String::new, |own| own.paragraph(style) + "\n");
            let shown = text(before, style) + &own + &text(after, style);
            let notes = notes(&checked.findings, is_strict, style);
            let summary = summary(&checked.findings, worst, count_own);
            let count = locks.master_count();
            let plural = if count == 1 { "" } else { "s" };
            let source = clean(&source);
            let parts = parts(locks, style);
            say(format!(
                "{shown}{parts}{notes}the masters are those of {source}\n{count} master{plural}: {summary}\n"
            ))?;
        }
        Ok(exit(worst))
    })
}

/// Returns a table of the masters with their parts in a change of the masters, if there is one.
fn parts(locks: &Coordinator, style: Style) -> String {
    let masters = Part::of_masters(locks);
    let heading = masters.first().map(|(_, part)| part.heading());
    let Some(heading) = heading.filter(|heading| heading.len() > 1) else {
        return String::new();
    };
    let rows = masters.iter();
    let rows = rows.map(|(health, part)| part.cells(&health.master));
    let rows: Vec<_> = [heading].into_iter().chain(rows).collect();
    style.table(&rows) + "\n"
}

/// Returns the exit status for the worst finding.
fn exit(worst: Option<Severity>) -> Exit {
    match worst {
        None | Some(Severity::Info) => Exit::Success,
        Some(Severity::Unknown) => Exit::Code(1),
        Some(Severity::Warn) => Exit::Code(2),
        Some(_) => Exit::Code(3),
    }
}

impl FindingReport {
    pub(crate) fn of(finding: &Finding) -> Self {
        Self {
            severity: finding.severity.to_string(),
            masters: finding.masters.iter().map(ToString::to_string).collect(),
            setting: finding.setting,
            value: in_words_of_the_file(&finding.value),
            why: in_words_of_the_file(finding.why),
            fix: in_words_of_the_file(&finding.fix),
            commands: commands(finding).collect(),
        }
    }

    /// Returns the finding about a password file that all users can read.
    fn of_password_file(file: &Path) -> Self {
        let file = file.display();
        Self {
            severity: Severity::Warn.to_string(),
            masters: Vec::new(),
            setting: "password_file",
            value: format!("{file}, which all users can read"),
            why: "every user of this machine can take the password".to_owned(),
            fix: format!("chmod 600 {file}"),
            commands: Vec::new(),
        }
    }

    /// Returns the text about a finding that is about this program.
    fn paragraph(&self, style: Style) -> String {
        let what = format!("{}: {}", self.setting, self.value);
        let rows = [
            ("on", "this program".to_owned()),
            ("why", self.why.clone()),
            ("fix", self.fix.clone()),
        ];
        entry(Severity::Warn, &what, rows, style)
    }
}

fn text(findings: &[Finding], style: Style) -> String {
    let paragraphs = findings.iter().map(|one| paragraph(one, style) + "\n");
    paragraphs.collect()
}

/// Returns what to know about the commands, and about a program that is not strict.
fn notes(findings: &[Finding], is_strict: bool, style: Style) -> String {
    let has_commands = findings.iter().any(|one| commands(one).next().is_some());
    let notes = [(has_commands, COMMANDS), (!is_strict, NOT_STRICT)];
    let notes = notes.into_iter().filter(|(is_true, _)| *is_true);
    let notes = notes.map(|(_, note)| indented(note, 0, style) + "\n");
    notes.collect()
}

const COMMANDS: &str = "\
A restart undoes CONFIG SET: run CONFIG REWRITE in the same way. If the masters have a password, \
set REDISCLI_AUTH first, and add --user NAME for a user.";
const NOT_STRICT: &str = "\
Without strict, a program that starts now takes a master that has lost its locks for a new one. \
For jobs that come and go, set strict = true in all programs.";

/// Returns the number of findings of each severity, in one line. `own` is the number of warnings
/// about this program that the check does not know.
fn summary(findings: &[Finding], worst: Option<Severity>, own: usize) -> String {
    let severities = [
        Severity::Refuse,
        Severity::Warn,
        Severity::Unknown,
        Severity::Info,
    ];
    let counts = severities.iter().filter_map(|severity| {
        let same = findings.iter().filter(|one| one.severity == *severity);
        let count = same.count() + if *severity == Severity::Warn { own } else { 0 };
        (count > 0).then(|| format!("{count} {severity}"))
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    let is_refused = |one: &Finding| one.severity == Severity::Refuse;
    let is_outage = findings
        .iter()
        .any(|one| is_refused(one) && one.setting == "votes");
    match worst {
        None => "no findings, all is well".to_owned(),
        Some(Severity::Info) => format!("{counts}, all is well"),
        Some(_) if is_outage => format!("{counts}; no lock can be acquired now"),
        Some(Severity::Refuse) => format!("{counts}; do not use these masters yet"),
        Some(_) => counts,
    }
}

fn paragraph(finding: &Finding, style: Style) -> String {
    let rows = [
        ("on", finding.masters.join(", ")),
        ("why", in_words_of_the_file(finding.why)),
        ("fix", in_words_of_the_file(&finding.fix)),
    ];
    let what = format!(
        "{}: {}",
        finding.setting,
        in_words_of_the_file(&finding.value)
    );
    let mut text = entry(finding.severity, &what, rows, style);
    for command in commands(finding) {
        // A command is not wrapped, so that it can be copied. Most fit into 80 columns here.
        let command = style.paint(Colour::Bold, &command);
        text.push_str(&format!("  {command}\n"));
    }
    text
}

/// Returns the lines about one finding, with those of `rows` that have a text.
fn entry(severity: Severity, what: &str, rows: [(&str, String); 3], style: Style) -> String {
    let colour = match severity {
        Severity::Info => Colour::Dim,
        Severity::Unknown | Severity::Warn => Colour::Yellow,
        _ => Colour::Red,
    };
    let mut text = style.paint(colour, &format!("{severity:<8}"));
    text.push_str(&indented(what, 8, style));
    for (word, body) in rows.iter().filter(|(_, body)| !body.is_empty()) {
        text.push_str("        ");
        text.push_str(&style.paint(Colour::Dim, &format!("{word:<5}")));
        text.push_str(&indented(body, 13, style));
    }
    text
}

/// Returns `text` in lines that begin in column `indent`. The caller has written the first margin.
fn indented(text: &str, indent: usize, style: Style) -> String {
    let lines = wrap(&clean(text), style.text_width() - indent);
    lines.join(&format!("\n{}", " ".repeat(indent))) + "\n"
}

/// Returns the commands that carry out the fix, one for each master that the finding is about.
fn commands(finding: &Finding) -> impl Iterator<Item = String> {
    let on = finding.masters.iter();
    on.filter_map(|master| command(master, &finding.fix))
}

/// Returns the command that carries out the fix, if the fix is one command for a server with a host
/// and a port.
fn command(master: &str, fix: &str) -> Option<String> {
    let words: Vec<_> = fix.split(' ').collect();
    let is_command = matches!(words[..], ["CONFIG", "SET", _, _]);
    let (host, port) = master.rsplit_once(':')?;
    let is_tcp =
        port.parse::<u16>().is_ok() && !host.contains(['/', '@']) && !host.starts_with("sentinel:");
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (is_command && is_tcp).then(|| format!("redis-cli -h {host} -p {port} {fix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_that_is_a_command_can_be_copied() {
        let fix = "CONFIG SET timeout 0";
        let copied = |host| Some(format!("redis-cli -h {host} -p 6379 CONFIG SET timeout 0"));
        assert_eq!(command("10.0.0.1:6379", fix), copied("10.0.0.1"));
        assert_eq!(command("[::1]:6379", fix), copied("::1"));
        for (master, fix) in [
            ("/run/redis.sock", fix),
            ("sentinel:locks@10.0.0.1:26379", fix),
            (
                "10.0.0.1:6379",
                "CONFIG SET maxmemory to more, or free memory",
            ),
            ("10.0.0.1:6379", "wait"),
        ] {
            assert_eq!(command(master, fix), None, "{master} {fix}");
        }
    }
}
