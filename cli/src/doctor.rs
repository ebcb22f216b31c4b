//! `quorlock doctor`: the check of all masters, with the commands that fix each finding. Its metrics
//! are for the textfile collector of the node exporter.

use std::{cmp::Reverse, collections::BTreeSet, ffi::OsString, fs, path::Path, process};

use quorlock::Quarantine;
use quorlock_check::{Finding, Severity};
use serde::{Serialize, Serializer};

use crate::{
    args::{Common, Doctor},
    client_name::in_words_for_people,
    exit::Exit,
    failure::Failure,
    lists::ListReport,
    masters::Masters,
    output::{print_json, say},
    runtime::block_on,
    style::{Colour, Style, clean},
    times::passed,
    words::in_words_of_the_file,
};

/// The JSON of `doctor`.
#[derive(Serialize)]
struct Report<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lists: Vec<ListReport>,
    worst: Option<String>,
    findings: &'a [FindingReport],
}

#[derive(Serialize)]
pub(crate) struct FindingReport {
    #[serde(serialize_with = "word")]
    severity: Severity,
    masters: Vec<String>,
    setting: &'static str,
    value: String,
    why: String,
    fix: String,
    commands: Vec<String>,
}

pub(crate) fn doctor(args: &Doctor, common: &Common) -> Result<Exit, Failure> {
    let masters = Masters::find(common, false)?;
    let own = FindingReport::of_settings(&masters);
    let source = masters.source.clone();
    let subject = masters.into_check()?;
    block_on(async {
        let (checked, locks) = (subject.check().await?, &subject.locks);
        let findings = checked.findings.iter().map(FindingReport::of).chain(own);
        let mut findings: Vec<_> = findings.collect();
        findings.sort_by_key(|finding| Reverse(finding.severity));
        let worst = findings.first().map(|finding| finding.severity);
        if let Some(file) = &args.textfile {
            let is_lack = |one: &FindingReport| one.setting == "votes" && one.masters.is_empty();
            let majority = usize::from(!findings.iter().any(is_lack));
            let masters = [locks.master_count(), checked.voters, majority];
            write(file, &metrics(&source, counts(&findings), masters))?;
        } else if args.json {
            print_json(&Report {
                source: &source,
                lists: ListReport::all(locks),
                worst: worst.map(|worst| worst.to_string()),
                findings: &findings,
            })?;
        } else {
            let style = Style::of_stdout();
            let shown: String = findings.iter().map(|one| one.paragraph(style)).collect();
            let has_commands = findings.iter().any(|one| !one.commands.is_empty());
            let notes = has_commands.then(|| style.indented(COMMANDS, 0) + "\n");
            let notes = notes.unwrap_or_default();
            let summary = summary(&findings, worst);
            let count = locks.master_count();
            let plural = if count == 1 { "" } else { "s" };
            let source = clean(&source);
            say(format!(
                "{shown}{notes}the masters are those of {source}\n{count} master{plural}; {summary}\n"
            ))?;
        }
        Ok(match worst {
            None | Some(Severity::Info) => Exit::Success,
            Some(Severity::Unknown) => Exit::Code(1),
            Some(Severity::Warn) => Exit::Code(2),
            Some(_) => Exit::Code(3),
        })
    })
}

impl FindingReport {
    pub(crate) fn of(finding: &Finding) -> Self {
        let masters = finding.masters.iter();
        let commands = masters.filter_map(|master| command(master, &finding.fix));
        Self {
            severity: finding.severity,
            masters: finding.masters.iter().map(ToString::to_string).collect(),
            setting: finding.setting,
            value: in_words_for_people(&in_words_of_the_file(&finding.value)),
            why: in_words_of_the_file(finding.why),
            fix: in_words_of_the_file(&finding.fix),
            commands: commands.collect(),
        }
    }

    /// Returns the findings that no master shows: a password file that all users can read, and a
    /// quarantine that is not strict.
    fn of_settings(masters: &Masters) -> Vec<Self> {
        let own = |severity, setting, value: &str, why: &str, fix: &str| Self {
            severity,
            masters: Vec::new(),
            setting,
            value: value.to_owned(),
            why: why.to_owned(),
            fix: fix.to_owned(),
            commands: Vec::new(),
        };
        let file = masters.exposed().map(|file| {
            let value = format!("{}, which all users can read", file.display());
            let fix = format!("chmod 600 {}", file.display());
            own(Severity::Warn, "password_file", &value, EXPOSED, &fix)
        });
        let is_lenient = masters.settings.quarantine != Some(Quarantine::Strict);
        let lenient = || own(Severity::Info, "quarantine", "not strict", LENIENT, STRICT);
        file.into_iter().chain(is_lenient.then(lenient)).collect()
    }

