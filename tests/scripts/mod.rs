//! The scripts of `lua/` on the keys of a server in memory: what holds in all states of one lock.

use std::collections::BTreeMap;

use quorlock_memory::heart::{Keyspace, Reply, Script};

use crate::core::protocol::words::fixture::scripts;

mod candidates;
mod common_cases;
mod fenced;
mod walks;

/// Returns all scripts that lock commands run, by name.
fn all() -> BTreeMap<&'static str, Script> {
    let all = scripts().map(|script| (script.name, Script::new(script.text())));
    all.collect()
}

/// What a script has done: its reply, and the messages that it has published.
type Done = (Reply, Vec<(Vec<u8>, Vec<u8>)>);

/// Runs a script on `keys`, at this time in milliseconds.
fn run(
    script: &Script,
    (names, words): (&[&str], &[&str]),
    keys: &mut Keyspace,
    millis: u64,
) -> Done {
    let ran = keys.eval(script, names, words, millis * 1_000);
    (ran.reply, ran.published)
}
