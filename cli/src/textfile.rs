//! The metrics of `quorlock doctor`, for the textfile collector of the node exporter.

use std::{ffi::OsString, fs, path::Path, process, time::SystemTime};

use quorlock_check::Severity;

use crate::{exit::Exit, failure::Failure};

/// Replaces a file at once, so that nobody reads a part of it.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let mut partial = OsString::from(file);
    partial.push(format!(".{}", process::id())); // the collector reads *.prom only
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, file));
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        let sentence = format!("cannot write {}: {error}", file.display());
        Failure::new(Exit::Output, sentence)
    })
}

/// Returns the metrics about the masters of `source`: all, and those that can vote.
pub(crate) fn metrics(
    source: &str,
    found: [(Severity, usize); 4],
    [all, voting]: [usize; 2],
) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let source = format!("source={source:?}"); // a label has the escapes of Rust
    let findings = found.map(|(severity, count)| {
        format!("quorlock_doctor_findings{{severity=\"{severity}\",{source}}} {count}\n")
    });
    format!(
        "{}quorlock_masters{{{source}}} {all}\nquorlock_masters_voting{{{source}}} {voting}\n\
         quorlock_doctor_timestamp_seconds{{{source}}} {now}\n",
        findings.concat()
    )
}
