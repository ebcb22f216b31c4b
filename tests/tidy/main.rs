//! Checks the sources themselves: floors, import cycles, sizes, the width of comments, and the
//! names in the pages, in the dashboard and in the alerts.

#![allow(clippy::unwrap_used, reason = "a failed test ends")]

mod blocking;
mod comments;
mod cycles;
mod defined;
mod examples;
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
