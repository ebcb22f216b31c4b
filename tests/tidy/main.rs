//! Checks the sources themselves: floors, cycles of rooms, sizes, and the names of files and of
//! metrics. What the pages say is left to readers.

#![allow(clippy::unwrap_used, reason = "a failed test ends")]

mod cycles;
mod floors;
mod kinds;
mod monitoring;
mod mutants;
mod names;
mod paths;
mod sizes;
mod source;
mod tokens;

/// Fails with one line per finding.
fn assert_none(found: &[String]) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}