    fn paragraph(&self, style: Style) -> String {
        let colour = match self.severity {
            Severity::Info => Colour::Dim,
            Severity::Unknown | Severity::Warn => Colour::Yellow,
            _ => Colour::Red,
        };
        let mut text = style.paint(colour, &format!("{:<10}", self.severity));
        text.push_str(&style.indented(&format!("{}: {}", self.setting, self.value), 8));
        let on = self.masters.join(", ");
        for (word, body) in [("on", &on), ("why", &self.why), ("fix", &self.fix)] {
            if !body.is_empty() {
                text.push_str("        ");
                text.push_str(&style.paint(Colour::Dim, &format!("{word:<5}")));
                text.push_str(&style.indented(body, 13));
            }
        }
        for command in &self.commands {
            // A command is not wrapped, so that it can be copied. Most fit into 80 columns here.
            text.push_str(&format!("  {}\n", style.paint(Colour::Bold, command)));
        }
        text + "\n"
    }
}

fn word<S: Serializer>(severity: &Severity, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(severity)
}

const COMMANDS: &str = "\
A restart undoes them: run CONFIG REWRITE in the same way, or ACL SAVE with an ACL file. If the \
masters have a password, set REDISCLI_AUTH first, and add --user NAME for a user, and --tls for TLS. \
Then run quorlock doctor again: without EVAL or PUBLISH, it cannot try all rights.";

const EXPOSED: &str = "every user of this machine can take the password";
const LENIENT: &str =
    "a program that starts now takes a master that has lost its locks for a new one";
const STRICT: &str = "for jobs that come and go, set it to strict in all programs";

/// Returns the number of findings of each severity, the worst first.
fn counts(findings: &[FindingReport]) -> [(Severity, usize); 4] {
    use Severity::{Critical, Info, Unknown, Warn};
    [Critical, Warn, Unknown, Info].map(|severity| {
        let its = findings.iter().filter(|one| one.severity == severity);
        (severity, its.count())
    })
}

/// Returns the number of findings of each severity, in one line.
fn summary(findings: &[FindingReport], worst: Option<Severity>) -> String {
    let counts = counts(findings).into_iter().filter(|(_, count)| *count > 0);
    let counts = counts.map(|(severity, count)| format!("{count} {severity}"));
    let counts = format!("findings: {}", counts.collect::<Vec<_>>().join(", "));
    let of_worst = findings.iter().filter(|one| Some(one.severity) == worst);
    let settings: BTreeSet<_> = of_worst.map(|one| one.setting).collect();
    let has = |setting| settings.contains(setting);
    let meaning = match worst {
        None => return "no findings, all is well".to_owned(),
        Some(Severity::Info) if has("rights for other locks") => {
            "; all is well, but not for all kinds of locks"
        }
        Some(Severity::Info) => ", all is well",
        Some(Severity::Critical) if has("votes") => "; no lock can be acquired now",
        Some(Severity::Critical) if settings.len() == 1 && has("lists") => {
            "; two programs may hold one lock at once"
        }
        Some(Severity::Critical) => "; do not use these masters yet",
        Some(_) => "",
    };
    counts + meaning
}

/// Replaces a file at once, so that nobody reads a part of it.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let mut partial = OsString::from(file);
    partial.push(format!(".{}", process::id())); // the collector reads *.prom only
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, file));
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        let sentence = format!("cannot write {}: {error}", file.display());
        Failure::new(Exit::Output, sentence)
    })
}

/// Returns the metrics about the masters of `source`: all, those that can vote, and whether these
/// are a majority of each list.
fn metrics(source: &str, found: [(Severity, usize); 4], masters: [usize; 3]) -> String {
    let [all, voting, majority] = masters;
    let now = passed(0).as_secs();
    let source = format!("source={source:?}"); // a label has the escapes of Rust
    let findings = found.map(|(severity, count)| {
        format!("quorlock_doctor_findings{{severity=\"{severity}\",{source}}} {count}\n")
    });
    format!(
        "{}quorlock_masters{{{source}}} {all}\nquorlock_masters_voting{{{source}}} {voting}\n\
         quorlock_majority{{{source}}} {majority}\nquorlock_doctor_timestamp_seconds{{{source}}} {now}\n",
        findings.concat()
    )
}

/// Returns the command that carries out the fix, if the fix is one command for a server with a host
/// and a port.
fn command(master: &str, fix: &str) -> Option<String> {
    let fix = fix.split([',', ';']).next()?;
    let words: Vec<_> = fix.split(' ').collect();
    let is_command = matches!(words[..], ["CONFIG", "SET", _, _] | ["ACL", "SETUSER", ..]);
    let (host, port) = master.rsplit_once(':')?;
    let is_tcp =
        port.parse::<u16>().is_ok() && !host.contains(['/', '@']) && !host.starts_with("sentinel:");
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let words: Vec<_> = words.into_iter().map(quoted).collect();
    let command = format!("redis-cli -h {host} -p {port} {}", words.join(" "));
    (is_command && is_tcp && !command.contains("<user>")).then_some(command)
}

/// Returns a word of a fix as a shell takes it. The name of the user may have any character.
fn quoted(word: &str) -> String {
    let word = in_words_of_the_file(word);
    let is_plain = |letter: char| letter.is_alphanumeric() || "+-_".contains(letter);
    match word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
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
        let rights = "ACL SETUSER app +eval +client|list ~quorlock:origin; or another server";
        let shown = "redis-cli -h a -p 1 ACL SETUSER app +eval '+client|list' '~quorlock:origin'";
        assert_eq!(command("a:1", rights).as_deref(), Some(shown));
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
